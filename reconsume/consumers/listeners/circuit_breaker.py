"""The rule of the circuit breaker, without threads: when to stop calling a listener, and when to probe it."""

from __future__ import annotations

import enum
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, fields
from datetime import timedelta
from typing import Final

from reconsume.consumers.listener import is_async
from reconsume.delay_levels.errors import IllegalSetting
from reconsume.delay_levels.foreign_values import check_types, type_name, whole_number

Permit = int
"""A permission for one call: the period in which it was given. The result counts only in the same period."""
_STEPS: Final = 10
"""The window slides in tenths, so its memory does not depend on the number of calls."""


class CircuitState(enum.Enum):
    """CLOSED: calls listeners; OPEN: calls none; HALF_OPEN: calls them for probes only."""

    CLOSED = "closed"
    HALF_OPEN = "half-open"
    OPEN = "open"


@dataclass(frozen=True, slots=True)
class CircuitChange:
    """A change of state, or the initial state.

    Attributes:
        group: the consumer group.
        state: the new state.
        calls: the calls that led to it, in the window or as probes; 0 initially, for HALF_OPEN, and for CLOSED if the
            consumer has no partitions any more or ends.
        failures: how many of them failed.
        open_seconds: for OPEN, the length of the pause; otherwise how long the circuit was not closed so far.
    """

    group: str
    state: CircuitState
    calls: int = 0
    failures: int = 0
    open_seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class CircuitBreaker:
    """The settings of `PushConsumer(circuit_breaker=…)`.

    Attributes:
        failure_share: share of failed calls in the window that opens the circuit, and of failed probes that keeps it
            open.
        minimum_calls: the circuit never opens with fewer calls in the window.
        window: how long a call counts after its end.
        open_for: the first pause; each failed round of probes doubles it.
        open_for_at_most: the longest pause.
        probes: number of calls after a pause.
        on_change: called at the start and after each change, in the polling thread; it must not block.

    Raises:
        IllegalSetting: an invalid value.
    """

    failure_share: float = 0.9
    minimum_calls: int = 20
    window: timedelta = timedelta(minutes=1)
    open_for: timedelta = timedelta(seconds=5)
    open_for_at_most: timedelta = timedelta(minutes=1)
    probes: int = 3
    on_change: Callable[[CircuitChange], None] | None = None

    def __post_init__(self) -> None:
        arguments = {one.name: getattr(self, one.name) for one in fields(self)}
        check_types(
            arguments, failure_share=(int, float), window=timedelta, open_for=timedelta, open_for_at_most=timedelta
        )
        if self.on_change is not None and not callable(self.on_change):
            raise IllegalSetting(f"on_change must be a function, got {type_name(type(self.on_change))}")
        if self.on_change is not None and is_async(self.on_change):
            raise IllegalSetting("on_change must be a plain function: it is not awaited")
        if not 0 < self.failure_share <= 1:
            raise IllegalSetting(f"failure_share must be above 0 and at most 1, not {self.failure_share}")
        for name in ("minimum_calls", "probes"):
            if whole_number(getattr(self, name), name) < 1:
                raise IllegalSetting(f"{name} must be 1 or more, not {getattr(self, name)}")
        for name in ("window", "open_for"):
            if getattr(self, name) <= timedelta(0):
                raise IllegalSetting(f"{name} must be longer than 0, not {getattr(self, name)}")
        if self.open_for_at_most < self.open_for:
            raise IllegalSetting(
                f"open_for_at_most must be {self.open_for} (open_for) or longer, not {self.open_for_at_most}"
            )


@dataclass(slots=True)
class _Step:
    number: int
    calls: int = 0
    failures: int = 0


