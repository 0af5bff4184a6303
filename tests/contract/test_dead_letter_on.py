"""Failures that are not worth a retry, in memory and on a real Kafka."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

import pytest
from confluent_kafka import Message as KafkaMessage

from reconsume.consumers import ConsumeConcurrentlyStatus, ConsumeOrderlyStatus, Message, MessageModel, PushConsumer
from reconsume.delay_levels.errors import IllegalSetting
from tests.contract.worlds import World
from tests.integration.installation import SUCCESS, Deliveries, Record


class NoDepartureTime(ValueError):
    """What a flight without its time raises."""


def one_dead(world: World, group: str) -> Record:
    (letter,) = world.until(lambda: world.read(world.names.dead_letter(group)), "the dead letter")
    return letter


def shows(letter: Record, message: str, kind: str) -> None:
    told = (letter["__dlq.errors.message"], letter["__dlq.errors.exception.class"])
    assert told == (message, f"{NoDepartureTime.__module__}.{kind}" if kind[0] == "N" else f"builtins.{kind}")
    assert "NoDepartureTime: no dep_time" in (letter["__dlq.errors.stacktrace"] or "")


@pytest.mark.parametrize("exactly_once", [False, True])
def test_it_is_a_dead_letter_at_once_and_others_are_retried(world: World, exactly_once: bool) -> None:
    group, topic = world.name(f"hopeless-{exactly_once}"), world.topic(f"hopeless-{exactly_once}")
    world.produce(topic, b"no time", b"refused")

    def listener(messages: Sequence[Message], _context: Any) -> ConsumeConcurrentlyStatus:
        if messages[0].body == b"no time":
            raise NoDepartureTime("no dep_time")
        if messages[0].reconsume_times == 0:
            raise ConnectionError("refused")
        return SUCCESS

    calls = Deliveries(listener)
    with world.consumer(group, topic, calls, dead_letter_on=(ValueError,), exactly_once=exactly_once):
        letter = one_dead(world, group)
        world.until(lambda: (b"refused", 1) in calls.seen, "the other one has come again")
        world.until(lambda: world.committed(group, topic) == 2, "both are committed")
    assert sorted(calls.seen) == [(b"no time", 0), (b"refused", 0), (b"refused", 1)]
    assert (letter.value, letter["RECONSUME_TIME"]) == (b"no time", "1")
    shows(letter, "no dep_time", "NoDepartureTime")


def test_what_it_was_raised_from_counts_in_an_async_listener(world: World) -> None:
    group, topic = world.name("hopeless-from"), world.topic("hopeless-from")
    world.produce(topic, b"no time")

    async def listener(_messages: Sequence[Message], _context: Any) -> ConsumeConcurrentlyStatus:
        try:
            raise NoDepartureTime("no dep_time")
        except ValueError as error:
            raise RuntimeError("cannot read the flight") from error

    with world.consumer(group, topic, listener, dead_letter_on=[NoDepartureTime]):
        shows(one_dead(world, group), "cannot read the flight", "RuntimeError")


def test_of_a_batch_the_others_succeed(world: World) -> None:
    group, topic = world.name("hopeless-batch"), world.topic("hopeless-batch")
    world.produce(topic, b"a", b"no time", b"b", b"c")
    done: list[bytes | None] = []

    def listener(messages: Sequence[Message], _context: Any) -> ConsumeConcurrentlyStatus:
        if b"no time" in [one.body for one in messages]:
            raise NoDepartureTime("no dep_time")
        done.extend(one.body for one in messages)
        return SUCCESS

    more: dict[str, Any] = {"dead_letter_on": (ValueError,), "consume_message_batch_max_size": 8}
    with world.consumer(group, topic, listener, **more):
        assert one_dead(world, group).value == b"no time"
        world.until(lambda: world.committed(group, topic) == 4, "all are committed")
    assert sorted(map(str, done)) == ["b'a'", "b'b'", "b'c'"]
    assert len(world.read(world.names.dead_letter(group))) == 1


def test_in_order_those_behind_it_go_on(world: World) -> None:
    group, topic = world.name("hopeless-in-order"), world.topic("hopeless-in-order")
    world.produce(topic, b"a", b"no time", b"b", key=b"k")
    done: list[bytes | None] = []

    def listener(messages: Sequence[Message], _context: Any) -> ConsumeOrderlyStatus:
        if b"no time" in [one.body for one in messages]:
            raise NoDepartureTime("no dep_time")
        done.extend(one.body for one in messages)
        return ConsumeOrderlyStatus.SUCCESS

    more: dict[str, Any] = {"dead_letter_on": (ValueError,), "consume_message_batch_max_size": 3}
    with world.consumer(group, topic, listener, orderly=True, **more):
        assert one_dead(world, group).value == b"no time"
        world.until(lambda: world.committed(group, topic) == 3, "all are committed")
    assert done == [b"a", b"b"]


@pytest.mark.parametrize("exactly_once", [False, True])
def test_the_drop_in_looks_at_the_cause(world: World, exactly_once: bool) -> None:
    group, topic = world.name(f"hopeless-by-hand-{exactly_once}"), world.topic(f"hopeless-by-hand-{exactly_once}")
    conf = {"enable.auto.commit": False}
    world.produce(topic, b"no time", b"wished for", b"refused")
    with world.drop_in(group, conf, dead_letter_on=(ValueError,), exactly_once=exactly_once) as consumer:
        consumer.subscribe([topic])

        def polled() -> KafkaMessage:
            message: Any = world.until(lambda: consumer.poll(0.1), "a message")
            assert message.error() is None
            return cast("KafkaMessage", message)

        try:
            raise NoDepartureTime("no dep_time")
        except ValueError as error:
            consumer.send_message_back(polled(), cause=error)
            consumer.send_message_back(polled(), 1, cause=error)
        consumer.send_message_back(polled(), cause=ConnectionError("refused"))
        letter = one_dead(world, group)
        assert {polled().value(), polled().value()} == {b"wished for", b"refused"}
    assert letter.value == b"no time"
    shows(letter, "no dep_time", "NoDepartureTime")
    assert len(world.read(world.names.dead_letter(group))) == 1


def test_a_broadcasting_consumer_has_no_dead_letters() -> None:
    with pytest.raises(IllegalSetting, match="dead_letter_on needs CLUSTERING"):
        PushConsumer("departures", message_model=MessageModel.BROADCASTING, dead_letter_on=(ValueError,))


def test_what_is_no_collection_of_exception_classes_is_refused() -> None:
    with pytest.raises(IllegalSetting, match="dead_letter_on must hold exception classes"):
        PushConsumer("departures", dead_letter_on=("ValueError",))  # type: ignore[arg-type]
