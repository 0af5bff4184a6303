"""What is around the steps: threads, other Kafkas, listeners without end."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any

import pytest
from confluent_kafka import Message as KafkaMessage

from reconsume.consumers import (
    ConsumeConcurrentlyContext,
    ConsumeConcurrentlyStatus,
    ConsumeMessageContext,
    ConsumeMessageHook,
    Consumer,
    DelayProducer,
    Message,
    PushConsumer,
)
from reconsume.delay_levels.errors import IllegalSetting
from reconsume.testing import InMemoryKafka
from tests.support.waiting import PATIENCE, wait_until

LATER = ConsumeConcurrentlyStatus.RECONSUME_LATER
SUCCESS = ConsumeConcurrentlyStatus.CONSUME_SUCCESS
Listener = Callable[[Sequence[Message], ConsumeConcurrentlyContext], ConsumeConcurrentlyStatus]


def started(kafka: InMemoryKafka, group: str, listener: Listener, **more: Any) -> PushConsumer:
    consumer = PushConsumer(group, bootstrap_servers=kafka.bootstrap_servers, **more)
    consumer.subscribe("flights").register_message_listener(listener)
    consumer.start()
    return consumer


@pytest.mark.parametrize("exactly_once", [False, True])
def test_no_thread_is_left_whoever_shuts_down(exactly_once: bool) -> None:
    before = set(threading.enumerate())

    async def succeed(_messages: Sequence[Message], _context: ConsumeConcurrentlyContext) -> ConsumeConcurrentlyStatus:
        return SUCCESS

    with InMemoryKafka(allowed_real_topics=["reminders"]) as kafka:
        kafka.create_topic("reminders")
        consumer = started(kafka, "left-running", lambda _messages, _context: LATER, exactly_once=exactly_once)
        other = PushConsumer("async", bootstrap_servers=kafka.bootstrap_servers)
        other.subscribe("flights").register_message_listener(succeed)
        other.start()
        with (
            Consumer({"bootstrap.servers": kafka.bootstrap_servers, "group.id": "own-loop"}) as drop_in,
            DelayProducer(bootstrap_servers=kafka.bootstrap_servers) as producer,
        ):
            drop_in.subscribe(["flights"])
            producer.send("reminders", b"soon", delay_level=1)
            kafka.produce("flights", "UA1545")
            kafka.settle()
            message = drop_in.poll()
            assert message is not None
            drop_in.send_message_back(message)
        assert consumer.running
        assert set(threading.enumerate()) - before
    assert not consumer.running
    wait_until(lambda: set(threading.enumerate()) <= before, "all threads have ended")


def test_two_kafkas_have_nothing_in_common() -> None:
    with InMemoryKafka() as one, InMemoryKafka() as other:
        started(one, "departures", lambda _messages, _context: LATER)
        started(other, "departures", lambda _messages, _context: SUCCESS)
        one.produce("flights", "UA1545")
        other.advance(timedelta(hours=1))
        assert (len(one.settle()), other.calls()) == (1, [])
        assert other.now - one.now == timedelta(hours=1)
        assert (len(one.waiting()), other.waiting()) == (1, [])


def test_a_listener_that_makes_itself_work_without_end_is_told_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("reconsume.testing.steps._MOST_TURNS", 50)
    with InMemoryKafka() as kafka:

        def again(messages: Sequence[Message], _context: ConsumeConcurrentlyContext) -> ConsumeConcurrentlyStatus:
            kafka.produce("flights", messages[0].body)
            return SUCCESS

        started(kafka, "endless", again)
        kafka.produce("flights", "UA1545")
        with pytest.raises(IllegalSetting, match="still had work after 50 turns"):
            kafka.settle()


class Ending(ConsumeMessageHook):
    """Shuts a consumer down after the listener got the message `1`."""

    def __init__(self, consumer: PushConsumer) -> None:
        self._consumer = consumer

    def consume_message_after(self, context: ConsumeMessageContext) -> None:
        if context.messages[0].body == b"1":
            self._consumer.shutdown()


@pytest.mark.parametrize("is_in_hook", [False, True], ids=["listener", "hook"])
def test_no_listener_is_called_after_its_consumer_was_shut_down_in_a_call(*, is_in_hook: bool) -> None:
    with InMemoryKafka() as kafka:
        consumer = PushConsumer("departures", bootstrap_servers=kafka.bootstrap_servers).subscribe("flights")

        @consumer.listener
        def end(messages: Sequence[Message], _context: ConsumeConcurrentlyContext) -> ConsumeConcurrentlyStatus:
            if messages[0].body == b"1" and not is_in_hook:
                consumer.shutdown()
                assert consumer.running, "the end waits for the listener"
            return SUCCESS

        if is_in_hook:
            consumer.register_consume_message_hook(Ending(consumer))
        consumer.start()
        for number in range(3):
            kafka.produce("flights", str(number))
        assert [call.message.body for call in kafka.settle()] == [b"0", b"1"]
        assert not consumer.running
        assert kafka.committed("departures", "flights") == 2
        consumer.shutdown()


@pytest.mark.parametrize("is_first", [False, True])
def test_a_listener_may_shut_another_consumer_down(*, is_first: bool) -> None:
    with InMemoryKafka() as kafka:
        consumers: list[PushConsumer] = []

        def end_other(_messages: object, _context: object) -> ConsumeConcurrentlyStatus:
            consumers[is_first].shutdown()
            return SUCCESS

        for group in ("one", "other"):
            is_ending = (group == "one") is is_first
            consumers.append(started(kafka, group, end_other if is_ending else lambda _messages, _context: SUCCESS))
        kafka.produce("flights", "UA1545")
        kafka.settle()
        assert [consumer.running for consumer in consumers] == [is_first, not is_first]
        assert kafka.committed("one" if is_first else "other", "flights") == 1


@pytest.mark.parametrize("threshold", [10, 1_000])
def test_more_messages_than_a_turn_reads_are_settled_all(threshold: int) -> None:
    with InMemoryKafka() as kafka:
        consumer = started(kafka, "many", lambda _messages, _context: SUCCESS, pull_threshold_for_queue=threshold)
        for number in range(1_200):
            kafka.produce("flights", str(number))
        calls = kafka.settle()
        assert [call.message.body for call in calls] == [b"%d" % number for number in range(1_200)]
        consumer.shutdown()
        assert kafka.committed("many", "flights") == 1_200


def test_a_poll_loop_in_a_thread_of_its_own_gets_its_messages() -> None:
    found: list[KafkaMessage] = []
    stop = threading.Event()
    with InMemoryKafka() as kafka:
        consumer = Consumer({"bootstrap.servers": kafka.bootstrap_servers, "group.id": "own-thread"})
        consumer.subscribe(["flights"])

        def loop() -> None:
            while not stop.is_set():
                if (message := consumer.poll(1.0)) is not None:
                    found.append(message)
            consumer.close()

        thread = threading.Thread(target=loop)
        thread.start()
        kafka.produce("flights", "UA1545")
        wait_until(lambda: found, "the message")
        stop.set()
        thread.join(PATIENCE)
        assert not thread.is_alive()
        assert kafka.committed("own-thread", "flights") == 1
