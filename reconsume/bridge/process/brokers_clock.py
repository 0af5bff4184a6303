"""The brokers' clock, derived from acknowledgements of recently written records."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from typing import Final

from reconsume.bridge.process.clock import Clock, now_ms

_DRIFT: Final = 0.0002
"""The maximum drift between two clocks that are not set, as a fraction of the elapsed time."""
_READ_LATE_MS: Final = 250.0
"""A new record may be read this long after it was stored; smaller steps back of a clock stay unnoticed."""
_UNHEARD_MS: Final = 1_000.0
"""An older acknowledgement does not prove that the clock was not set back since."""


def monotonic_ms() -> float:
    """Return milliseconds of a monotonic clock."""
    return time.monotonic() * 1000


def boot_ms() -> float:
    """Return milliseconds of a clock that is never set and, on Linux, goes on while the machine is suspended."""
    return time.clock_gettime(time.CLOCK_BOOTTIME) * 1000 if sys.platform == "linux" else monotonic_ms()


class BrokersClock:
    """The time of the brokers' clock, slightly behind and never ahead, independent of this machine's clock.

    When a record's acknowledgement arrives, the brokers' clock shows its append time or more. From then on this
    machine's `boot_ms` counts, and trust decreases with age. Of several acknowledgements the quickest counts,
    which is a few milliseconds behind.

    Records that are read count too, so a recent send-back is late by at most 0.02 % of its wait. If a new record seems
    old, the clock was set back or the record was read late: until the brokers are asked, the clock is as far back as
    that record shows.

    Before the first acknowledgement it is this machine's clock. Safe to use from several threads: overwritten values
    arrive again.

    Guarantees: a worker asks for the time at its start, and before a delivery if the clock may have been set back, at
    most once a second, by writing to the quarantine topic in a transaction that it aborts.
    Tests: tests/integration/scheduler/test_clock.py, tests/unit/bridge/process/test_brokers_clock.py.

    Attributes:
        is_in_doubt: whether to ask the brokers for the time, because it may have been set back.
    """

    def __init__(self, clock: Clock = now_ms, passed: Callable[[], float] = boot_ms) -> None:
        self._clock = clock
        self._passed = passed
        self._heard: tuple[float, float] | None = None
        self._acknowledged = float("-inf")
        self.is_in_doubt = False

    def __call__(self) -> float:
        """Return milliseconds since the epoch."""
        passed = self._passed()
        return self._clock() if self._heard is None else passed + self._ahead_of(passed, self._heard)

    def heard(self, append_ms: int, sent: float) -> None:
        """Note that a record of ours was acknowledged now.

        Args:
            append_ms: the record's append time.
            sent: `boot_ms()` before it was sent; if the brokers' clock was ahead of the append time then, it was
                set back.
        """
        passed = self._passed()
        self._acknowledged, self.is_in_doubt = passed, False
        if self._heard is not None:
            known = self._ahead_of(passed, self._heard)
            # Append times are whole milliseconds: the brokers' clock may have been nearly one more.
            if append_ms - passed < known <= append_ms + 1 - sent:
                return
        self._heard = append_ms - passed, passed

    def saw(self, append_ms: int, is_new: bool) -> None:
        """Note that a record was read now.

        Args:
            append_ms: the record's append time.
            is_new: whether its partition had been read to the end, so that the record was stored a moment ago.
        """
        if self._heard is None:
            return
        passed = self._passed()
        behind = self._ahead_of(passed, self._heard) - (append_ms - passed)
        seems_old = behind > _READ_LATE_MS
        if behind < 0 or (seems_old and is_new):
            self._heard = append_ms - passed, passed
        if seems_old and (is_new or passed - self._acknowledged > _UNHEARD_MS):
            self.is_in_doubt = True

    @staticmethod
    def _ahead_of(passed: float, heard: tuple[float, float]) -> float:
        """Return the minimum by which the brokers' clock is ahead of `boot_ms`."""
        ahead, at = heard
        return ahead - (passed - at) * _DRIFT


def created_ms(time: BrokersClock | None) -> int:
    """Return a new record's timestamp, for topics that keep it: brokers refuse one an hour ahead of their clock.

    Kafka 4: `message.timestamp.after.max.ms`. 0 without a clock: librdkafka takes this machine's.
    """
    return 0 if time is None else int(time())
