"""What mypy makes of programs of users: a change of a public overload or result is an error here. Never run."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from datetime import timedelta
from typing import assert_type

import confluent_kafka

from reconsume.consumers import (
    AIOConsumer,
    ConsumeConcurrentlyContext,
    ConsumeConcurrentlyStatus,
    ConsumeOrderlyContext,
    ConsumeOrderlyStatus,
    Consumer,
    DelayProducer,
    Message,
    PushConsumer,
    SendResult,
    origin,
    reconsume_times,
)
from reconsume.testing import Call, InMemoryKafka, Record

push = PushConsumer("departures", bootstrap_servers="localhost:9092")


@push.listener
def concurrent(_messages: Sequence[Message], _context: ConsumeConcurrentlyContext) -> ConsumeConcurrentlyStatus:
    return ConsumeConcurrentlyStatus.CONSUME_SUCCESS


@push.listener(orderly=True, per_key=True)
async def in_order(_messages: Sequence[Message], _context: ConsumeOrderlyContext) -> ConsumeOrderlyStatus:
    return ConsumeOrderlyStatus.SUCCESS


def without_status(_messages: Sequence[Message], _context: ConsumeConcurrentlyContext) -> None: ...


as_before: Callable[[Sequence[Message], ConsumeConcurrentlyContext], ConsumeConcurrentlyStatus] = concurrent
assert_type(push.subscribe("flights").register_message_listener(without_status), PushConsumer)
push.register_message_listener(without_status, orderly=True)  # type: ignore[call-overload]  # its context is another
push.register_message_listener(concurrent, per_key=True)  # type: ignore[call-overload]  # an order needs orderly=True
assert_type(push.running, bool)
with push as entered:
    assert_type(entered, PushConsumer)

drop_in = Consumer({"group.id": "departures"}, exactly_once=True)
polled = drop_in.poll(1.0)
assert_type(polled, confluent_kafka.Message | None)
if polled is not None:
    drop_in.send_message_back(polled, cause=ValueError("no such airport"))
    drop_in.send_message_back([polled], ack_index=-1)
    assert_type(reconsume_times(polled), int)
    assert_type(origin(polled).offset, int)
drop_in.send_message_back(confluent_kafka.TopicPartition("flights", 0, 42), 3)

asynchronous = AIOConsumer({"group.id": "departures"})
answer: Awaitable[None] = asynchronous.send_message_back(confluent_kafka.TopicPartition("flights", 0, 42))

with DelayProducer() as delayed:
    assert_type(delayed.send("flights", b"{}", delay=timedelta(hours=1)), SendResult)
    delayed.send("flights", "{}")  # type: ignore[arg-type]  # a body is bytes

kafka = InMemoryKafka()
assert_type(kafka.advance(timedelta(seconds=10)), list[Call])
assert_type(kafka.dead_letters("departures"), list[Record])
