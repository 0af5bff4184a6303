"""When deliveries wait: the app is down, a message may crash the app, or a route is missing."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from reconsume.bridge.process.brokers_clock import monotonic_ms
from reconsume.bridge.process.clock import Clock
from reconsume.bridge.process.safe_logger import SafeLogger
from reconsume.consumers.listener import NotNow

logger = SafeLogger(__name__)

_FIRST_PAUSE_MS: Final = 100
_LONGEST_PAUSE_MS: Final = 5_000
_FORGOTTEN_AFTER_MS: Final = 2 * _LONGEST_PAUSE_MS
_RED_PAUSE_MS: Final = 500
_YIELD_MS: Final = 500
_SENT_ALONE_AFTER: Final = 2
_ATTEMPT_AFTER: Final = 2
_MOST_KNOWN: Final = 1_000
_FIRST_MISSING_MS: Final = 250.0
_Place = tuple[str, int, int]


class Entry(NamedTuple):
    """The way a delivery entered.

    Attributes:
        probe: whether it probes an app that is down.
        alone: whether the app gets no other request until it leaves.
    """

    probe: bool
    alone: bool


class AppGate:
    """Blocks deliveries while the app is down, except one probe at a time. For the thread of one event loop.

    Guarantees:
        1. While the app is down, one delivery at a time probes it; the pause between probes doubles, up to 5 s. A
           message whose probe a proxy answered, or that was cut off repeatedly, leaves the next probes to others.
        2. Any answer of the app opens the gate.
        3. A message that was cut off repeatedly is delivered alone, see `CutOffs`.
        4. An app that no delivery has probed for 10 s counts as reachable: all held messages have another owner now.

    Args:
        group: the group, for the log.
        clock: returns milliseconds.
    """

    def __init__(self, group: str, clock: Clock = monotonic_ms) -> None:
        self._group = group
        self._clock = clock
        self._down_since: float | None = None
        self._pause_ms = _FIRST_PAUSE_MS
        self._next_probe = 0.0
        self._is_red = False
        self._cut_offs = CutOffs()
        self._in_flight = 0
        self._has_probe = False
        self._has_single = False
        self._changed = asyncio.Event()

    @property
    def down_since(self) -> float | None:
        """Since when the app is unreachable, by the clock; None if it is reachable."""
        is_probed = self._is_red or self._has_probe or self._clock() <= self._next_probe + _FORGOTTEN_AFTER_MS
        return self._down_since if is_probed else None

    async def enter(self, message_id: str) -> Entry:
        """Wait for a running probe, or become the next one; the caller must call `leave` afterwards.

        Args:
            message_id: the same over all retries of the message.

        Raises:
            NotNow: the app is down.
        """
        while True:
            entry = await self._try_to_enter(message_id)
            if entry is not None:
                self._in_flight += 1
                return entry

    async def _try_to_enter(self, message_id: str) -> Entry | None:
        """Return None after a change that requires another try."""
        is_down = self.down_since is not None
        if self._has_probe if is_down else self._has_single:
            await self._changed.wait()
            return None
        if is_down:
            return self._as_probe(message_id)
        if self._cut_offs.goes_alone(message_id):
            return await self._as_the_only_one()
        return Entry(probe=False, alone=False)

    def _as_probe(self, message_id: str) -> Entry:
        if self._is_red:
            raise NotNow(self._clock() + _RED_PAUSE_MS)
        earliest = self._next_probe + (_YIELD_MS if self._cut_offs.yields(message_id) else 0)
        if self._clock() < earliest:
            raise NotNow(earliest)
        self._has_probe = True
        return Entry(probe=True, alone=self._in_flight == 0)

    async def _as_the_only_one(self) -> Entry | None:
        """Block others and wait until all have left; None if the app went down meanwhile."""
        self._has_single, entered = True, False
        try:
            while self._in_flight:
                await self._changed.wait()
            entered = self.down_since is None
        finally:
            if not entered:
                self._has_single = False
                self._tell()
        return Entry(probe=False, alone=True) if entered else None

    def leave(self, entry: Entry) -> None:
        """Note the end of a delivery, whatever its outcome."""
        self._in_flight -= 1
        if entry.probe:
            self._has_probe = False
        elif entry.alone:
            self._has_single = False
        if entry.probe or entry.alone or (self._has_single and not self._in_flight):
            self._tell()

    def _tell(self) -> None:
        """Wake the waiting deliveries."""
        self._changed.set()
        self._changed = asyncio.Event()

    def cut_off(self, message_id: str, *, alone: bool) -> bool:
        """Note that the app ended without an answer to this message; return whether this is a failed attempt."""
        return self._cut_offs.cut_off(message_id, alone=alone)

    def goes_alone(self, message_id: str) -> bool:
        """Return whether this message must be the app's only one."""
        return self._cut_offs.goes_alone(message_id)

    def answered(self, message_id: str | None = None) -> None:
        """Note that the app has answered this message, or its own probe."""
        self._cut_offs.answered(message_id)
        if self._down_since is None or self._is_red:
            return
        seconds = (self._clock() - self._down_since) / 1000
        logger.warning("group %s: the app answers again, after %.1f s", self._group, seconds)
        self._down_since, self._pause_ms = None, _FIRST_PAUSE_MS

    def is_away(self, reason: str, *, probe: bool, refused: str | None = None) -> NotNow:
        """Note that the app could not be reached; return when the message is tried again.

        Args:
            reason: for the log.
            probe: whether the message was the probe.
            refused: its id if a proxy answered: it may get the same answer each time, so others probe first.
        """
        if probe and refused is not None:
            self._cut_offs.refused(refused)
        now = self._clock()
        if self.down_since is None:
            self._down_since, self._pause_ms = now, _FIRST_PAUSE_MS
            logger.warning("group %s: the app does not answer, deliveries wait: %s", self._group, reason)
        elif probe:
            self._pause_ms = min(self._pause_ms * 2, _LONGEST_PAUSE_MS)
        else:  # a delivery that was running when the app went down
            return NotNow(self._next_probe)
        self._next_probe = now + self._pause_ms
        return NotNow(self._next_probe)

    def turned_red(self, reason: str) -> None:
        """Note that the app's own probe fails; only that probe opens the gate again."""
        if self.down_since is None:
            self.is_away(reason, probe=False)
        self._is_red = True

    def turned_green(self) -> None:
        """Note that the app's own probe succeeds."""
        if self._is_red:
            self._is_red = False
            self.answered()
        else:
            self._cut_offs.answered()


