"""Messages that were read and wait before a concurrent listener is called."""

from __future__ import annotations

import threading
from bisect import bisect_right, insort
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field
from operator import itemgetter
from typing import Final

from reconsume.bridge.process.clock import Clock
from reconsume.bridge.process.safe_logger import SafeLogger
from reconsume.bridge.process.user_callbacks import UserCallbacks
from reconsume.consumers.listeners.circuit_breaker import Circuit, CircuitBreaker, CircuitChange, CircuitState, Permit
from reconsume.consumers.message import Message
from reconsume.consumers.partitions.process_queue import Chunk, ProcessQueue

logger = SafeLogger(__name__)

_DUE = itemgetter(0)
_FRESH_MS: Final = 1_000
"""How long a round of probes waits for messages without a failure before it takes others."""


@dataclass(slots=True)
class _Held:
    """The waiting messages of a partition whose listener said "not now".

    Attributes:
        due_ms: when the next try is due.
        tried: the chunk at the listener; None if there is none.
    """

    due_ms: float
    chunks: deque[Chunk] = field(default_factory=deque)
    tried: Chunk | None = None


class WaitingRoom:
    """Chunks that wait for the listener. Safe to use from several threads.

    A chunk enters before the listener is called, and leaves with an outcome or a cancellation. It waits because its
    send-back failed, with its partition because the listener said "not now", or with all chunks while the circuit is
    not closed.

    Guarantees:
        1. Waiting messages are read and not started: no timeout runs, no attempt counts, and the offset is not
           committed. So a consumer that stops or loses the partition loses no message.
        2. While a partition is held, one batch at a time is tried, each in turn; an outcome releases the others.
           Reading goes on up to its usual limits: messages that never have an outcome hold up no other.
        3. Messages that failed while the circuit was not closed are kept too: an outage of any length costs only the
           attempts of the calls that opened it, and of listeners that exceeded the consume timeout.
        4. Probes take messages that have not failed as probes first, and reading goes on until there are enough:
           messages that can never succeed do not keep the circuit open while others wait behind them.
        5. A dropped partition's calls count no more, so one that hangs as a probe does not keep the circuit half-open.
        6. The last change that is reported is CLOSED: a gauge does not stay above 0 when nothing is left to probe. A
           consumer that gets partitions again within the longest pause continues as it was.
    Tests: tests/unit/consumers/listeners/test_not_now.py, tests/unit/consumers/listeners/test_waiting_room.py,
    tests/unit/consumers/observing/test_circuit_metrics.py.

    Args:
        clock: returns milliseconds.
        group: the consumer group.
        breaker: the user's settings; None for a circuit that never opens.

    Attributes:
        held: held messages by partition; callers skip all checks while it is empty.
    """

    def __init__(self, clock: Clock, group: str = "", breaker: CircuitBreaker | None = None) -> None:
        self._clock = clock
        self._lock = threading.RLock()
        self._waiting: list[tuple[float, Chunk]] = []
        self.held: dict[ProcessQueue, _Held] = {}
        self._group = group
        self._circuit = None if breaker is None else Circuit(breaker, group)
        self._admitted: set[Chunk] = set()
        self._on_change = None if breaker is None else breaker.on_change
        self._callbacks = UserCallbacks(f"group {group}: the circuit breaker's")
        self._fresh: deque[Chunk] = deque()
        self._failed: deque[Chunk] = deque()
        self._dropped_at = 0.0
        self._call_back(CircuitChange(group, CircuitState.CLOSED))

    def enter(self, chunk: Chunk) -> bool:
        """Return whether the listener may be called for this chunk now; otherwise `due` returns it later."""
        if not self.held and self._circuit is None:
            return True
        with self._lock:
            held = self.held.get(chunk.queue)
            if held is not None and held.tried is not chunk:
                held.chunks.append(chunk)
                return False
            if self._circuit is None:
                return True
            if chunk.permit is None or not self._circuit.is_valid(chunk.permit):
                self._admit(self._circuit, chunk, self._clock())
            if chunk.permit is None:
                self._fresh.append(chunk)
            return chunk.permit is not None

    def cancel(self, chunk: Chunk) -> None:
        """Remove a chunk whose listener was not called, or whose result is not an outcome."""
        self._let_go_on(chunk)
        self._give_back(chunk)

    def settle(self, chunk: Chunk, *, failed: bool) -> bool:
        """Note the first outcome of a call; return whether to keep failed messages instead of sending them back."""
        self._let_go_on(chunk)
        if self._circuit is None:
            return False
        with self._lock:
            permit = self._take_permit(chunk)
            if permit is not None:
                self._circuit.settle(permit, failed=failed, now=self._clock())
            return self._circuit.state is not CircuitState.CLOSED

    def keep(self, chunk: Chunk) -> None:
        """Keep a chunk that failed while the circuit was not closed."""
        with self._lock:
            self._failed.append(chunk)

    def wait(self, chunks: Iterable[Chunk], ms: float) -> None:
        """Keep chunks for this time, in this order."""
        with self._lock:
            due_ms = self._clock() + ms
            for chunk in chunks:
                insort(self._waiting, (due_ms, chunk), key=_DUE)

    def hold(self, begun: Chunk, left: tuple[Message, ...], until_ms: float) -> None:
        """Hold the rest of a chunk whose listener said "not now"; this does not count as a call."""
        self._give_back(begun)
        with self._lock:
            held = self.held.get(begun.queue)
            if held is None:
                held = self.held[begun.queue] = _Held(until_ms)
            held.due_ms = max(held.due_ms, until_ms)
            if held.tried is begun:
                held.tried = None
            held.chunks.append(Chunk(begun.queue, left))

    def due(self) -> list[Chunk]:
        """Return the chunks to call the listener for, and report circuit changes. Only for the polling thread."""
        if not self.held and not self._waiting and self._circuit is None:
            return []
        with self._lock:
            now = self._clock()
            passing, changes = self._let_pass(now)
            end = bisect_right(self._waiting, now, key=_DUE)
            due = passing + [chunk for _, chunk in self._waiting[:end]]
            del self._waiting[:end]
            for held in self.held.values():
                if held.tried is None and held.due_ms <= now:
                    held.tried = held.chunks.popleft()
                    due.append(held.tried)
        for change in changes:
            self._tell(change, len(passing))
        return due

    def next_due_ms(self) -> float | None:
        """Return the earliest moment at which `due` returns something; None if nothing is scheduled."""
        with self._lock:
            dues = [held.due_ms for held in self.held.values() if held.tried is None]
            dues += map(_DUE, self._waiting[:1])
            if self._circuit is not None and self._circuit.pause_ends_ms is not None:
                dues.append(self._circuit.pause_ends_ms)
            elif self._circuit is not None and self._circuit.probes_left and self._failed:
                dues.append(self._circuit.since + _FRESH_MS)
            return min(dues, default=None)

    def is_shut(self) -> bool:
        """Return whether reading must wait: the circuit holds enough messages."""
        if self._circuit is None:
            return False
        with self._lock:
            if self._circuit.state is CircuitState.HALF_OPEN:
                return len(self._fresh) >= self._circuit.probes_left
            return self._circuit.state is CircuitState.OPEN

    def forget(self, queues: Iterable[ProcessQueue]) -> None:
        """Forget dropped partitions: their next owner reads the messages again.

        Calls that hang give their permits back, since nothing ends them: consume timeouts hold for owned partitions.
        """
        gone = set(queues)
        with self._lock:
            self._dropped_at = self._clock()
            for queue in gone & self.held.keys():
                del self.held[queue]
            self._waiting = [one for one in self._waiting if one[1].queue not in gone]
            self._fresh = deque(chunk for chunk in self._fresh if chunk.queue not in gone)
            self._failed = deque(chunk for chunk in self._failed if chunk.queue not in gone)
            for chunk in [one for one in self._admitted if one.queue in gone]:
                self._give_back(chunk)

    def idle(self) -> None:
        """Close the circuit of a consumer that has had no partitions for the longest pause. For the polling thread.

        A consumer that has lost its membership gets partitions again, and their calls would cost attempts.
        """
        if self._circuit is not None and self._clock() >= self._dropped_at + self._circuit.longest_pause_ms:
            self.end()

    def end(self) -> None:
        """Close the circuit, and report it. Only for the polling thread."""
        if (circuit := self._circuit) is None:
            return
        with self._lock:
            circuit.close(self._clock())
            changes, circuit.changes = circuit.changes, []
        for change in changes:
            self._tell(change, 0)

    def _let_go_on(self, chunk: Chunk) -> None:
        """Release the partition's chunks after the tried one."""
        if not self.held:
            return
        with self._lock:
            held = self.held.get(chunk.queue)
            if held is not None and held.tried is chunk:
                del self.held[chunk.queue]
                self.wait(held.chunks, 0)

    def _give_back(self, chunk: Chunk) -> None:
        if self._circuit is None:
            return
        with self._lock:
            permit = self._take_permit(chunk)
            if permit is not None:
                self._circuit.cancel(permit)

    def _admit(self, circuit: Circuit, chunk: Chunk, now: float) -> None:
        """Ask for a permit; the caller holds the lock."""
        chunk.permit = circuit.admit(now)
        if chunk.permit is not None:
            self._admitted.add(chunk)

    def _take_permit(self, chunk: Chunk) -> Permit | None:
        """Return the permit of a chunk, once; the caller holds the lock."""
        permit, chunk.permit = chunk.permit, None
        self._admitted.discard(chunk)
        return permit

    def _let_pass(self, now: float) -> tuple[list[Chunk], list[CircuitChange]]:
        """Return the held messages that the circuit lets pass, and its changes; the caller holds the lock."""
        circuit, chunks = self._circuit, list[Chunk]()
        if circuit is None:
            return chunks, []
        circuit.advance(now)
        if circuit.state is CircuitState.CLOSED:
            chunks += [*self._fresh, *self._failed]
            self._fresh.clear()
            self._failed.clear()
        while circuit.probes_left:
            if self._fresh:
                chunk = self._fresh.popleft()
            elif self._failed and now >= circuit.since + _FRESH_MS:
                chunk = self._failed.popleft()
            else:
                break
            self._admit(circuit, chunk, now)
            chunks.append(chunk)
        changes, circuit.changes = circuit.changes, []
        return chunks, changes

    def _tell(self, change: CircuitChange, given: int) -> None:
        seconds = change.open_seconds
        if change.state is CircuitState.OPEN:
            logger.warning(
                "group %s: the listener failed in %d of %d calls; consumption pauses for %.1f s",
                *(self._group, change.failures, change.calls, seconds),
            )
        elif change.state is CircuitState.HALF_OPEN:
            logger.info("group %s: probing the listener, %.1f s after the first pause began", self._group, seconds)
        elif not change.calls:
            logger.info(
                "group %s: the circuit closes after %.1f s: no partitions are left to probe", self._group, seconds
            )
        else:
            logger.warning(
                "group %s: the listener works again (%d of %d probes failed) after %.1f s; kept batches continue: %d",
                *(self._group, change.failures, change.calls, seconds, given),
            )
        self._call_back(change)

    def _call_back(self, change: CircuitChange) -> None:
        if (on_change := self._on_change) is not None:
            self._callbacks.tell("on_change", lambda: on_change(change))
