"""A service with hooks, on doubles."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from reconsume.bridge.groups.groups import Groups
from reconsume.consumers import (
    ConsumeConcurrentlyContext,
    ConsumeConcurrentlyStatus,
    ConsumeMessageContext,
    ConsumeMessageHook,
    ConsumeOrderlyContext,
    ConsumeOrderlyStatus,
    Message,
    SendMessageBackContext,
)
from reconsume.consumers.listener import Listener, OrderlyListener
from reconsume.consumers.listeners.concurrently import ConcurrentlyService
from reconsume.consumers.listeners.orderly import Lane, OrderlyService
from reconsume.consumers.message import MessageQueue
from reconsume.consumers.observing.hooks import ConsumeHooks
from reconsume.consumers.partitions.process_queue import Chunk, ProcessQueue
from reconsume.delay_levels.wire.names import TopicNames
from reconsume.delay_levels.wire.properties import Header
from tests.unit.consumers.doubles import RETRY_TOPIC, Clock, RecordingWriter, RunsNothing, message_at, parts_of

__all__ = ["TIMEOUT_MS", "Pool", "Recording", "World", "answering", "chunk_with", "consumed_in_order", "retry_chunk"]

TIMEOUT_MS = 900_000.0


@dataclass
class Recording(ConsumeMessageHook):
    """Remembers what it was told; `order` is shared with others."""

    name: str = "hook"
    order: list[str] = field(default_factory=list)
    before: list[ConsumeMessageContext] = field(default_factory=list)
    after: list[ConsumeMessageContext] = field(default_factory=list)
    sent_back: list[SendMessageBackContext] = field(default_factory=list)

    def consume_message_before(self, context: ConsumeMessageContext) -> None:
        self.order.append(f"before {self.name}")
        self.before.append(context)

    def consume_message_after(self, context: ConsumeMessageContext) -> None:
        self.order.append(f"after {self.name}")
        self.after.append(context)

    def send_message_back_after(self, context: SendMessageBackContext) -> None:
        self.order.append(f"sent back {self.name}")
        self.sent_back.append(context)


@dataclass
class World:
    """A service with hooks, on doubles; `clock` counts for hooks and service alike."""

    hooks: Sequence[ConsumeMessageHook]
    clock: Clock = field(default_factory=Clock)
    writer: RecordingWriter = field(default_factory=RecordingWriter)
    groups: Groups = field(default_factory=Groups)

    def __post_init__(self) -> None:
        self.dispatcher = ConsumeHooks("departures", self.hooks, TIMEOUT_MS, self.clock)

    def concurrently(self, listener: Listener, maximum: int | None = None) -> ConcurrentlyService:
        return ConcurrentlyService(**self._parts(listener), max_reconsume_times=maximum)

    def orderly(self, listener: OrderlyListener, maximum: int | None = None) -> OrderlyService:
        return OrderlyService(**self._parts(listener), max_reconsume_times=maximum, batch_size=8)

    def _parts(self, listener: Any) -> dict[str, Any]:
        return parts_of(listener, self.writer, self.clock, self.dispatcher, lambda: self.groups)


def answering(status: Any, ack_index: int | None = None) -> Listener:
    def listener(_messages: Sequence[Message], context: ConsumeConcurrentlyContext) -> ConsumeConcurrentlyStatus | None:
        if ack_index is not None:
            context.ack_index = ack_index
        if isinstance(status, BaseException):
            raise status
        return status  # type: ignore[no-any-return]

    return listener


def retry_chunk(*headers: Header, times: int = 1, offset: int = 0) -> Chunk:
    """A message of the topic `flights` that was sent back so often."""
    past = [("RETRY_TOPIC", b"flights"), ("RECONSUME_TIME", b"%d" % times), ("DELAY", b"3"), *headers]
    return chunk_with(message_at(offset, topic=RETRY_TOPIC, headers=past))


def chunk_with(*messages: Message) -> Chunk:
    """Messages that were read from one partition, in one batch."""
    topic, partition = messages[0].kafka[:2]
    queue = ProcessQueue(topic, partition, MessageQueue(TopicNames().rocketmq_name(topic), partition))
    queue.begin(messages)
    return Chunk(queue, messages)


class Pool(RunsNothing):
    """Holds lanes until they are asked for."""

    def __init__(self) -> None:
        self.lanes: list[Lane] = []

    def submit(self, lane: Lane) -> None:
        self.lanes.append(lane)


def consumed_in_order(world: World, answer: object, *, auto_commit: bool = True, maximum: int | None = None) -> None:
    def listener(_messages: Sequence[Message], context: ConsumeOrderlyContext) -> ConsumeOrderlyStatus | None:
        context.auto_commit = auto_commit
        if isinstance(answer, BaseException):
            raise answer
        return answer  # type: ignore[return-value]

    service, pool, queue = world.orderly(listener, maximum), Pool(), ProcessQueue("flights", 0)
    service.pool = pool
    service.accept(queue, queue.begin([message_at(0), message_at(1)]))
    service.consume(pool.lanes.pop())
