"""What the poll loop asks of a way to consume, concurrently or in order."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Protocol

from reconsume.consumers.message import Message
from reconsume.consumers.partitions.process_queue import ProcessQueue

__all__ = ["ListenerService"]


class ListenerService(Protocol):
    """Calls listeners for messages that the loop has read, in a pool of its own."""

    def accept(self, queue: ProcessQueue, messages: Sequence[Message]) -> None:
        """Hand out messages of one partition that were begun, in the order of their offsets."""

    def tick(self) -> None:
        """Give again what is due for another try."""

    def expire(self, queue: ProcessQueue, timeout_ms: float) -> None:
        """Deal with listeners that have run for longer than this."""

    def next_due_ms(self) -> float | None:
        """The earliest moment at which `tick` has something to do; None if nothing waits."""

    def is_suspended(self, queue: ProcessQueue) -> bool:
        """Whether nothing of this partition should be read for now."""

    def leave(self, queues: Iterable[ProcessQueue], seconds: float) -> bool:
        """These were dropped: wait until nobody works on them where that matters; False if somebody still does."""

    def stop(self) -> None:
        """Start no more listeners."""

    def is_working(self) -> bool:
        """Whether listeners still run, after `stop`."""

    def close(self, seconds: float) -> bool:
        """Start no more listeners and wait for the running ones; False if some still run."""
