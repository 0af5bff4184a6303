"""PushConsumer on a real Kafka: what listeners get, and what becomes of their results."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pytest

from reconsume.consumers import ConsumeConcurrentlyContext, ConsumeConcurrentlyStatus, Message, MessageQueue
from reconsume.delay_levels.errors import IllegalSetting
from reconsume.delay_levels.wire.properties import Header
from tests.integration.installation import LATER, SUCCESS, Deliveries, Installation, installation
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.kafka, pytest.mark.timeout(90)]

HEADERS: list[Header] = [
    ("trace", b"1"),
    ("TAGS", b"late"),
    ("trace", b"2"),
    ("none", None),
    ("binary", b"\xff\x00\xfe"),
    ("empty", b""),
    ("trace", b"1"),
]


@pytest.fixture(scope="module")
def here(bootstrap_servers: str) -> Iterator[Installation]:
    with installation(bootstrap_servers) as one:
        yield one


def fails_once(messages: Sequence[Message], _context: ConsumeConcurrentlyContext) -> ConsumeConcurrentlyStatus:
    return LATER if messages[0].reconsume_times == 0 else SUCCESS


@pytest.mark.rule(
    "BR-10", "BR-16", "BR-17", "SB-12", "SC-05", "TN-01", "TN-02", "TN-04", "T-09", "T-10", "T-41", "NM-06"
)
def test_a_retry_comes_back_with_its_topic_key_value_and_headers(here: Installation) -> None:
    group, topic = here.name("whole"), here.topic("whole")
    bodies: list[bytes | None] = [b"flight", b"\x00\xff binary", b"", None]
    keys: list[bytes | None] = [b"UA1545", b"\xff\x00", b"", None]
    for key in keys:
        here.produce(topic, *bodies, key=key, headers=HEADERS)
    listener = Deliveries(fails_once)
    with here.consumer(group, topic, listener):
        wait_until(lambda: len(listener.batches) == 32, what="16 messages were delivered twice")
        wait_until(lambda: here.committed(group, topic) == 16, what="all are committed")
    first = [message for message in listener.messages if not message.is_retry]
    retries = {message.origin: message for message in listener.messages if message.is_retry}
    assert len(retries) == len(first) == 16
    assert {(message.key, message.body) for message in first} == {(key, body) for key in keys for body in bodies}
    for message in first:
        again = retries[message.origin]
        assert (again.key, again.body, again.headers) == (message.key, message.body, HEADERS)
        assert (again.topic, again.msg_id, again.tags) == (topic, message.msg_id, "late")
        assert again.born_timestamp == message.kafka.timestamp
        assert (again.reconsume_times, again.delay_time_level) == (1, 3)
        assert again.kafka.timestamp >= message.kafka.timestamp + 1_000, "never early"
    assert {context.message_queue.topic for context in listener.contexts} == {topic, f"%RETRY%{group}"}
    assert listener.contexts[0].message_queue == MessageQueue(topic, 0)


@pytest.mark.rule("BR-13", "BR-15", "BR-17", "DP-02", "HR-07", "NM-08", "SC-05", "T-02", "T-03", "T-04")
def test_after_its_last_retry_a_message_is_a_dead_letter_at_once(here: Installation) -> None:
    group, topic = here.name("dead"), here.topic("dead")
    here.produce(topic, b"flight", key=b"UA1545", headers=HEADERS)

    def cannot(_messages: Sequence[Message], _context: ConsumeConcurrentlyContext) -> ConsumeConcurrentlyStatus:
        raise ValueError("no dep_time")

    listener = Deliveries(cannot)
    with here.consumer(group, topic, listener, max_reconsume_times=2):
        letter = wait_until(lambda: here.dead_letters(group), what="the dead letter")[0]
    assert listener.seen == [(b"flight", 0), (b"flight", 1), (b"flight", 2)]
    assert [message.delay_time_level for message in listener.messages] == [0, 3, 4]
    assert (letter.key, letter.value) == (b"UA1545", b"flight")
    assert letter.headers[: len(HEADERS)] == HEADERS
    expected = {
        "RETRY_TOPIC": topic,
        "ORIGIN_MESSAGE_ID": f"{topic}/0/0",
        "RECONSUME_TIME": "3",
        "MAX_RECONSUME_TIMES": "2",
        "DELAY": "0",
        "REAL_TOPIC": f"%DLQ%{group}",
        "__dlq.errors.topic": topic,
        "__dlq.errors.partition": "0",
        "__dlq.errors.offset": "0",
        "__dlq.errors.group": group,
        "__dlq.errors.delivery.count": "3",
        "__dlq.errors.message": "no dep_time",
        "__dlq.errors.exception.class": "builtins.ValueError",
    }
    assert {name: letter[name] for name in expected} == expected
    lane = [record["RECONSUME_TIME"] for record in here.waiting(0, group)]
    assert lane == ["3"], "no delay level comes before the dead-letter topic"


@pytest.mark.rule("BR-13", "CC-22", "SB-06", "T-07")
def test_a_wish_is_heard(here: Installation) -> None:
    group, topic = here.name("wish"), here.topic("wish")
    here.produce(topic, b"never", b"level 4", b"level 99")
    wishes = {b"never": -1, b"level 4": 4, b"level 99": 99}

    def wishing(messages: Sequence[Message], context: ConsumeConcurrentlyContext) -> ConsumeConcurrentlyStatus:
        if messages[0].is_retry:
            return SUCCESS
        context.delay_level_when_next_consume = wishes[messages[0].body or b""]
        return LATER

    listener = Deliveries(wishing)
    with here.consumer(group, topic, listener):
        wait_until(lambda: len(listener.batches) == 5, what="three deliveries and two retries")
        letter = wait_until(lambda: here.dead_letters(group), what="the dead letter")[0]
    assert (letter.value, letter["RECONSUME_TIME"]) == (b"never", "1")
    assert letter["__dlq.errors.message"] == "asked for by the consumer"
    retries = [message for message in listener.messages if message.is_retry]
    assert {message.body: message.delay_time_level for message in retries} == {b"level 4": 4, b"level 99": 4}


@pytest.mark.rule("CC-01", "CC-02")
def test_an_async_listener_fails_and_succeeds_as_a_plain_one_does(here: Installation) -> None:
    group, topic = here.name("async"), here.topic("async")
    here.produce(topic, b"raises", b"gives none", b"later", b"succeeds")
    deliveries = Deliveries(fails_once)

    async def listener(
        messages: Sequence[Message], context: ConsumeConcurrentlyContext
    ) -> ConsumeConcurrentlyStatus | None:
        status = deliveries(messages, context)
        if messages[0].is_retry or messages[0].body == b"succeeds":
            return SUCCESS
        if messages[0].body == b"raises":
            raise ValueError("no dep_time")
        return status if messages[0].body == b"later" else None

    with here.consumer(group, topic, listener):
        wait_until(lambda: len(deliveries.batches) == 7, what="four deliveries and three retries")
        wait_until(lambda: here.committed(group, topic) == 4, what="all are committed")
    assert {body for body, times in deliveries.seen if times == 1} == {b"raises", b"gives none", b"later"}


@pytest.mark.rule("CC-07", "CC-18", "T-13")
def test_of_a_batch_only_what_comes_after_the_ack_index_is_retried(here: Installation) -> None:
    group, topic = here.name("batch"), here.topic("batch")
    bodies = [str(number).encode() for number in range(10)]
    here.produce(topic, *bodies)

    def half(messages: Sequence[Message], context: ConsumeConcurrentlyContext) -> ConsumeConcurrentlyStatus:
        if not messages[0].is_retry:
            context.ack_index = len(messages) // 2 - 1
        return SUCCESS

    listener = Deliveries(half)
    with here.consumer(group, topic, listener, consume_message_batch_max_size=4):
        wait_until(lambda: {m.body for m in listener.messages if m.is_retry} >= failed(listener), what="the retries")
        wait_until(lambda: here.committed(group, topic) == 10, what="all are committed")
    assert max(len(batch) for batch in listener.batches) <= 4
    retried = [message.body for message in listener.messages if message.is_retry]
    assert sorted(body or b"" for body in retried) == sorted(failed(listener))


def failed(listener: Deliveries) -> set[bytes]:
    """The second half of each first batch; how the ten were cut into batches is Kafka's affair."""
    first = [batch for batch in list(listener.batches) if not batch[0].is_retry]
    if sum(map(len, first)) < 10:
        return {b"not all delivered yet"}
    return {message.body or b"" for batch in first for message in batch[len(batch) // 2 :]}


@pytest.mark.rule("TF-03", "TF-04", "TF-07", "T-11")
def test_tags_filter_the_topic_and_never_a_retry(here: Installation) -> None:
    group, topic = here.name("tags"), here.topic("tags")
    here.produce(topic, b"late", headers=[("TAGS", b"late")])
    here.produce(topic, b"lost", headers=[("TAGS", b"lost")])
    here.produce(topic, b"no tag")
    first = Deliveries(lambda _messages, _context: LATER)
    with here.consumer(group, topic, first, tags="late"):
        wait_until(lambda: here.committed(group, topic) == 3, what="what is not wanted is committed too")
    assert first.seen[0] == (b"late", 0)
    assert {body for body, _ in first.seen} == {b"late"}
    second = Deliveries(lambda _messages, _context: SUCCESS)
    with here.consumer(group, topic, second, tags="lost"):
        wait_until(lambda: second.batches, what="the retry, though its tag is not subscribed to now")
    assert {body for body, _ in second.seen} == {b"late"}
    assert second.messages[0].is_retry


def test_starting_twice_is_refused(here: Installation) -> None:
    consumer = here.consumer(here.name("twice"), here.topic("twice"), Deliveries(fails_once))
    with consumer:
        assert consumer.running
        with pytest.raises(IllegalSetting, match="start: this consumer was started before; make a new one"):
            consumer.start()
    assert not consumer.running