class Circuit:
    """The state of a circuit. Not safe to use from several threads; all moments are milliseconds of one clock.

    Guarantees:
        1. An open circuit gives no permit; a half-open one gives at most `probes` permits in each period.
        2. A result of an earlier period changes nothing: neither a call that was running when it opened, nor a probe
           of an earlier round.
        3. Setting the clock back only restarts the pause and empties the window.

    Args:
        settings: the user's settings.
        group: the group that changes name.

    Attributes:
        state: the state after the last method call.
        since: the beginning of this state.
        changes: changes that the caller has not taken out yet.
        longest_pause_ms: the setting `open_for_at_most`.
    """

    def __init__(self, settings: CircuitBreaker, group: str = "") -> None:
        self.state = CircuitState.CLOSED
        self.since = 0.0
        self.changes: list[CircuitChange] = []
        self.longest_pause_ms = settings.open_for_at_most / timedelta(milliseconds=1)
        self._settings = settings
        self._group = group
        self._period = 0
        self._window: deque[_Step] = deque()
        self._calls = self._failures = 0
        self._probes_left = 0
        self._pause_ms = 0.0
        self._opened_at = 0.0

    @property
    def probes_left(self) -> int:
        """Return how many more probes may begin now."""
        return self._probes_left if self.state is CircuitState.HALF_OPEN else 0

    @property
    def pause_ends_ms(self) -> float | None:
        """Return when the pause is over; None without a pause."""
        return self.since + self._pause_ms if self.state is CircuitState.OPEN else None

    def advance(self, now: float) -> None:
        """Advance to this moment, which may end a pause."""
        self.since = min(self.since, now)
        if (ends := self.pause_ends_ms) is not None and now >= ends:
            self._probes_left = self._settings.probes
            self._enter(CircuitState.HALF_OPEN, now)

    def admit(self, now: float) -> Permit | None:
        """Return a permit for a call of the listener; None if calls are blocked now."""
        self.advance(now)
        if self.state is CircuitState.OPEN:
            return None
        if self.state is CircuitState.HALF_OPEN:
            if not self._probes_left:
                return None
            self._probes_left -= 1
        return self._period

    def is_valid(self, permit: Permit) -> bool:
        """Return whether a permit belongs to the current period."""
        return permit == self._period

    def cancel(self, permit: Permit) -> None:
        """Return an unused permit."""
        if self.is_valid(permit) and self.state is CircuitState.HALF_OPEN:
            self._probes_left += 1

    def settle(self, permit: Permit, *, failed: bool, now: float) -> None:
        """Count a call that has returned or timed out."""
        if not self.is_valid(permit):
            return
        if self.state is CircuitState.CLOSED:
            self._slide(now)
            self._window[-1].calls += 1
            self._window[-1].failures += failed
        self._calls += 1
        self._failures += failed
        if self.state is CircuitState.CLOSED:
            if self._calls >= self._settings.minimum_calls and self._fails(self._failures, self._calls):
                self._opened_at = now
                self._open(self._settings.open_for, now)
        elif self._fails(self._failures, self._settings.probes):
            self._open(timedelta(milliseconds=self._pause_ms * 2), now)
        elif not self._fails(self._settings.probes - self._calls + self._failures, self._settings.probes):
            self._enter(CircuitState.CLOSED, now)

    def close(self, now: float) -> None:
        """Close the circuit without a verdict, because there is nothing to probe."""
        if self.state is not CircuitState.CLOSED:
            self._calls = self._failures = 0
            self._enter(CircuitState.CLOSED, now)

    def _fails(self, failures: int, calls: int) -> bool:
        return failures / calls >= self._settings.failure_share

    def _slide(self, now: float) -> None:
        """Slide the window up to now and forget older calls."""
        number = int(now * _STEPS // (self._settings.window / timedelta(milliseconds=1)))
        if self._window and number < self._window[-1].number:
            self._window.clear()
            self._calls = self._failures = 0
        if not self._window or number > self._window[-1].number:
            self._window.append(_Step(number))
        while self._window[0].number <= number - _STEPS:
            gone = self._window.popleft()
            self._calls -= gone.calls
            self._failures -= gone.failures

    def _open(self, pause: timedelta, now: float) -> None:
        self._pause_ms = min(pause / timedelta(milliseconds=1), self.longest_pause_ms)
        self._enter(CircuitState.OPEN, now)

    def _enter(self, state: CircuitState, now: float) -> None:
        seconds = (self._pause_ms if state is CircuitState.OPEN else max(0.0, now - self._opened_at)) / 1000
        self.changes.append(CircuitChange(self._group, state, self._calls, self._failures, seconds))
        self.state, self.since = state, now
        self._period += 1
        self._window.clear()
        self._calls = self._failures = 0