@dataclass(slots=True)
class _Seen:
    """The known facts about one message.

    Attributes:
        times: how often the message was cut off.
        counted: how often it was cut off alone, after the app had answered another request.
        answers: the number of the app's answers before its last cut-off.
    """

    times: int = 0
    counted: int = 0
    answers: int = 0


class CutOffs:
    """Tells messages that crash the app from messages that were there when it crashed; one cut-off cannot tell.

    Guarantees:
        1. A message that was cut off twice is sent alone from then on.
        2. If it is then cut off alone twice more, each time after the app has answered another request, this is a
           failed attempt; so is each further cut-off.
        3. While the app answers nothing between two cut-offs, no message is blamed.
    Tests: tests/unit/sidecar/push/test_app_gate.py, tests/integration/push/test_poison.py.
    """

    def __init__(self) -> None:
        self._seen: dict[str, _Seen] = {}
        self._refused: dict[str, None] = {}
        self._answers = 0

    def goes_alone(self, message_id: str) -> bool:
        """Return whether this message must be the app's only request."""
        seen = self._seen.get(message_id)
        return seen is not None and seen.times >= _SENT_ALONE_AFTER

    def yields(self, message_id: str) -> bool:
        """Return whether another message should go first: this one proves nothing before an answer to another."""
        is_same = self.goes_alone(message_id) and self._seen[message_id].answers == self._answers
        return is_same or message_id in self._refused

    def refused(self, message_id: str) -> None:
        """Note that a proxy answered a probe with this message."""
        self._refused[message_id] = None
        _bound(self._refused)

    def answered(self, message_id: str | None = None) -> None:
        """Note that the app has answered this message, or its own probe."""
        self._answers += 1
        self._refused.clear()
        if message_id is not None:
            self._seen.pop(message_id, None)

    def cut_off(self, message_id: str, *, alone: bool) -> bool:
        """Note that the app ended without an answer; return whether this is a failed attempt.

        Args:
            message_id: the same over all retries.
            alone: whether the app had no other message meanwhile.
        """
        seen = self._seen.pop(message_id, None) or _Seen(answers=self._answers)
        self._seen[message_id] = seen
        _bound(self._seen)
        seen.counted += alone and seen.times >= _SENT_ALONE_AFTER and self._answers > seen.answers
        seen.times += 1
        seen.answers = self._answers
        if seen.counted < _ATTEMPT_AFTER:
            return False
        seen.counted = _ATTEMPT_AFTER - 1  # when it returns, it is a known crasher
        return True


def _bound(known: dict[str, Any]) -> None:
    """Forget the oldest."""
    if len(known) > _MOST_KNOWN:
        del known[next(iter(known))]


class MissingRoutes:
    """How long a 404 is held: until message or route have had nothing else for the whole grace.

    An existing route that answers 404 to some messages must not hold those forever, and a missing route must not hold
    every message for the whole grace again.

    Args:
        grace_ms: after this time a 404 counts as an answer.
    """

    def __init__(self, grace_ms: float) -> None:
        self._grace_ms = grace_ms
        self._forgotten_after_ms = max(grace_ms, _FORGOTTEN_AFTER_MS)
        self._asked: dict[str | _Place, tuple[float, float]] = {}

    def missing(self, route: str, message: _Place, now_ms: float) -> float | None:
        """Return when to try again, in milliseconds; None when the grace is over."""
        waited = now_ms - min(self._since(route, now_ms), self._since(message, now_ms))
        if waited >= self._grace_ms:
            self._asked.pop(message, None)
            return None
        return now_ms + min(max(_FIRST_MISSING_MS, waited), _LONGEST_PAUSE_MS, self._grace_ms - waited)

    def found(self, route: str, message: _Place) -> None:
        """Note that the route gave another answer."""
        self._asked.pop(route, None)
        self._asked.pop(message, None)

    def _since(self, asked: str | _Place, now_ms: float) -> float:
        """Return since when a route or message is missing; entries unused for long are forgotten."""
        horizon = now_ms - self._forgotten_after_ms
        for one in [one for one, (_, last) in self._asked.items() if last < horizon]:
            del self._asked[one]
        since, _ = self._asked.get(asked, (now_ms, now_ms))
        self._asked[asked] = since, now_ms
        return since
