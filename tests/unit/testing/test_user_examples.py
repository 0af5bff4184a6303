"""Unit tests as users would write them for their listeners."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from confluent_kafka import Producer

from reconsume.consumers import (
    AIOConsumer,
    CircuitBreaker,
    ConsumeConcurrentlyContext,
    ConsumeConcurrentlyStatus,
    ConsumeOrderlyContext,
    ConsumeOrderlyStatus,
    Consumer,
    DelayProducer,
    Message,
    PushConsumer,
    reconsume_times,
)
from reconsume.delay_levels.errors import IllegalSetting, KafkaRefused, TopicNotAllowed
from reconsume.testing import InMemoryKafka
from reconsume.testing.pytest_plugin import in_memory_kafka

__all__ = ["in_memory_kafka"]

SUCCESS, LATER = ConsumeConcurrentlyStatus.CONSUME_SUCCESS, ConsumeConcurrentlyStatus.RECONSUME_LATER
SUSPEND = ConsumeOrderlyStatus.SUSPEND_CURRENT_QUEUE_A_MOMENT
SECOND = timedelta(seconds=1)


class Departures:
    """The code under test: it fails while the gate is closed, and for ever without a number."""

    def __init__(self) -> None:
        self.gate_open = False
        self.boarded: list[str] = []

    def board(self, messages: Sequence[Message], context: ConsumeConcurrentlyContext) -> ConsumeConcurrentlyStatus:
        for index, message in enumerate(messages):
            if not message.body:
                raise ValueError("no flight number")
            if not self.gate_open:
                context.ack_index = index - 1
                break
            self.boarded.append(message.body.decode())
        return SUCCESS


@pytest.fixture
def departures() -> Departures:
    return Departures()


@pytest.fixture
def consumer(in_memory_kafka: InMemoryKafka, departures: Departures) -> PushConsumer:
    one = PushConsumer("departures", bootstrap_servers=in_memory_kafka.bootstrap_servers)
    one.subscribe("flights").register_message_listener(departures.board)
    one.start()
    return one


@pytest.mark.usefixtures("consumer")
def test_a_flight_boards_at_the_third_try(in_memory_kafka: InMemoryKafka, departures: Departures) -> None:
    kafka = in_memory_kafka
    kafka.produce("flights", "UA1545", key="EWR")
    kafka.advance(39 * SECOND)
    assert departures.boarded == []
    assert [one.level for one in kafka.waiting("departures")] == [4]
    departures.gate_open = True
    kafka.advance(SECOND)
    assert departures.boarded == ["UA1545"]
    tried = [(call.message.reconsume_times, call.at - kafka.now + 40 * SECOND) for call in kafka.calls("departures")]
    assert tried == [(0, 0 * SECOND), (1, 10 * SECOND), (2, 40 * SECOND)]
    assert (kafka.waiting(), kafka.dead_letters("departures")) == ([], [])


@pytest.mark.usefixtures("consumer")
def test_a_flight_without_a_number_is_dead_after_four_hours(in_memory_kafka: InMemoryKafka) -> None:
    kafka = in_memory_kafka
    kafka.produce("flights", None, key="EWR", headers={"trace": b"\xff"})
    calls = kafka.advance(timedelta(hours=24))
    assert [call.message.reconsume_times for call in calls] == list(range(17))
    assert calls[-1].at - calls[0].at == timedelta(hours=4, minutes=45, seconds=40)
    assert {str(call.error) for call in calls} == {"no flight number"}
    (letter,) = kafka.dead_letters("departures")
    assert (letter.key, letter.value, letter.user_headers) == (b"EWR", None, [("trace", b"\xff")])
    assert (letter["RETRY_TOPIC"], letter["__dlq.errors.message"]) == ("flights", "no flight number")
    assert letter.reconsume_times == 17


@pytest.mark.usefixtures("consumer")
def test_nothing_is_early(in_memory_kafka: InMemoryKafka) -> None:
    in_memory_kafka.produce("flights", "UA1545")
    assert len(in_memory_kafka.settle()) == 1
    assert in_memory_kafka.advance(timedelta(seconds=9, milliseconds=999)) == []
    assert len(in_memory_kafka.advance(timedelta(milliseconds=1))) == 1


def test_of_a_batch_the_front_is_acknowledged(in_memory_kafka: InMemoryKafka) -> None:
    kafka = in_memory_kafka
    consumer = PushConsumer(
        "halves", bootstrap_servers=kafka.bootstrap_servers, consume_message_batch_max_size=4
    ).subscribe("flights")

    @consumer.listener
    def half(messages: Sequence[Message], context: ConsumeConcurrentlyContext) -> ConsumeConcurrentlyStatus:
        context.ack_index = len(messages) // 2 - 1
        context.delay_level_when_next_consume = 1
        return SUCCESS

    with consumer:
        for number in range(4):
            kafka.produce("flights", str(number))
        calls = kafka.settle()
        assert [[message.body for message in call.messages] for call in calls] == [[b"0", b"1", b"2", b"3"]]
        assert [(one.record.value, one.level) for one in kafka.waiting()] == [(b"2", 1), (b"3", 1)]
        assert kafka.committed("halves", "flights") == 4


def test_a_wish_below_zero_is_a_dead_letter_at_once(in_memory_kafka: InMemoryKafka) -> None:
    consumer = PushConsumer("hopeless", bootstrap_servers=in_memory_kafka.bootstrap_servers).subscribe("flights")

    @consumer.listener
    def give_up(_messages: Sequence[Message], context: ConsumeConcurrentlyContext) -> ConsumeConcurrentlyStatus:
        context.delay_level_when_next_consume = -1
        return LATER

    with consumer:
        in_memory_kafka.produce("flights", "UA1545")
        in_memory_kafka.settle()
    assert [one.value for one in in_memory_kafka.dead_letters("hopeless")] == [b"UA1545"]


def test_tags_choose(in_memory_kafka: InMemoryKafka, departures: Departures) -> None:
    departures.gate_open = True
    consumer = PushConsumer("late", bootstrap_servers=in_memory_kafka.bootstrap_servers)
    consumer.subscribe("flights", "late || lost").register_message_listener(departures.board)
    with consumer:
        for tag in ("late", "early", "lost", None):
            in_memory_kafka.produce("flights", tag or "none", tags=tag)
        in_memory_kafka.settle()
    assert departures.boarded == ["late", "lost"]
    assert in_memory_kafka.committed("late", "flights") == 4


def test_an_async_listener(in_memory_kafka: InMemoryKafka) -> None:
    kafka = in_memory_kafka
    consumer = PushConsumer("async", bootstrap_servers=kafka.bootstrap_servers, max_reconsume_times=1)

    async def lookup(messages: Sequence[Message], _context: ConsumeConcurrentlyContext) -> ConsumeConcurrentlyStatus:
        await asyncio.sleep(0)
        raise LookupError(messages[0].keys)

    consumer.subscribe("flights").register_message_listener(lookup)
    with consumer:
        kafka.produce("flights", "UA1545", headers={"KEYS": "UA1545"})
        calls = kafka.advance(timedelta(minutes=1))
    assert [(type(call.error), str(call.error)) for call in calls] == [(LookupError, "UA1545")] * 2
    assert len(kafka.dead_letters("async")) == 1


def test_an_async_test_may_step_too(in_memory_kafka: InMemoryKafka) -> None:
    async def the_test() -> None:
        consumer = PushConsumer("in-a-loop", bootstrap_servers=in_memory_kafka.bootstrap_servers)

        async def succeed(_messages: Sequence[Message], _context: ConsumeConcurrentlyContext) -> Any:
            await asyncio.sleep(0)
            return SUCCESS

        with consumer.subscribe("flights").register_message_listener(succeed):
            in_memory_kafka.produce("flights", "UA1545")
            assert len(in_memory_kafka.settle()) == 1

    asyncio.run(the_test())


def test_messages_in_order_wait_for_the_one_that_fails(in_memory_kafka: InMemoryKafka) -> None:
    kafka = in_memory_kafka
    consumer = PushConsumer("in-order", bootstrap_servers=kafka.bootstrap_servers, max_reconsume_times=3)

    @consumer.listener(orderly=True)
    def in_order(messages: Sequence[Message], context: ConsumeOrderlyContext) -> ConsumeOrderlyStatus:
        context.suspend_current_queue_time_millis = 2_000
        return SUSPEND if messages[0].body == b"a" else ConsumeOrderlyStatus.SUCCESS

    with consumer.subscribe("flights"):
        kafka.produce("flights", "a")
        kafka.produce("flights", "b")
        assert [call.message.body for call in kafka.advance(5 * SECOND)] == [b"a", b"a", b"a"]
        assert [(call.message.body, call.result) for call in kafka.advance(SECOND)] == [
            (b"a", SUSPEND),
            (b"b", ConsumeOrderlyStatus.SUCCESS),
        ]
    assert [one.value for one in kafka.dead_letters("in-order")] == [b"a"]


def test_in_the_order_of_keys_only_the_key_waits(in_memory_kafka: InMemoryKafka) -> None:
    kafka = in_memory_kafka
    consumer = PushConsumer("keys", bootstrap_servers=kafka.bootstrap_servers)

    @consumer.listener(orderly=True, per_key=True)
    def in_order(messages: Sequence[Message], _context: ConsumeOrderlyContext) -> ConsumeOrderlyStatus:
        return SUSPEND if messages[0].key == b"EWR" else ConsumeOrderlyStatus.SUCCESS

    with consumer.subscribe("flights"):
        for key, value in (("EWR", "1"), ("JFK", "2"), ("EWR", "3"), ("JFK", "4")):
            kafka.produce("flights", value, key=key)
        assert [call.message.body for call in kafka.settle()] == [b"1", b"2", b"4"]
        assert [call.message.body for call in kafka.advance(3 * SECOND)] == [b"1"] * 3
        assert kafka.committed("keys", "flights") == 0


def test_after_a_restart_it_goes_on_where_it_was(in_memory_kafka: InMemoryKafka) -> None:
    kafka = in_memory_kafka
    seen: list[bytes | None] = []

    def see(messages: Sequence[Message], _context: ConsumeConcurrentlyContext) -> ConsumeConcurrentlyStatus:
        seen.extend(message.body for message in messages)
        return SUCCESS

    for body in ("a", "b"):
        consumer = PushConsumer("restarts", bootstrap_servers=kafka.bootstrap_servers)
        with consumer.subscribe("flights").register_message_listener(see):
            kafka.produce("flights", body)
            kafka.settle()
    assert seen == [b"a", b"b"]


def test_two_groups_fail_each_for_itself(in_memory_kafka: InMemoryKafka) -> None:
    kafka = in_memory_kafka

    def fail(_messages: Sequence[Message], _context: ConsumeConcurrentlyContext) -> None:
        return None

    for group in ("one", "other"):
        PushConsumer(group, bootstrap_servers=kafka.bootstrap_servers).subscribe("flights").register_message_listener(
            fail
        ).start()
    kafka.produce("flights", "UA1545")
    kafka.settle()
    assert [one.target for one in kafka.waiting()] == ["%RETRY%one", "%RETRY%other"]
    assert len(kafka.calls("one")) == len(kafka.calls("other")) == 1


def test_a_group_has_its_own_maximum_and_policy(in_memory_kafka: InMemoryKafka, departures: Departures) -> None:
    kafka = in_memory_kafka
    # RocketMQ begins with the third one.
    policy = {"type": "CUSTOMIZED", "customizedRetryPolicy": {"next": [1_000, 5_000, 7_000, 11_000]}}
    kafka.set_group("departures", retryMaxTimes=2, groupRetryPolicy=policy)
    consumer = PushConsumer("departures", bootstrap_servers=kafka.bootstrap_servers)
    with consumer.subscribe("flights").register_message_listener(departures.board):
        kafka.produce("flights", "UA1545")
        at = [call.at - kafka.now for call in kafka.advance(timedelta(minutes=1))]
    assert [one - at[0] for one in at] == [0 * SECOND, 7 * SECOND, 18 * SECOND]
    assert len(kafka.dead_letters("departures")) == 1


@pytest.mark.usefixtures("consumer")
def test_a_change_of_a_group_keeps_its_other_fields(in_memory_kafka: InMemoryKafka) -> None:
    in_memory_kafka.set_group("departures", retryMaxTimes=0)
    in_memory_kafka.set_group("departures", retryPaused=True)
    in_memory_kafka.set_group("departures", retryPaused=False)
    in_memory_kafka.produce("flights", "UA1545")
    assert len(in_memory_kafka.advance(timedelta(hours=5))) == 1
    assert len(in_memory_kafka.dead_letters("departures")) == 1


@pytest.mark.usefixtures("consumer")
def test_a_running_consumer_follows_its_group(in_memory_kafka: InMemoryKafka) -> None:
    in_memory_kafka.set_group("departures", retryMaxTimes=0)
    in_memory_kafka.produce("flights", "UA1545")
    assert len(in_memory_kafka.advance(timedelta(hours=5))) == 1
    assert len(in_memory_kafka.dead_letters("departures")) == 1


def test_a_group_that_may_not_consume(in_memory_kafka: InMemoryKafka, departures: Departures) -> None:
    in_memory_kafka.set_group("departures", consumeEnable=False)
    consumer = PushConsumer("departures", bootstrap_servers=in_memory_kafka.bootstrap_servers)
    consumer.subscribe("flights").register_message_listener(departures.board)
    with pytest.raises(KafkaRefused, match="consumeEnable"):
        consumer.start()


def test_a_level_table_of_ones_own(departures: Departures) -> None:
    with InMemoryKafka(message_delay_level="1s 2s 3s", topic_prefix="mine.") as kafka:
        consumer = PushConsumer("departures", bootstrap_servers=kafka.bootstrap_servers, topic_prefix="mine.")
        with consumer.subscribe("flights").register_message_listener(departures.board):
            kafka.produce("flights", "UA1545")
            kafka.advance(2_999 * timedelta(milliseconds=1))
            assert [one.record.topic for one in kafka.waiting()] == ["mine.DELAY.3s"]
            assert len(kafka.advance(timedelta(milliseconds=1))) == 1


def test_the_drop_in_consumer_with_its_own_loop(in_memory_kafka: InMemoryKafka) -> None:
    kafka = in_memory_kafka
    with Consumer({"bootstrap.servers": kafka.bootstrap_servers, "group.id": "own-loop"}) as consumer:
        consumer.subscribe(["flights"])
        kafka.produce("flights", "UA1545")
        message = consumer.poll(1.0)
        assert message is not None
        consumer.send_message_back(message, cause=ValueError("no gate"))
        assert consumer.poll(1.0) is None, "it waits"
        kafka.advance(10 * SECOND)
        again = consumer.poll(1.0)
        assert again is not None
        assert (again.topic(), again.value(), reconsume_times(again)) == ("flights", b"UA1545", 1)
    assert kafka.committed("own-loop", "reconsume.RETRY.own-loop") == 1


def test_the_asyncio_drop_in(in_memory_kafka: InMemoryKafka) -> None:
    async def the_test() -> list[bytes | None]:
        consumer = AIOConsumer({"bootstrap.servers": in_memory_kafka.bootstrap_servers, "group.id": "aio"})
        await consumer.subscribe(["flights"])
        in_memory_kafka.produce("flights", "UA1545")
        message = await consumer.poll(1.0)
        await consumer.send_message_back(message)
        in_memory_kafka.advance(10 * SECOND)
        again = await consumer.poll(1.0)
        await consumer.close()
        return [message.value(), again.value()]

    assert asyncio.run(the_test()) == [b"UA1545", b"UA1545"]


def test_a_delayed_message_arrives_at_its_moment() -> None:
    with InMemoryKafka(allowed_real_topics=["reminders"], start=datetime(2026, 3, 1, 12, tzinfo=UTC)) as kafka:
        kafka.create_topic("reminders")
        with DelayProducer(bootstrap_servers=kafka.bootstrap_servers) as producer:
            producer.send("reminders", b"tomorrow", deliver_at=datetime(2026, 3, 2, 12, 30, tzinfo=UTC))
            gone = producer.send("reminders", b"never", delay=timedelta(hours=3))
            producer.send("reminders", b"soon", delay_level=2)
            producer.cancel(gone.msg_id)
        kafka.advance(timedelta(hours=24, minutes=29, seconds=59))
        assert [one.value for one in kafka.records("reminders")] == [b"soon"]
        kafka.advance(SECOND)
        (soon, tomorrow) = kafka.records("reminders")
        assert soon.timestamp == datetime(2026, 3, 1, 12, 0, 5, tzinfo=UTC)
        assert tomorrow.timestamp == datetime(2026, 3, 2, 12, 30, tzinfo=UTC)


def test_a_target_that_production_would_refuse_is_refused(in_memory_kafka: InMemoryKafka) -> None:
    in_memory_kafka.create_topic("reminders")
    with (
        DelayProducer(bootstrap_servers=in_memory_kafka.bootstrap_servers) as producer,
        pytest.raises(TopicNotAllowed, match=r"allowed_real_topics does not allow .* it is empty; add the topic"),
    ):
        producer.send("reminders", b"soon", delay=SECOND)
    in_memory_kafka.settle()
    assert in_memory_kafka.quarantined() == []


def test_a_listener_that_produces(in_memory_kafka: InMemoryKafka) -> None:
    producer = in_memory_kafka.producer()
    assert isinstance(producer, Producer)
    reported: list[object] = []

    def pass_on(messages: Sequence[Message], _context: ConsumeConcurrentlyContext) -> ConsumeConcurrentlyStatus:
        producer.produce("boarded", messages[0].body, "EWR", on_delivery=lambda error, _: reported.append(error))
        producer.flush()
        return SUCCESS

    consumer = PushConsumer("passes-on", bootstrap_servers=in_memory_kafka.bootstrap_servers)
    with consumer.subscribe("flights").register_message_listener(pass_on):
        in_memory_kafka.produce("flights", "UA1545")
        in_memory_kafka.settle()
    assert [(one.key, one.value) for one in in_memory_kafka.records("boarded")] == [(b"EWR", b"UA1545")]
    assert reported == [None]


def test_exactly_once(in_memory_kafka: InMemoryKafka, departures: Departures) -> None:
    kafka = in_memory_kafka
    consumer = PushConsumer("once", bootstrap_servers=kafka.bootstrap_servers, exactly_once=True)
    with consumer.subscribe("flights").register_message_listener(departures.board):
        kafka.produce("flights", "UA1545")
        kafka.settle()
        assert kafka.committed("once", "flights") == 1
        departures.gate_open = True
        kafka.advance(10 * SECOND)
    assert departures.boarded == ["UA1545"]


def test_a_circuit_breaker_pauses_and_goes_on(in_memory_kafka: InMemoryKafka, departures: Departures) -> None:
    kafka = in_memory_kafka
    breaker = CircuitBreaker(minimum_calls=5, open_for=timedelta(minutes=5), open_for_at_most=timedelta(minutes=5))
    consumer = PushConsumer("pauses", bootstrap_servers=kafka.bootstrap_servers, circuit_breaker=breaker)
    with consumer.subscribe("flights").register_message_listener(departures.board):
        for number in range(20):
            kafka.produce("flights", str(number))
        assert len(kafka.settle()) == 5
        assert kafka.advance(timedelta(minutes=4)) == []
        departures.gate_open = True
        kafka.advance(timedelta(minutes=1))
        kafka.advance(timedelta(hours=1))
    assert sorted(map(int, departures.boarded)) == list(range(20))
    assert kafka.dead_letters("pauses") == []


def test_ctrl_c_in_a_listener_ends_the_test(in_memory_kafka: InMemoryKafka) -> None:
    consumer = PushConsumer("interrupted", bootstrap_servers=in_memory_kafka.bootstrap_servers).subscribe("flights")

    @consumer.listener
    def interrupted(_messages: Sequence[Message], _context: ConsumeConcurrentlyContext) -> None:
        raise KeyboardInterrupt

    with consumer:
        in_memory_kafka.produce("flights", "UA1545")
        with pytest.raises(KeyboardInterrupt):
            in_memory_kafka.settle()


def test_a_listener_may_not_turn_the_clock(in_memory_kafka: InMemoryKafka) -> None:
    consumer = PushConsumer("turns", bootstrap_servers=in_memory_kafka.bootstrap_servers).subscribe("flights")

    @consumer.listener
    def turns(_messages: Sequence[Message], _context: ConsumeConcurrentlyContext) -> None:
        in_memory_kafka.advance(SECOND)

    with consumer:
        in_memory_kafka.produce("flights", "UA1545")
        (call,) = in_memory_kafka.settle()
    assert isinstance(call.error, IllegalSetting)
