"""PushConsumer: what listeners get, and what becomes of their results."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest

from reconsume.consumers import ConsumeConcurrentlyContext, ConsumeConcurrentlyStatus, Message, MessageQueue
from reconsume.delay_levels.errors import IllegalSetting
from reconsume.delay_levels.wire.properties import Header
from tests.contract.worlds import World
from tests.integration.installation import LATER, SUCCESS, Deliveries

HEADERS: list[Header] = [
    ("trace", b"1"),
    ("TAGS", b"late"),
    ("trace", b"2"),
    ("none", None),
    ("binary", b"\xff\x00\xfe"),
    ("empty", b""),
    ("trace", b"1"),
]


def fails_once(messages: Sequence[Message], _context: ConsumeConcurrentlyContext) -> ConsumeConcurrentlyStatus:
    return LATER if messages[0].reconsume_times == 0 else SUCCESS


def fails(_messages: Sequence[Message], _context: ConsumeConcurrentlyContext) -> ConsumeConcurrentlyStatus:
    raise ValueError("no dep_time")


@pytest.mark.rule(
    "BR-10", "BR-16", "BR-17", "SB-12", "SC-05", "TN-01", "TN-02", "TN-04", "T-09", "T-10", "T-41", "NM-06"
)
@pytest.mark.parametrize("exactly_once", [False, True])
def test_a_retry_comes_back_with_its_topic_key_value_and_headers(world: World, exactly_once: bool) -> None:
    group, topic = world.name(f"whole-{exactly_once}"), world.topic(f"whole-{exactly_once}")
    bodies: list[bytes | None] = [b"flight", b"\x00\xff binary", b"", None]
    keys: list[bytes | None] = [b"UA1545", b"\xff\x00", b"", None]
    for key in keys:
        world.produce(topic, *bodies, key=key, headers=HEADERS)
    listener = Deliveries(fails_once)
    with world.consumer(group, topic, listener, exactly_once=exactly_once):
        world.until(lambda: len(listener.batches) == 32, "16 messages were delivered twice")
        world.until(lambda: world.committed(group, topic) == 16, "all are committed")
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
def test_after_its_last_retry_a_message_is_a_dead_letter_at_once(world: World) -> None:
    group, topic = world.name("dead"), world.topic("dead")
    world.produce(topic, b"flight", key=b"UA1545", headers=HEADERS)
    listener = Deliveries(fails)
    with world.consumer(group, topic, listener, max_reconsume_times=2):
        (letter,) = world.until(lambda: world.read(world.names.dead_letter(group)), "the dead letter")
    assert listener.seen == [(b"flight", 0), (b"flight", 1), (b"flight", 2)]
    assert [message.delay_time_level for message in listener.messages] == [0, 3, 4]
    assert (letter.key, letter.value, letter.headers[: len(HEADERS)]) == (b"UA1545", b"flight", HEADERS)
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
    lane = [one["RECONSUME_TIME"] for one in world.read(world.names.delay(0)) if one["REAL_TOPIC"] == f"%DLQ%{group}"]
    assert lane == ["3"], "no delay level comes before the dead-letter topic"


@pytest.mark.rule("BR-13", "CC-22", "SB-06", "T-07")
def test_a_wish_is_heard(world: World) -> None:
    group, topic = world.name("wish"), world.topic("wish")
    world.produce(topic, b"never", b"level 4", b"level 99")
    wishes = {b"never": -1, b"level 4": 4, b"level 99": 99}

    def wishing(messages: Sequence[Message], context: ConsumeConcurrentlyContext) -> ConsumeConcurrentlyStatus:
        if messages[0].is_retry:
            return SUCCESS
        context.delay_level_when_next_consume = wishes[messages[0].body or b""]
        return LATER

    listener = Deliveries(wishing)
    with world.consumer(group, topic, listener):
        world.until(lambda: len(listener.batches) == 5, "three deliveries and two retries")
        (letter,) = world.until(lambda: world.read(world.names.dead_letter(group)), "the dead letter")
    assert (letter.value, letter["RECONSUME_TIME"]) == (b"never", "1")
    assert letter["__dlq.errors.message"] == "asked for by the consumer"
    retries = [message for message in listener.messages if message.is_retry]
    assert {message.body: message.delay_time_level for message in retries} == {b"level 4": 4, b"level 99": 4}


@pytest.mark.rule("CC-07", "CC-18", "T-13")
def test_of_a_batch_only_what_comes_after_the_ack_index_is_retried(world: World) -> None:
    group, topic = world.name("batch"), world.topic("batch")
    world.produce(topic, *(b"%d" % number for number in range(10)))
    failed: list[bytes | None] = []

    def half(messages: Sequence[Message], context: ConsumeConcurrentlyContext) -> ConsumeConcurrentlyStatus:
        if not messages[0].is_retry:
            context.ack_index = len(messages) // 2 - 1
            failed.extend(message.body for message in messages[len(messages) // 2 :])
        return SUCCESS

    listener = Deliveries(half)
    with world.consumer(group, topic, listener, consume_message_batch_max_size=4, consume_thread_nums=1):
        world.until(lambda: world.committed(group, topic) == 10, "all are done")
        world.until(lambda: len([m for m in listener.messages if m.is_retry]) == len(failed), "the retries")
    assert sorted(m.body or b"" for m in listener.messages if m.is_retry) == sorted(one or b"" for one in failed)
    assert max(len(batch) for batch in listener.batches) <= 4


@pytest.mark.rule("TF-03", "TF-04", "TF-07", "T-11")
def test_tags_filter_the_topic_and_never_a_retry(world: World) -> None:
    group, topic = world.name("tags"), world.topic("tags")
    world.produce(topic, b"late", headers=[("TAGS", b"late")])
    world.produce(topic, b"lost", headers=[("TAGS", b"lost")])
    world.produce(topic, b"no tag")
    first = Deliveries(lambda _messages, _context: LATER)
    with world.consumer(group, topic, first, tags="late"):
        world.until(lambda: world.committed(group, topic) == 3, "what is not wanted is committed too")
    assert first.seen[0] == (b"late", 0)
    assert {body for body, _ in first.seen} == {b"late"}
    second = Deliveries(lambda _messages, _context: SUCCESS)
    with world.consumer(group, topic, second, tags="lost"):
        world.until(lambda: second.batches, "the retry, though its tag is not subscribed to now")
    assert {body for body, _ in second.seen} == {b"late"}
    assert second.messages[0].is_retry


@pytest.mark.rule("CC-01", "CC-02")
def test_an_async_listener_fails_and_succeeds_as_a_plain_one_does(world: World) -> None:
    group, topic = world.name("async"), world.topic("async")
    world.produce(topic, b"raises", b"gives none", b"succeeds")
    seen: list[tuple[bytes | None, int]] = []

    async def listener(
        messages: Sequence[Message], _context: ConsumeConcurrentlyContext
    ) -> ConsumeConcurrentlyStatus | None:
        (message,) = messages
        seen.append((message.body, message.reconsume_times))
        if message.body == b"raises" and not message.is_retry:
            raise ValueError("no dep_time")
        return SUCCESS if message.is_retry or message.body == b"succeeds" else None

    with world.consumer(group, topic, listener):
        world.until(lambda: len(seen) == 5, "three deliveries and two retries")
        world.until(lambda: world.committed(group, topic) == 3, "all are committed")
    assert max(seen) == (b"succeeds", 0)
    assert {body for body, times in seen if times == 1} == {b"raises", b"gives none"}


@pytest.mark.parametrize("reset", ["earliest", "latest"])
def test_a_new_group_starts_where_it_is_told_and_goes_on_where_it_was(world: World, reset: str) -> None:
    group, topic = world.name(f"starts-{reset}"), world.topic(f"starts-{reset}")
    listener = Deliveries(lambda _messages, _context: SUCCESS)
    world.produce(topic, b"before")
    conf = {"auto.offset.reset": reset}
    with world.consumer(group, topic, listener, conf=conf):
        produced = 0

        def delivered() -> bool:
            nonlocal produced
            produced += 1
            world.produce(topic, b"%d" % produced)
            return any(body != b"before" for body, _ in listener.seen)

        world.until(delivered, "what is produced while it consumes")
        world.until(lambda: world.committed(group, topic) == 1 + produced, "all are committed")
    assert (listener.seen[0] == (b"before", 0)) == (reset == "earliest")
    world.produce(topic, b"meanwhile")
    again = Deliveries(lambda _messages, _context: SUCCESS)
    with world.consumer(group, topic, again, conf=conf):
        world.until(lambda: again.batches, "what came while it was away")
    assert again.seen == [(b"meanwhile", 0)]


def test_two_consumers_of_a_group_share_its_partitions_and_one_takes_over(world: World) -> None:
    group, topic = world.name("shared"), world.topic("shared", 2)
    first, second = (Deliveries(lambda _messages, _context: SUCCESS) for _ in range(2))
    one, other = world.consumer(group, topic, first), world.consumer(group, topic, second)

    def produce_until(condition: Callable[[], object]) -> None:
        def holds() -> object:
            for number in range(5):
                world.produce(topic, b"x", key=b"%d" % number)
            return condition()

        world.until(holds, "both have consumed")

    with one:
        with other:
            produce_until(lambda: first.batches and second.batches)
        end = len(first.batches)
        produce_until(lambda: {message.kafka.partition for message in first.messages[end:]} == {0, 1})
        ends = {0: 0, 1: 0}
        for message in (*first.messages, *second.messages):
            ends[message.kafka.partition] = max(ends[message.kafka.partition], message.kafka.offset + 1)
        world.until(lambda: all((world.committed(group, topic, n) or 0) >= e for n, e in ends.items()), "committed")


def test_a_plain_client_sends_back_through_the_inbox(world: World) -> None:
    group, topic = world.name("plain"), world.topic("plain")
    listener = Deliveries(lambda _messages, _context: SUCCESS)
    headers = [("REAL_TOPIC", f"%RETRY%{group}".encode()), ("RETRY_TOPIC", topic.encode()), ("DELAY", b"1")]
    with world.consumer(group, topic, listener):
        world.produce(world.names.send_back, b"by hand", key=b"k", headers=headers)
        world.until(lambda: listener.batches, "the retry")
    assert [(m.topic, m.key, m.body, m.reconsume_times) for m in listener.messages] == [(topic, b"k", b"by hand", 1)]


@pytest.mark.parametrize("exactly_once", [False, True])
def test_a_table_of_its_own_holds_though_nobody_has_made_its_delay_topics(world: World, *, exactly_once: bool) -> None:
    delay_ms = 3_000 if exactly_once else 4_000
    group, topic = world.name(f"own-table-{delay_ms}"), world.topic(f"own-table-{delay_ms}")
    world.produce(topic, b"flight")
    listener = Deliveries(lambda messages, _context: SUCCESS if messages[0].is_retry else LATER)
    own = f"1s 1s {delay_ms // 1_000}s"
    with world.consumer(group, topic, listener, delay_levels=own, exactly_once=exactly_once):
        world.until(lambda: len(listener.batches) == 2, "the retry")
    assert [one.value for one in world.read(world.names.delay(delay_ms))] == [b"flight"], "not through the inbox"


@pytest.mark.parametrize("exactly_once", [False, True])
@pytest.mark.parametrize("kind", ["plain", "async", "fails"])
def test_the_outcome_of_a_listener_that_shuts_its_consumer_down_counts(
    world: World, kind: str, *, exactly_once: bool
) -> None:
    group, topic = world.name(f"last-{kind}-{exactly_once}"), world.topic(f"last-{kind}-{exactly_once}")

    def on_messages(messages: Sequence[Message], _context: ConsumeConcurrentlyContext) -> ConsumeConcurrentlyStatus:
        if messages[0].body == b"last":
            consumer.shutdown()
            if kind == "fails":
                raise ValueError("no dep_time")
        return SUCCESS

    async def on_messages_async(messages: Sequence[Message], context: ConsumeConcurrentlyContext) -> object:
        return on_messages(messages, context)

    listener = on_messages_async if kind == "async" else on_messages
    consumer = world.consumer(group, topic, listener, consume_thread_nums=1, exactly_once=exactly_once)
    world.produce(topic, b"first", b"last")
    consumer.start()
    world.until(lambda: not consumer.running, "the consumer has ended")
    assert world.committed(group, topic) == 2
    world.produce(topic, b"later")
    expected = [(b"later", 0)] + ([(b"last", 1)] if kind == "fails" else [])
    rest = Deliveries(lambda _messages, _context: SUCCESS)
    with world.consumer(group, topic, rest):
        world.until(lambda: len(rest.seen) >= len(expected), "the rest")
    assert sorted(rest.seen) == sorted(expected)


def test_starting_twice_is_refused(world: World) -> None:
    consumer = world.consumer(world.name("twice"), world.topic("twice"), Deliveries(fails_once))
    with consumer:
        assert consumer.running
        with pytest.raises(IllegalSetting, match="start: this consumer was started before; make a new one"):
            consumer.start()
    assert not consumer.running
