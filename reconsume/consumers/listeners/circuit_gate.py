"""The waiting room of a PushConsumer with a circuit breaker."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Iterable
from typing import Final

from reconsume.bridge.process.clock import Clock, now_ms
from reconsume.bridge.process.user_callbacks import UserCallbacks
from reconsume.consumers.listeners.circuit_breaker import Circuit, CircuitBreaker, CircuitChange, CircuitState, Permit
from reconsume.consumers.listeners.listener_pool import Chunk
from reconsume.consumers.listeners.waiting_room import WaitingRoom
from reconsume.consumers.message import Message
from reconsume.consumers.partitions.process_queue import ProcessQueue

__all__ = ["CircuitGate"]

logger = logging.getLogger(__name__)

_FRESH_MS: Final = 1_000
"""So long a round of probes waits for messages that have not failed yet, before it takes those that have."""


class CircuitGate(WaitingRoom):
    """Also keeps what no listener is called for while the circuit is not closed. Safe to use from several threads.

    Guarantees, beside those of `WaitingRoom`:
        1. Messages that failed while the circuit was not closed are kept too: an outage of any length costs no
           attempts but those of the calls that opened it, and of listeners that ran into the consume timeout.
        2. Probes take messages that have not failed as probes first, and reading goes on until there are enough:
           messages that can never succeed do not keep the circuit open while others wait behind them.
    Test: tests/unit/consumers/listeners/test_circuit_gate.py.

    Args:
        group: the consumer group.
        settings: the user's.
        clock: gives milliseconds.
    """

    def __init__(self, group: str, settings: CircuitBreaker, clock: Clock = now_ms) -> None:
        super().__init__(clock)
        self._group = group
        self._on_change = settings.on_change
        self._callbacks = UserCallbacks(f"group {group}: the circuit breaker's")
        self._circuit = Circuit(settings, group)
        self._fresh: deque[Chunk] = deque()
        self._failed: deque[Chunk] = deque()
        self._reserved: dict[int, Permit] = {}
        self._running: dict[int, tuple[Chunk, Permit]] = {}
        self._call_back(CircuitChange(group, CircuitState.CLOSED))

    def enter(self, chunk: Chunk) -> bool:
        """As in a `WaitingRoom`, and whether the circuit lets it pass."""
        if not super().enter(chunk):
            return False
        with self._lock:
            permit = self._reserved.pop(id(chunk), None)
            if permit is None or not self._circuit.is_valid(permit):
                permit = self._circuit.admit(self._clock())
            if permit is None:
                self._fresh.append(chunk)
                return False
            self._running[id(chunk)] = (chunk, permit)
            return True

    def cancel(self, chunk: Chunk) -> None:
        """As in a `WaitingRoom`; it counts as no call."""
        super().cancel(chunk)
        self._give_back(chunk)

    def settle(self, chunk: Chunk, *, failed: bool) -> bool:
        """The listener has come back; gives whether what failed is to be kept, not sent back."""
        super().settle(chunk, failed=failed)
        with self._lock:
            self._settle(chunk, failed=failed)
            return self._circuit.state is not CircuitState.CLOSED

    def hold(self, begun: Chunk, left: tuple[Message, ...], until_ms: float) -> None:
        """As in a `WaitingRoom`; it counts as no call."""
        self._give_back(begun)
        super().hold(begun, left, until_ms)

    def keep(self, chunk: Chunk) -> None:
        """These failed while the circuit was not closed."""
        with self._lock:
            self._failed.append(chunk)

    def timed_out(self, queue: ProcessQueue, message: Message) -> None:
        """The listener of this message ran for too long: its call has failed, whatever it says later."""
        with self._lock:
            for chunk, _ in list(self._running.values()):
                if chunk.queue is queue and message in chunk.messages:
                    self._settle(chunk, failed=True)

    def due(self) -> list[Chunk]:
        """As in a `WaitingRoom`, and what may pass; also tells what has changed."""
        with self._lock:
            now = self._clock()
            self._circuit.advance(now)
            chunks = self._take(now)
            changes, self._circuit.changes = self._circuit.changes, []
        for change in changes:
            self._log(change, len(chunks))
            self._call_back(change)
        return chunks + super().due()

    def next_due_ms(self) -> float | None:
        """As in a `WaitingRoom`, and when a pause is over or probes need not be fresh any more."""
        with self._lock:
            ours = self._circuit.pause_ends_ms
            if self._circuit.state is CircuitState.HALF_OPEN and self._failed and self._circuit.probes_left:
                ours = self._circuit.since + _FRESH_MS
            return min((due for due in (ours, super().next_due_ms()) if due is not None), default=None)

    def is_shut(self, queue: ProcessQueue) -> bool:
        """As in a `WaitingRoom`; of all partitions, when no listener is called or there is enough for the probes."""
        with self._lock:
            if self._circuit.state is CircuitState.HALF_OPEN:
                is_full = len(self._fresh) >= self._circuit.probes_left
            else:
                is_full = self._circuit.state is CircuitState.OPEN
            return is_full or super().is_shut(queue)

    def forget(self, queues: Iterable[ProcessQueue]) -> None:
        """These were dropped: their next owner reads the messages again."""
        gone = set(queues)
        super().forget(gone)
        with self._lock:
            self._fresh = deque(chunk for chunk in self._fresh if chunk.queue not in gone)
            self._failed = deque(chunk for chunk in self._failed if chunk.queue not in gone)

    def _give_back(self, chunk: Chunk) -> None:
        with self._lock:
            if (running := self._running.pop(id(chunk), None)) is not None:
                self._circuit.cancel(running[1])

    def _settle(self, chunk: Chunk, *, failed: bool) -> None:
        running = self._running.pop(id(chunk), None)
        if running is not None:
            self._circuit.settle(running[1], failed=failed, now=self._clock())

    def _take(self, now: float) -> list[Chunk]:
        if self._circuit.state is CircuitState.CLOSED:
            chunks = [*self._fresh, *self._failed]
            self._fresh.clear()
            self._failed.clear()
            return chunks
        chunks = []
        while self._circuit.probes_left:
            if self._fresh:
                chunk = self._fresh.popleft()
            elif self._failed and now - self._circuit.since >= _FRESH_MS:
                chunk = self._failed.popleft()
            else:
                break
            permit = self._circuit.admit(now)
            assert permit is not None
            self._reserved[id(chunk)] = permit
            chunks.append(chunk)
        return chunks

    def _log(self, change: CircuitChange, given: int) -> None:
        seconds = change.open_seconds
        if change.state is CircuitState.OPEN:
            logger.warning(
                "group %s: the listener failed in %d of %d calls; consumption pauses for %.1f s",
                *(self._group, change.failures, change.calls, seconds),
            )
        elif change.state is CircuitState.HALF_OPEN:
            logger.info(
                "group %s: the listener is tried again, %.1f s after the first pause began", self._group, seconds
            )
        else:
            logger.warning(
                "group %s: the listener works again (%d of %d probes failed) after %.1f s; kept batches that go on: %d",
                *(self._group, change.failures, change.calls, seconds, given),
            )

    def _call_back(self, change: CircuitChange) -> None:
        if (on_change := self._on_change) is not None:
            self._callbacks.tell("on_change", lambda: on_change(change))
