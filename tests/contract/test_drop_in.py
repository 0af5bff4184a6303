"""The drop-in `Consumer`: polled and committed by the program, sent back by hand."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any

import pytest
from confluent_kafka import TIMESTAMP_LOG_APPEND_TIME, KafkaError, KafkaException, TopicPartition
from confluent_kafka import Consumer as KafkaConsumer
from confluent_kafka import Message as KafkaMessage

from reconsume.bridge.writing.exactly_once import ExactlyOnceWriter
from reconsume.consumers import Consumer, origin, polled_from, reconsume_times
from reconsume.delay_levels.errors import IllegalSetting, PartitionLost
from reconsume.delay_levels.wire.properties import Header
from reconsume.delay_levels.wire.send_back_copy import Position
from tests.contract.worlds import World

HEADERS: list[Header] = [("trace", b"1"), ("TAGS", b"late"), ("trace", b"2"), ("none", None), ("binary", b"\xff\x00")]


def read(world: World, consumer: Consumer, count: int, way: str = "poll") -> list[KafkaMessage]:
    """The next so many messages."""
    found: list[KafkaMessage] = []

    def enough() -> bool:
        if way == "consume":
            found.extend(consumer.consume(count - len(found), 0.1))
        elif (one := consumer.poll(0.1)) is not None:
            found.append(one)
        assert not [one.error() for one in found if one.error()]
        return len(found) >= count

    world.until(enough, f"{count} messages")
    return found


@pytest.mark.rule("TN-02", "TN-04", "SB-16", "BR-10", "BR-16")
@pytest.mark.parametrize("way", ["poll", "consume"])
def test_a_message_that_was_sent_back_comes_again_under_its_origin_topic(world: World, way: str) -> None:
    group, topic = world.name(f"again-{way}"), world.topic(f"again-{way}")
    world.produce(topic, b"flight", b"", None, key=b"k", headers=HEADERS)
    with world.drop_in(group) as consumer:
        assert isinstance(consumer, Consumer)
        assert isinstance(consumer, KafkaConsumer)
        consumer.subscribe([topic])
        first = read(world, consumer, 3, way)
        for message in first:
            consumer.send_message_back(message, cause=ValueError("no dep_time"))
        again = read(world, consumer, 3, way)
        assert [one.value() for one in again] == [b"flight", b"", None]
        for number, (one, before) in enumerate(zip(again, first, strict=True)):
            assert isinstance(one, KafkaMessage)
            assert (one.topic(), one.partition(), one.key(), one.headers()) == (topic, 0, b"k", HEADERS)
            assert (reconsume_times(before), reconsume_times(one), one.error()) == (0, 1, None)
            assert origin(one) == origin(before) == Position(topic, 0, number)
            assert (polled_from(one).topic, polled_from(one).offset) == (consumer.retry_topic, one.offset())
            assert (len(one), one.timestamp()[0]) == (len(one.value() or b""), TIMESTAMP_LOG_APPEND_TIME)
        consumer.commit(again[0], asynchronous=False)
        consumer.send_message_back(again[0], delay_level=-1, cause="given up")
        (letter,) = world.until(lambda: world.read(world.names.dead_letter(group)), "the dead letter")
        assert (letter.value, letter["RECONSUME_TIME"], letter["__dlq.errors.message"]) == (b"flight", "2", "given up")


def test_a_copy_of_a_retry_is_committed_in_the_retry_topic(world: World) -> None:
    """A program gets copies back from worker processes."""
    group, topic = world.name("copied"), world.topic("copied")
    world.produce(topic, b"flight")
    with world.drop_in(group, {"enable.auto.commit": False}) as consumer:
        consumer.subscribe([topic])
        consumer.send_message_back(read(world, consumer, 1)[0])
        retry = copy.copy(read(world, consumer, 1)[0])
        consumer.commit(retry, asynchronous=False)
        consumer.send_message_back(retry, delay_level=-1)
        (letter,) = world.until(lambda: world.read(world.names.dead_letter(group)), "the dead letter")
        assert letter["RECONSUME_TIME"] == "2"
        at = polled_from(retry)
        assert world.committed(group, consumer.retry_topic, at.partition) == at.offset + 1
        assert world.committed(group, topic) is None


def test_a_retrys_position_under_its_origin_topic_is_refused_where_it_names_unread_messages(world: World) -> None:
    group, topic = world.name("mixed-up"), world.topic("mixed-up", 2)
    world.produce(topic, *[b"%d" % number for number in range(5)], partition=1)
    with world.drop_in(group) as consumer:
        consumer.subscribe([topic])
        consumer.send_message_back(read(world, consumer, 5))
        retry = read(world, consumer, 5)[-1]
        assert (retry.topic(), retry.partition()) == (topic, 0), "of the only retry partition, from partition 1"
        wrong = TopicPartition(topic, 0, retry.offset() or 0)
        world.produce(topic, b"first", partition=0)
        read(world, consumer, 1)
        world.produce(topic, *[b"unread"] * (wrong.offset + 1), partition=0)
        with pytest.raises(IllegalSetting, match=rf"{wrong.offset} of {topic}-0 belongs to a retry, .* polled_from"):
            consumer.seek(wrong)
        with pytest.raises(IllegalSetting, match=rf"{wrong.offset} of {topic}-0 belongs to a retry, .* polled_from"):
            consumer.send_message_back(wrong)
        unread = read(world, consumer, wrong.offset + 1)
        assert [one.offset() for one in unread] == list(range(1, wrong.offset + 2)), "the refused seek changed nothing"
        consumer.seek(wrong)
        assert [one.offset() for one in read(world, consumer, 2)] == [wrong.offset, wrong.offset + 1]
        consumer.seek(polled_from(retry))
        assert (again := read(world, consumer, 1)[0]).value() == retry.value()
        assert polled_from(again) == polled_from(retry)


def test_a_seek_in_a_paused_partition_waits_for_its_resumption(world: World) -> None:
    topic = world.topic("paused")
    world.produce(topic, b"a", b"b")
    with world.drop_in(world.name("paused")) as consumer:
        consumer.subscribe([topic])
        read(world, consumer, 2)
        consumer.pause([TopicPartition(topic, 0)])
        consumer.seek(TopicPartition(topic, 0, 0))
        assert [consumer.poll(0.1) for _ in range(10)] == [None] * 10
        consumer.resume([TopicPartition(topic, 0)])
        assert [one.value() for one in read(world, consumer, 2)] == [b"a", b"b"]


@pytest.mark.rule("CC-06", "CC-07", "CC-08", "CC-09")
@pytest.mark.parametrize(("ack_index", "failed"), [(None, b"abcd"), (-1, b"abcd"), (1, b"cd"), (3, b""), (99, b"")])
def test_of_a_list_what_comes_after_the_ack_index_is_sent_back(
    world: World, ack_index: int | None, failed: bytes
) -> None:
    group, topic = world.name(f"list{ack_index}"), world.topic(f"list{ack_index}")
    world.produce(topic, b"a", b"b", b"c", b"d")
    with world.drop_in(group) as consumer:
        consumer.subscribe([topic])
        messages = read(world, consumer, 4, "consume")
        with pytest.raises(IllegalSetting, match="ack_index is -2"):
            consumer.send_message_back(messages, ack_index=-2)
        consumer.send_message_back(messages, ack_index=ack_index)
    # Acknowledged means stored: nothing has to be waited for.
    waiting = [one.value or b"" for one in world.read(world.names.delay(1_000)) if one["RETRY_TOPIC"] == topic]
    assert b"".join(waiting) == failed


class OwnConstructor(Consumer):
    """Knows its settings itself, and notes what it was asked for."""

    def __init__(self, address: str, group: str, prefix: str) -> None:
        self.polls = 0
        settings = {"bootstrap.servers": address, "group.id": group, "auto.offset.reset": "earliest"}
        super().__init__(settings, topic_prefix=prefix)

    def poll(self, timeout: float = -1) -> KafkaMessage | None:
        self.polls += 1
        return super().poll(timeout)


class MoreOfIt(OwnConstructor):
    """A subclass of a subclass."""


@pytest.mark.parametrize("kind", [OwnConstructor, MoreOfIt])
def test_a_subclass_may_have_a_constructor_of_its_own(world: World, kind: type[OwnConstructor]) -> None:
    group, topic = world.name(kind.__name__), world.topic(kind.__name__)
    world.produce(topic, b"flight")
    prefix = world.names.delay(1_000).removesuffix("DELAY.1s")
    with kind(world.client_settings["bootstrap.servers"], group, prefix) as consumer:
        assert isinstance(consumer, kind)
        consumer.subscribe([topic])
        consumer.send_message_back(read(world, consumer, 1)[0])
        assert reconsume_times(read(world, consumer, 1)[0]) == 1
        assert consumer.polls >= 2


def test_a_position_is_read_again(world: World) -> None:
    group, topic = world.name("position"), world.topic("position")
    world.produce(topic, b"a", b"b")
    with world.drop_in(group) as consumer:
        consumer.subscribe([topic])
        read(world, consumer, 2)
        consumer.send_message_back(TopicPartition(topic, 0, 1), delay_level=1)
        assert [one.value() for one in read(world, consumer, 1)] == [b"b"]
        with pytest.raises(IllegalSetting, match="there is no record"):
            consumer.send_message_back(TopicPartition(topic, 0, 99))


def test_offsets_that_are_stored_or_committed_hold_after_a_restart(world: World) -> None:
    group, topic = world.name("offsets"), world.topic("offsets")
    world.produce(topic, b"a", b"b", b"c", b"d")
    with world.drop_in(group, {"enable.auto.commit": False}) as consumer:
        consumer.subscribe([topic])
        messages = read(world, consumer, 3)
        consumer.commit(messages[0], asynchronous=False)
        consumer.commit(offsets=[TopicPartition(topic, 0, 2)], asynchronous=False)
    with world.drop_in(group, {"enable.auto.offset.store": False}) as consumer:
        consumer.subscribe([topic])
        (third,) = read(world, consumer, 1)
        assert third.value() == b"c"
        consumer.store_offsets(third)
    assert world.committed(group, topic) == 3
    with world.drop_in(group) as consumer:
        consumer.subscribe([topic])
        assert [one.value() for one in read(world, consumer, 1)] == [b"d"]
    assert world.committed(group, topic) == 4, "committed by itself when it was closed"


@pytest.mark.parametrize("way", ["poll", "consume"])
def test_with_exactly_once_the_offset_goes_with_the_send_back(world: World, way: str) -> None:
    group, topic = world.name(f"once-{way}"), world.topic(f"once-{way}")
    world.produce(topic, b"a", b"b")
    conf = {"enable.auto.commit": False}
    with world.drop_in(group, conf, exactly_once=True) as consumer:
        consumer.subscribe([topic])
        first, _ = read(world, consumer, 2, way)
        consumer.send_message_back(first)
        assert world.committed(group, topic) == 1
    with world.drop_in(group, conf, exactly_once=True) as consumer:
        consumer.subscribe([topic])
        assert {one.value(): reconsume_times(one) for one in read(world, consumer, 2, way)} == {b"a": 1, b"b": 0}


def test_after_a_rebalance_a_list_may_be_committed_in_part_before_it_is_sent_back(world: World) -> None:
    group, topic = world.name("in-part"), world.topic("in-part", 2)
    world.produce(topic, b"a", b"b", partition=0)
    world.produce(topic, b"c", b"d", b"e", b"f", partition=1)
    with world.drop_in(group, {"enable.auto.commit": False}, exactly_once=True) as consumer:
        consumer.subscribe([topic])
        read(world, consumer, 6)
        consumer.unsubscribe()
        consumer.subscribe([topic])
        batch = sorted(read(world, consumer, 6, "consume"), key=lambda one: one.value() or b"")
        consumer.commit(message=batch[1], asynchronous=False)
        consumer.commit(message=batch[4], asynchronous=False)
        consumer.send_message_back(batch, ack_index=4)
        assert [world.committed(group, topic, partition) for partition in (0, 1)] == [2, 4]
        (again,) = read(world, consumer, 1)
        assert (again.value(), reconsume_times(again)) == (b"f", 1)
    copies = [one.value for one in world.read(world.names.delay(1_000)) if one["RETRY_TOPIC"] == topic]
    assert copies == [b"f"]


def test_a_commit_without_arguments_leaves_out_messages_that_are_read_again(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    group, topic = world.name("left-out"), world.topic("left-out", 2)
    world.produce(topic, b"a", b"b", partition=0)
    world.produce(topic, b"c", partition=1)

    def fenced(*_args: Any) -> None:
        raise PartitionLost("as if the group had rebalanced")

    with world.drop_in(group, {"enable.auto.commit": False}, exactly_once=True) as consumer:
        consumer.subscribe([topic])
        first = min(read(world, consumer, 3), key=lambda one: one.value() or b"")
        with monkeypatch.context() as patch:
            patch.setattr(ExactlyOnceWriter, "send_back", fenced)
            with pytest.raises(PartitionLost):
                consumer.send_message_back(first)
        consumer.commit(asynchronous=False)
        assert [world.committed(group, topic, partition) for partition in (0, 1)] == [None, 1]
        assert [one.value() for one in read(world, consumer, 2)] == [b"a", b"b"]
        consumer.commit(asynchronous=False)
        assert [world.committed(group, topic, partition) for partition in (0, 1)] == [2, 1]


@pytest.mark.parametrize("strategy", ["range", "cooperative-sticky"])
def test_rebalance_callbacks_see_every_partition_come_and_go(world: World, strategy: str) -> None:
    group, topic = world.name(f"callbacks-{strategy}"), world.topic(f"callbacks-{strategy}", 2)
    told: dict[str, list[tuple[str, str, int]]] = {"one": [], "other": []}

    def noting(name: str, what: str) -> Any:
        def note(_consumer: object, partitions: Sequence[TopicPartition]) -> None:
            told[name].extend((what, part.topic, part.partition) for part in partitions if part.topic == topic)

        return note

    def held(name: str) -> set[int]:
        found: set[int] = set()
        for what, _, partition in told[name]:
            (found.add if what == "assigned" else found.discard)(partition)
        return found

    def turn(*consumers: Consumer) -> bool:
        for consumer in consumers:
            consumer.poll(0.05)
        return True

    conf = {"partition.assignment.strategy": strategy}
    one, other = world.drop_in(group, conf), world.drop_in(group, conf)
    one.subscribe([topic], on_assign=noting("one", "assigned"), on_revoke=noting("one", "revoked"))
    world.until(lambda: turn(one) and held("one") == {0, 1}, "one has both")
    other.subscribe([topic], on_assign=noting("other", "assigned"), on_revoke=noting("other", "revoked"))
    world.until(lambda: turn(one, other) and len(held("one")) == len(held("other")) == 1, "each has one")
    assert held("one") | held("other") == {0, 1}
    one.close()
    world.until(lambda: turn(other) and held("other") == {0, 1}, "the other has both")
    assert held("one") == set()
    other.close()


@pytest.mark.parametrize("strategy", ["range", "cooperative-sticky"])
def test_a_callback_must_assign_as_the_strategy_does(world: World, strategy: str) -> None:
    group, topic = world.name(f"assigns-{strategy}"), world.topic(f"assigns-{strategy}")

    def wrong(consumer: Any, partitions: list[TopicPartition]) -> None:
        (consumer.incremental_assign if strategy == "range" else consumer.assign)(partitions)

    def refusal() -> int | None:
        try:
            consumer.poll(0.05)
        except KafkaException as error:
            return int(error.args[0].code())
        return None

    consumer = world.drop_in(group, {"partition.assignment.strategy": strategy})
    consumer.subscribe([topic], on_assign=wrong)
    assert world.until(refusal, "it is refused") == KafkaError._STATE
    consumer.close()


def test_a_table_of_its_own_holds_though_nobody_has_made_its_delay_topics(world: World) -> None:
    group, topic = world.name("own-table"), world.topic("own-table")
    world.produce(topic, b"flight")
    with world.drop_in(group, delay_levels="1s 1s 5s") as consumer:
        consumer.subscribe([topic])
        consumer.send_message_back(read(world, consumer, 1)[0])
        assert reconsume_times(read(world, consumer, 1)[0]) == 1
    assert [one.value for one in world.read(world.names.delay(5_000))] == [b"flight"], "not through the inbox"
