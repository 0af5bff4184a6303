"""Common parts of concurrent and orderly consumption: listener, pool, and the way back of failed messages."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Generic, TypeVar

from reconsume.bridge.process.brokers_clock import monotonic_ms
from reconsume.bridge.process.clock import Clock
from reconsume.consumers.listeners.dead_letter_on import ExceptionClasses
from reconsume.consumers.listeners.listener_pool import ListenerPool
from reconsume.consumers.message import Message
from reconsume.consumers.partitions.process_queue import ProcessQueue
from reconsume.consumers.sending.senders import Sender

T = TypeVar("T")

REFUSED_MS: Final = 5_000
"""The wait after a refused send-back, whatever the listener and the level (RocketMQ: CC-12, SB-11)."""


@dataclass(kw_only=True, eq=False)
class ListenerService(ABC, Generic[T]):
    """Calls a listener for polled messages, concurrently or in order. Safe to use from several threads.

    Attributes:
        listener: the user's function.
        sender: sends failed messages back, and calls the hooks.
        max_reconsume_times: the consumer's own maximum; None uses the group's. For orderly consumption: how often a
            message is tried in its place; None for no limit (RocketMQ: OR-03).
        batch_size: messages in one call.
        dead_letter_on: exceptions that go to the dead-letter topic without a retry.
        clock: returns milliseconds, for durations alone; the system clock may be set.
        pool: calls `consume_all` or `consume_async`; set by the maker of the service.
    """

    listener: Any
    sender: Sender
    max_reconsume_times: int | None = None
    batch_size: int = 1
    dead_letter_on: ExceptionClasses = ()
    clock: Clock = monotonic_ms
    pool: ListenerPool[T] = field(init=False)

    @abstractmethod
    def accept(self, queue: ProcessQueue, messages: Sequence[Message]) -> None:
        """Hand out started messages of a partition in the order of their offsets."""

    def consume_all(self, works: Iterator[T]) -> None:
        """Call a function listener for each."""
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
        """Call the listener again for messages that are due."""

    def idle(self) -> None:
        """Note that the consumer has no partitions; called at every turn of the polling thread while this is so."""

    def end(self) -> None:
        """Note that the consumer ends."""

    def waits_for_commit(self, queue: ProcessQueue) -> bool:
        """Return whether all unfinished messages of the partition wait for the listener to commit them."""
        del queue
        return False

    @abstractmethod
    def next_due_ms(self) -> float | None:
        """Return the earliest moment at which `tick` has something to do; None if nothing waits."""

    @abstractmethod
    def expire(self, queue: ProcessQueue, timeout_ms: float) -> None:
        """Handle listeners that have run for longer than the timeout."""

    @abstractmethod
    def is_suspended(self, queue: ProcessQueue) -> bool:
        """Return whether reading this partition must wait."""

    @abstractmethod
    def leave(self, queues: Iterable[ProcessQueue], seconds_left: Callable[[], float]) -> bool:
        """Wait until no listener works on these dropped partitions, where that matters; False if one still does.

        Args:
            queues: the partitions.
            seconds_left: returns the rest of the time; it is asked again, because a stop shortens it.
        """
