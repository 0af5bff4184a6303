"""The drop-in Consumer on a real Kafka: it is a confluent_kafka.Consumer, and failed messages come again."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import confluent_kafka
import pytest
from confluent_kafka import OFFSET_BEGINNING, KafkaException, TopicPartition

from reconsume.consumers import Consumer, RetryMessage, origin, polled_from, reconsume_times
from reconsume.consumers.drop_in.send_back_client import SendBackClient
from reconsume.delay_levels.errors import IllegalSetting
from reconsume.delay_levels.wire.properties import Header
from reconsume.delay_levels.wire.send_back_copy import Position
from tests.integration.drop_in.poll_loop import Reading, drop_in
from tests.integration.installation import Installation, installation
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.kafka, pytest.mark.early(3)]

HEADERS: list[Header] = [("trace", b"1"), ("TAGS", b"late"), ("trace", b"2"), ("none", None), ("binary", b"\xff\x00")]

PROTOCOLS: list[dict[str, Any]] = [
    {},
    {"partition.assignment.strategy": "cooperative-sticky"},
    {"group.protocol": "consumer"},
]


@pytest.fixture(scope="module")
def here(bootstrap_servers: str) -> Iterator[Installation]:
    with installation(bootstrap_servers) as one:
        yield one


@pytest.mark.rule("BR-13", "BR-17", "T-02")
def test_after_the_last_attempt_it_is_a_dead_letter_that_shows_the_cause(here: Installation) -> None:
    group, topic = here.name("dead"), here.topic("dead")
    here.produce(topic, b"hopeless", b"unwanted")
    with drop_in(here, group, max_reconsume_times=1) as consumer:
        consumer.subscribe([topic])
        reading = Reading(consumer)
        hopeless, unwanted = reading.until(2)
        consumer.send_message_back(hopeless, cause="first")
        consumer.send_message_back(unwanted, delay_level=-1, cause="nobody wants it")
        again = reading.until(1)[0]
        assert again.value() == b"hopeless"
        consumer.send_message_back(again, cause=KeyError("second"))
        wait_until(lambda: len(here.dead_letters(group)) == 2, "two dead letters")
    shown = {record.value: record for record in here.dead_letters(group)}
    assert shown[b"unwanted"]["__dlq.errors.message"] == "nobody wants it"
    assert shown[b"hopeless"]["__dlq.errors.exception.class"] == "builtins.KeyError"
    assert (shown[b"hopeless"]["RECONSUME_TIME"], shown[b"unwanted"]["RECONSUME_TIME"]) == ("2", "1")


@pytest.mark.rule("BP-04", "BR-09", "SB-16")
def test_a_record_can_be_sent_back_by_where_it_stands(here: Installation) -> None:
    group, topic = here.name("pull"), here.topic("pull")
    here.produce(topic, b"zero", b"one", key=b"k", headers=HEADERS)
    with drop_in(here, group) as consumer:
        consumer.subscribe([topic])
        reading = Reading(consumer)
        reading.until(2)
        consumer.send_message_back(TopicPartition(topic, 0, 1), delay_level=1)
        again = reading.until(1)[0]
        assert (again.value(), again.headers(), origin(again)) == (b"one", HEADERS, Position(topic, 0, 1))
        consumer.send_message_back(polled_from(again))
        third = reading.until(1)[0]
        assert (third.value(), reconsume_times(third), origin(third)) == (b"one", 2, Position(topic, 0, 1))
        for offset in (99, -1):
            with pytest.raises(IllegalSetting, match=f"no record at {topic}/0/{offset}"):
                consumer.send_message_back(TopicPartition(topic, 0, offset))
        with pytest.raises(IllegalSetting, match="belongs to a retry"):
            consumer.send_message_back(TopicPartition(topic, 0, third.offset() or 0))
        with pytest.raises(IllegalSetting, match="no record at"):
            # The marker that ends the scheduler's transaction.
            consumer.send_message_back(TopicPartition(consumer.retry_topic, 0, 1))


def commit_message(consumer: Consumer, message: Any) -> None:
    consumer.commit(message=message, asynchronous=False)


def commit_offsets(consumer: Consumer, message: Any) -> None:
    where = polled_from(message)
    consumer.commit(offsets=[TopicPartition(where.topic, where.partition, where.offset + 1)], asynchronous=False)


def store_and_commit(consumer: Consumer, message: Any) -> None:
    consumer.store_offsets(message)
    consumer.commit(asynchronous=False)


def store_offsets_and_commit(consumer: Consumer, message: Any) -> None:
    where = polled_from(message)
    consumer.store_offsets(offsets=[TopicPartition(where.topic, where.partition, where.offset + 1)])
    consumer.commit(asynchronous=False)


def commit_asynchronously(consumer: Consumer, message: Any) -> None:
    consumer.commit(message)


@pytest.mark.parametrize(
    ("conf", "finish"),
    [
        ({"enable.auto.commit": False}, commit_message),
        ({"enable.auto.commit": False}, commit_offsets),
        ({"enable.auto.commit": False}, commit_asynchronously),
        ({"enable.auto.commit": False, "enable.auto.offset.store": False}, store_and_commit),
        ({"enable.auto.commit": False, "enable.auto.offset.store": False}, store_offsets_and_commit),
        ({"auto.commit.interval.ms": 100}, None),
        ({"auto.commit.interval.ms": 100, "enable.auto.offset.store": False}, Consumer.store_offsets),
    ],
)
def test_every_way_to_commit_works_for_retries_too(
    here: Installation, conf: dict[str, Any], finish: Callable[[Consumer, Any], None] | None
) -> None:
    name = f"commit-{getattr(finish, '__name__', None)}-{len(conf)}"
    group, topic = here.name(name), here.topic(name)
    here.produce(topic, b"fails once")
    with drop_in(here, group, conf=conf) as consumer:
        consumer.subscribe([topic])
        reading = Reading(consumer)
        first = reading.until(1)[0]
        consumer.send_message_back(first)
        if finish is not None:
            finish(consumer, first)
        again = reading.until(1)[0]
        if finish is not None:
            finish(consumer, again)

        def committed() -> list[int]:
            consumer.poll(0)
            return [one.offset for one in consumer.committed([TopicPartition(topic, 0), polled_from(again)], 10)]

        # What is committed by itself may stand behind the marker of the retry's transaction.
        wait_until(lambda: committed() in ([1, 1], [1, 2]), "both are committed")


def test_the_offset_of_a_retry_is_refused_under_its_origin_topic(here: Installation) -> None:
    group, topic = here.name("mixed-up"), here.topic("mixed-up")
    here.produce(topic, b"one")
    with drop_in(here, group, conf={"enable.auto.commit": False, "enable.auto.offset.store": False}) as consumer:
        consumer.subscribe([topic])
        reading = Reading(consumer)
        consumer.send_message_back(reading.until(1)[0])
        consumer.send_message_back(reading.until(1)[0])
        third = reading.until(1)[0]
        assert third.offset() == 2, "behind a record and the marker of its transaction"
        wrong = [TopicPartition(third.topic() or "", third.partition() or 0, (third.offset() or 0) + 1)]
        for refused in (consumer.commit, consumer.store_offsets):
            with pytest.raises(IllegalSetting, match="belongs to a retry"):
                refused(offsets=wrong)
        consumer.commit(offsets=[TopicPartition(topic, 0, 1)], asynchronous=False)
    assert here.committed(group, topic) == 1


@pytest.mark.rule("TN-06", "T-34")
@pytest.mark.parametrize(("conf", "reset"), [*((conf, "latest") for conf in PROTOCOLS), (PROTOCOLS[0], "error")])
def test_the_retry_topic_starts_at_its_beginning_whatever_holds_for_the_topics(
    here: Installation, conf: dict[str, Any], reset: str
) -> None:
    name = f"start-{reset}-{'-'.join(map(str, conf.values()))}"
    group, topic = here.name(name), here.topic(name)
    here.produce(topic, b"old")
    retry_is_there(here, group, topic)
    settings = conf | {"auto.offset.reset": reset, "enable.auto.commit": False}
    with drop_in(here, group, conf=settings) as consumer:
        consumer.subscribe([topic])
        reading = Reading(consumer)
        assert reading.until(1)[0].value() == b"retry"
        if reset == "error":
            wait_until(reading.failed, "the error that the user asked for")
            assert {error.code() for error in reading.errors} == {confluent_kafka.KafkaError._AUTO_OFFSET_RESET}
        else:
            reading.until_value(b"new", lambda: here.produce(topic, b"new"))
        consumer.commit(offsets=[TopicPartition(consumer.retry_topic, 0, 1)], asynchronous=False)
    assert b"old" not in reading.values
    with drop_in(here, group, conf=settings) as consumer:
        consumer.subscribe([topic])
        again = Reading(consumer)
        again.until_value(b"second", lambda: retry_is_there(here, group, topic, b"second"))
    assert b"retry" not in again.values, "what is committed holds"


def retry_is_there(here: Installation, group: str, topic: str, value: bytes = b"retry") -> None:
    """A retry that is older than the group, or that comes while it runs."""
    sent_back = {"REAL_TOPIC": f"%RETRY%{group}", "RETRY_TOPIC": topic, "ORIGIN_MESSAGE_ID": f"{topic}/0/0"}
    headers = [(name, text.encode()) for name, text in sent_back.items()]
    before = len(here.retries(group))
    here.produce(here.settings.names.send_back, value, headers=headers)
    wait_until(lambda: len(here.retries(group)) > before, "a retry")


@pytest.mark.parametrize(("conf", "reset"), [*((conf, "latest") for conf in PROTOCOLS), (PROTOCOLS[0], "earliest")])
def test_the_users_callbacks_work_and_may_choose_offsets(here: Installation, conf: dict[str, Any], reset: str) -> None:
    name = f"callbacks-{reset}-{'-'.join(map(str, conf.values()))}"
    group, topic = here.name(name), here.topic(name, 2)
    here.produce(topic, b"zero", b"one", b"two", key=b"same")
    calls: list[tuple[str, set[str]]] = []

    def on_assign(consumer: Any, partitions: list[TopicPartition]) -> None:
        calls.append(("assign", {one.topic for one in partitions}))
        for one in partitions:
            one.offset = OFFSET_BEGINNING if one.topic == topic else one.offset
        (consumer.incremental_assign if conf else consumer.assign)(partitions)

    def on_revoke(_consumer: Any, partitions: list[TopicPartition]) -> None:
        calls.append(("revoke", {one.topic for one in partitions}))

    with drop_in(here, group, conf=conf | {"auto.offset.reset": reset}) as consumer:
        consumer.subscribe([topic], on_assign=on_assign, on_revoke=on_revoke)
        reading = Reading(consumer)
        for message in reading.until(3):
            consumer.send_message_back(message)
        assert len(reading.until(3)) == 3
        assert {one.topic for one in consumer.assignment()} == {topic, consumer.retry_topic}
    assert sorted({kind for kind, _ in calls}) == ["assign", "revoke"]
    assert set.union(*(topics for _, topics in calls)) == {topic, here.settings.names.retry(group)}
    assert reading.values == [b"zero", b"one", b"two"] * 2


def test_an_error_in_the_users_callback_comes_out_of_poll(here: Installation) -> None:
    group, topic = here.name("raises"), here.topic("raises")

    def on_assign(_consumer: Any, _partitions: list[TopicPartition]) -> None:
        raise ZeroDivisionError

    with drop_in(here, group, conf={"auto.offset.reset": "latest"}) as consumer:
        consumer.subscribe([topic], on_assign=on_assign)
        with pytest.raises(ZeroDivisionError):
            wait_until(lambda: consumer.poll(0.2), "the callback's error")
        assert {one.topic for one in consumer.assignment()} == {topic, consumer.retry_topic}


def test_a_pattern_subscribes_to_what_it_names_and_to_the_retry_topic(here: Installation) -> None:
    group, topic = here.name("pattern"), here.topic("pattern-one")
    here.produce(topic, b"matched")
    with drop_in(here, group) as consumer:
        consumer.subscribe([f"^{here.settings.topic_prefix}pattern-.*"])
        reading = Reading(consumer)
        consumer.send_message_back(reading.until(1)[0])
        assert reconsume_times(reading.until(1)[0]) == 1
        consumer.unsubscribe()
        wait_until(lambda: consumer.poll(0.05) is None and not consumer.assignment(), "nothing is assigned")
        # A pattern that takes in the retry topic too delivers it once.
        consumer.subscribe([f"^{here.settings.topic_prefix}(pattern-|RETRY.*pattern).*"])
        wait_until(lambda: consumer.poll(0.05) is not None or consumer.assignment(), "an assignment")
        assert len(consumer.assignment()) == 2


def test_pause_resume_seek_and_position_work_on_a_retry_topic(here: Installation) -> None:
    group, topic = here.name("seek"), here.topic("seek")
    here.produce(topic, b"one")
    with drop_in(here, group) as consumer:
        consumer.subscribe([topic])
        reading = Reading(consumer)
        consumer.send_message_back(reading.until(1)[0])
        again = reading.until(1)[0]
        where = polled_from(again)
        assert consumer.position([where])[0].offset == where.offset + 1
        consumer.pause(consumer.assignment())
        consumer.seek(where)
        consumer.resume(consumer.assignment())
        same = reading.until(1)[0]
        assert isinstance(same, RetryMessage)
        assert (polled_from(same), origin(same)) == (where, origin(again))
        assert consumer.get_watermark_offsets(TopicPartition(consumer.retry_topic, 0), 10)[0] == 0


@pytest.mark.parametrize("way", ["assign", "incremental_assign"])
def test_a_program_that_assigns_by_itself_can_assign_the_retry_topic(here: Installation, way: str) -> None:
    group, topic = here.name(way), here.topic(way)
    here.produce(topic, b"one")
    retry_is_there(here, group, topic)
    with drop_in(here, group, conf={"auto.offset.reset": "latest"}) as consumer:
        getattr(consumer, way)([TopicPartition(topic, 0, 0), TopicPartition(consumer.retry_topic, 0)])
        reading = Reading(consumer)
        assert {(message.value(), message.topic()) for message in reading.until(2)} == {
            (b"one", topic),
            (b"retry", topic),
        }
        if way == "assign":
            consumer.unassign()
        else:
            consumer.incremental_unassign(consumer.assignment())
        assert consumer.assignment() == []


@pytest.mark.rule("TN-09")
@pytest.mark.parametrize("way", ["poll", "consume"])
def test_a_retry_topic_that_is_not_there_yet_is_no_error_of_the_users(
    here: Installation, way: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    group, topic = here.name(f"absent-{way}"), here.topic(f"absent-{way}")
    with drop_in(here, group, conf={"topic.metadata.refresh.interval.ms": 500}) as consumer:
        # As if the client had no right to make it.
        monkeypatch.setattr(SendBackClient, "prepare", lambda _self, _seconds, **_keywords: None)
        consumer.subscribe([topic, here.name(f"unknown-{way}")])
        reading = Reading(consumer, way)
        wait_until(reading.failed, "the error of the user's own topic")
        here.produce(topic, b"one")
        consumer.send_message_back(reading.until(1)[0])
        assert reconsume_times(reading.until(1)[0]) == 1
    assert {error.code() for error in reading.errors} == {confluent_kafka.KafkaError.UNKNOWN_TOPIC_OR_PART}
    assert not any(consumer.retry_topic in error.str() for error in reading.errors)


def test_what_cannot_be_sent_back_is_refused(here: Installation) -> None:
    with drop_in(here, here.name("refused")) as consumer:
        event = confluent_kafka.Message(error=confluent_kafka.KafkaError(confluent_kafka.KafkaError._PARTITION_EOF))
        replaced = confluent_kafka.Message(topic="t", partition=0, offset=0, value=b"{}")
        replaced.set_value({})
        for wrong, match in ((event, "message is an error event"), (replaced, "set_value has replaced its value")):
            with pytest.raises(IllegalSetting, match=match):
                consumer.send_message_back(wrong)
        with pytest.raises(IllegalSetting, match="cause must be"):
            consumer.send_message_back([], cause=5)
    with pytest.raises((RuntimeError, KafkaException), match="closed"):
        consumer.poll(0)
