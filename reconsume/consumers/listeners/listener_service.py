"""The common parts of both ways to consume: the listener, its pool of threads, the way back of failed messages."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

from reconsume.bridge.process.clock import Clock, now_ms
from reconsume.consumers.listeners.dead_letter_on import ExceptionClasses
from reconsume.consumers.listeners.listener_pool import ListenerPool
from reconsume.consumers.message import Message
from reconsume.consumers.partitions.process_queue import ProcessQueue
from reconsume.consumers.sending.senders import Sender

T = TypeVar("T")


@dataclass(kw_only=True, eq=False)
class ListenerService(ABC, Generic[T]):
    """Calls a listener for messages that the loop has read, concurrently or in order. Safe to use from several threads.

    Attributes:
        listener: the user's function.
        sender: sends failed messages back, and has the hooks.
        max_reconsume_times: the consumer's own maximum, None to take the group's; in order, how often a message may
            fail in its place, None forever (RocketMQ: OR-03).
        batch_size: messages in one call.
        dead_letter_on: exceptions that are not worth a retry.
        clock: gives milliseconds.
        pool: calls `consume_all` or `consume_async`; set by the maker of the service.
    """

    listener: Any
    sender: Sender
    max_reconsume_times: int | None = None
    batch_size: int = 1
    dead_letter_on: ExceptionClasses = ()
    clock: Clock = now_ms
    pool: ListenerPool[T] = field(init=False)

    @abstractmethod
    def accept(self, queue: ProcessQueue, messages: Sequence[Message]) -> None:
        """Hand out messages of a partition that were begun, in the order of their offsets."""

    def consume_all(self, works: Iterator[T]) -> None:
        """Call a plain listener for each."""
        for work in works:
            self.consume(work)

    @abstractmethod
    def consume(self, work: T) -> None:
        """Call a plain listener."""

    @abstractmethod
    async def consume_async(self, work: T) -> None:
        """Call an `async def` listener."""

    @abstractmethod
    def tick(self) -> None:
        """Give again what is due for another try."""

    @abstractmethod
    def next_due_ms(self) -> float | None:
        """The earliest moment at which `tick` has something to do; None if nothing waits."""

    @abstractmethod
    def expire(self, queue: ProcessQueue, timeout_ms: float) -> None:
        """Deal with listeners that have run for longer than this."""

    @abstractmethod
    def is_suspended(self, queue: ProcessQueue) -> bool:
        """Whether nothing of this partition should be read for now."""

    @abstractmethod
    def leave(self, queues: Iterable[ProcessQueue], seconds: float) -> bool:
        """These were dropped: wait until nobody works on them where that matters; False if someone still does."""
