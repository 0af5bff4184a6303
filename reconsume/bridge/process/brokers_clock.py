"""The brokers' clock, as the acknowledgements of what was just written tell it."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final

from reconsume.bridge.process.clock import Clock, now_ms

_DRIFT: Final = 0.0002
"""Two clocks that are not set differ by at most so much of the time that passes."""
_READ_LATE_MS: Final = 250.0
"""A new record may be read so long after it was stored; a clock that is set back by less is not noticed."""
_UNHEARD_MS: Final = 1_000.0
"""An acknowledgement that is older does not tell whether the clock was set back since."""


def monotonic_ms() -> float:
    """Milliseconds since some moment; nobody sets this clock."""
    return time.monotonic() * 1000


class BrokersClock:
    """The time by the brokers' clock, a little behind and never ahead of it, whatever this machine's clock says.

    When the acknowledgement of a record has come, the brokers' clock shows its append time or more. From then on this
    machine's monotonic clock counts, and what was heard is trusted less the older it is. Of several acknowledgements
    the one counts that came quickest, which is a few milliseconds behind.

    Records that are read tell it too, so what was sent back a moment ago is late by no more than 0.02 % of its wait.
    A new record that seems old shows that the clock was set back, or that it was read late: until the brokers are asked
    the clock is as far back as that record shows.

    Until anything was heard it is this machine's clock. Safe to use from several threads: what one of them overwrites
    is heard again.

    Guarantees: a worker asks for the time at its start, and before it delivers when the clock may have been set back,
    at most once a second, by a record in the quarantine topic whose transaction is aborted.
    Tests: tests/integration/test_scheduler_clock.py, tests/unit/bridge/process/test_brokers_clock.py.

    Attributes:
        is_in_doubt: whether the brokers should be asked for the time, because it may have been set back.
    """

    def __init__(self, clock: Clock = now_ms, monotonic: Callable[[], float] = monotonic_ms) -> None:
        self._clock = clock
        self._monotonic = monotonic
        self._heard: tuple[float, float] | None = None
        self._acknowledged = float("-inf")
        self.is_in_doubt = False

    def __call__(self) -> float:
        """Milliseconds since the epoch."""
        passed = self._monotonic()
        return self._clock() if self._heard is None else passed + self._ahead_of(passed, self._heard)

    def heard(self, append_ms: int, sent: float) -> None:
        """A record of ours was acknowledged now.

        Args:
            append_ms: its append time.
            sent: `monotonic_ms()` before it was sent; if the brokers' clock showed more already then, it was set back.
        """
        passed = self._monotonic()
        self._acknowledged, self.is_in_doubt = passed, False
        if self._heard is not None:
            known = self._ahead_of(passed, self._heard)
            # Append times are whole milliseconds: the brokers' clock may have shown nearly one more.
            if append_ms - passed < known <= append_ms + 1 - sent:
                return
        self._heard = append_ms - passed, passed

    def saw(self, append_ms: int, is_new: bool) -> None:
        """A record was read now.

        Args:
            append_ms: its append time.
            is_new: its partition had been read to its end, so it was stored a moment ago.
        """
        if self._heard is None:
            return
        passed = self._monotonic()
        behind = self._ahead_of(passed, self._heard) - (append_ms - passed)
        seems_old = behind > _READ_LATE_MS
        if behind < 0 or (seems_old and is_new):
            self._heard = append_ms - passed, passed
        if seems_old and (is_new or passed - self._acknowledged > _UNHEARD_MS):
            self.is_in_doubt = True

    @staticmethod
    def _ahead_of(passed: float, heard: tuple[float, float]) -> float:
        """By how much the brokers' clock is ahead of the monotonic one, at least."""
        ahead, at = heard
        return ahead - (passed - at) * _DRIFT
