"""Partitions whose listener said "not now": their messages wait here until one of them gets through."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field

from reconsume.bridge.process.clock import Clock
from reconsume.consumers.listeners.listener_pool import Chunk
from reconsume.consumers.message import Message
from reconsume.consumers.partitions.process_queue import ProcessQueue

__all__ = ["HeldQueues"]


@dataclass(slots=True)
class _Held:
    """What waits of one partition.

    Attributes:
        due_ms: when one of it is tried.
        tried: the one that the listener has now, None if it has none.
    """

    due_ms: float
    chunks: deque[Chunk] = field(default_factory=deque)
    tried: Chunk | None = None


class HeldQueues:
    """Safe to use from several threads.

    Guarantees:
        1. What is held was read and is not started: no timeout runs for it, no attempt is spent, its offset is not
           committed. So whoever loses the partition or stops loses no message.
        2. While a partition is held, one batch of it at a time is tried; when that one has an outcome, all go on.

    Args:
        clock: gives milliseconds.

    Attributes:
        held: what waits, by partition; nothing has to be asked while it is empty.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self.held: dict[ProcessQueue, _Held] = {}
        self._free: list[Chunk] = []

    def keeps(self, chunk: Chunk) -> bool:
        """Whether this one, which is about to be begun, has to wait too."""
        if not self.held:
            return False
        with self._lock:
            held = self.held.get(chunk.queue)
            if held is None or held.tried is chunk:
                return False
            held.chunks.append(chunk)
            return True

    def hold(self, begun: Chunk, left: tuple[Message, ...], until_ms: float) -> None:
        """The listener said "not now" to what is left of this one."""
        with self._lock:
            held = self.held.get(begun.queue)
            if held is None:
                held = self.held[begun.queue] = _Held(until_ms)
            held.due_ms = max(held.due_ms, until_ms)
            if held.tried is begun:
                held.tried = None
            held.chunks.appendleft(Chunk(begun.queue, left))

    def settled(self, chunk: Chunk) -> None:
        """This one has an outcome, or is not begun after all."""
        if not self.held:
            return
        with self._lock:
            held = self.held.get(chunk.queue)
            if held is not None and held.tried is chunk:
                self._free += held.chunks
                del self.held[chunk.queue]

    def due(self) -> list[Chunk]:
        """What the listener is to be called for now."""
        if not self.held and not self._free:
            return []
        with self._lock:
            now, due, self._free = self._clock(), self._free, []
            for held in self.held.values():
                if held.tried is None and held.due_ms <= now:
                    held.tried = held.chunks.popleft()
                    due.append(held.tried)
            return due

    def next_due_ms(self) -> float | None:
        """The earliest moment at which one is tried; None if none waits for that."""
        with self._lock:
            return min((held.due_ms for held in self.held.values() if held.tried is None), default=None)

    def holds(self, queue: ProcessQueue) -> bool:
        """Whether reading this partition must wait."""
        return queue in self.held

    def forget(self, queues: Iterable[ProcessQueue]) -> None:
        """These were dropped: their next owner reads the messages again."""
        gone = set(queues)
        with self._lock:
            for queue in gone & self.held.keys():
                del self.held[queue]
            self._free = [chunk for chunk in self._free if chunk.queue not in gone]
