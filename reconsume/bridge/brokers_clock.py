"""The brokers' clock, as the acknowledgements of what was just written tell it."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final

from reconsume.bridge.clock import Clock, now_ms

__all__ = ["BrokersClock", "monotonic_ms"]

_DRIFT: Final = 0.0002
"""Two clocks that are not set differ by at most so much of the time that passes."""


def monotonic_ms() -> float:
    """Milliseconds since some moment; nobody sets this clock."""
    return time.monotonic() * 1000


class BrokersClock:
    """The time by the brokers' clock, a little behind and never ahead of it, whatever this machine's clock says.

    When the acknowledgement of a record has come, the brokers' clock shows its append time or more. From then on this
    machine's monotonic clock counts, and what was heard is trusted less the older it is. Of several acknowledgements
    the one counts that came quickest, which is a few milliseconds behind.

    Records that are read tell it too, so what was sent back a moment ago is late by no more than 0.02 % of its wait.

    Until anything was heard it is this machine's clock. Safe to use from several threads: what one of them overwrites
    is heard again.
    """

    def __init__(self, clock: Clock = now_ms, monotonic: Callable[[], float] = monotonic_ms) -> None:
        self._clock = clock
        self._monotonic = monotonic
        self._heard: tuple[float, float] | None = None

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
        if self._heard is not None:
            known = self._ahead_of(passed, self._heard)
            # Append times are whole milliseconds: the brokers' clock may have shown nearly one more.
            if append_ms - passed < known <= append_ms + 1 - sent:
                return
        self._heard = append_ms - passed, passed

    def saw(self, append_ms: int) -> None:
        """A record with this append time was read now; of use if it was stored a moment ago."""
        passed = self._monotonic()
        if self._heard is not None and append_ms - passed > self._ahead_of(passed, self._heard):
            self._heard = append_ms - passed, passed

    @staticmethod
    def _ahead_of(passed: float, heard: tuple[float, float]) -> float:
        """By how much the brokers' clock is ahead of the monotonic one, at least."""
        ahead, at = heard
        return ahead - (passed - at) * _DRIFT
