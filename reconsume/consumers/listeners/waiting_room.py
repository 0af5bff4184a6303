"""Where messages wait that were read and that no concurrent listener has."""

from __future__ import annotations

import threading
from bisect import bisect_right, insort
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field
from operator import itemgetter

from reconsume.bridge.process.clock import Clock
from reconsume.consumers.listeners.listener_pool import Chunk
from reconsume.consumers.message import Message
from reconsume.consumers.partitions.process_queue import ProcessQueue

__all__ = ["WaitingRoom"]

_DUE = itemgetter(0)


@dataclass(slots=True)
class _Held:
    """What waits of a partition whose listener said "not now".

    Attributes:
        due_ms: when one of it is tried.
        tried: the one that the listener has now, None if it has none.
    """

    due_ms: float
    chunks: deque[Chunk] = field(default_factory=deque)
    tried: Chunk | None = None


class WaitingRoom:
    """Safe to use from several threads. A circuit breaker's is a `CircuitGate`.

    A chunk enters before its listener is called, and has an outcome or is cancelled afterwards. It waits until a moment
    because its send-back failed, or with its whole partition because the listener said "not now".

    Guarantees:
        1. What waits was read and is not started: no timeout runs for it, no attempt is spent, its offset is not
           committed. So whoever loses the partition or stops loses no message.
        2. While a partition is held, one batch of it at a time is tried; when that one has an outcome, all go on.
    Test: tests/unit/consumers/listeners/test_not_now.py.

    Args:
        clock: gives milliseconds.

    Attributes:
        held: what is held, by partition; nothing has to be asked while it is empty.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._lock = threading.RLock()
        self._waiting: list[tuple[float, Chunk]] = []
        self.held: dict[ProcessQueue, _Held] = {}

    def enter(self, chunk: Chunk) -> bool:
        """Whether the listener may be called for this chunk; else it waits until `due` gives it."""
        if not self.held:
            return True
        with self._lock:
            held = self.held.get(chunk.queue)
            if held is None or held.tried is chunk:
                return True
            held.chunks.append(chunk)
            return False

    def cancel(self, chunk: Chunk) -> None:
        """The listener is not called for it after all, or what it said is no outcome."""
        self._let_go_on(chunk)

    def settle(self, chunk: Chunk, *, failed: bool) -> bool:
        """The listener has come back with an outcome; gives whether what failed is to be kept, not sent back."""
        del failed
        self._let_go_on(chunk)
        return False

    def keep(self, chunk: Chunk) -> None:
        """What is left of a chunk whose failures are to be kept."""
        self.wait((chunk,), 0)

    def wait(self, chunks: Iterable[Chunk], ms: float) -> None:
        """Keep these so long, in this order."""
        with self._lock:
            due_ms = self._clock() + ms
            for chunk in chunks:
                insort(self._waiting, (due_ms, chunk), key=_DUE)

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

    def timed_out(self, queue: ProcessQueue, message: Message) -> None:
        """The listener of this message ran for too long; its call goes on."""

    def due(self) -> list[Chunk]:
        """What the listener is to be called for now. Only the thread that polls calls it."""
        if not self.held and not self._waiting:
            return []
        with self._lock:
            now = self._clock()
            end = bisect_right(self._waiting, now, key=_DUE)
            due, self._waiting = [chunk for _, chunk in self._waiting[:end]], self._waiting[end:]
            for held in self.held.values():
                if held.tried is None and held.due_ms <= now:
                    held.tried = held.chunks.popleft()
                    due.append(held.tried)
            return due

    def next_due_ms(self) -> float | None:
        """The earliest moment at which `due` has something; None if nothing waits for that."""
        with self._lock:
            dues = [held.due_ms for held in self.held.values() if held.tried is None]
            return min([*map(_DUE, self._waiting[:1]), *dues], default=None)

    def is_shut(self, queue: ProcessQueue) -> bool:
        """Whether reading this partition must wait."""
        return queue in self.held

    def forget(self, queues: Iterable[ProcessQueue]) -> None:
        """These were dropped: their next owner reads the messages again."""
        gone = set(queues)
        with self._lock:
            for queue in gone & self.held.keys():
                del self.held[queue]
            self._waiting = [one for one in self._waiting if one[1].queue not in gone]

    def _let_go_on(self, chunk: Chunk) -> None:
        """All of a partition go on when the one that was tried is done with."""
        if not self.held:
            return
        with self._lock:
            held = self.held.get(chunk.queue)
            if held is not None and held.tried is chunk:
                del self.held[chunk.queue]
                self.wait(held.chunks, 0)
