"""Ratios of this run against the recorded ones.

Absolute times say little on another machine, so only figures with a unit in `COMPARED` count: both sides of such a
figure ran in the same round. Noise is bounded three times:

* The limit is the worst recorded round, less a tenth of the recorded median.
* The median of this run's rounds must be beyond it.
* The runner measures such a figure again, and reports a regression only if the second median is beyond it too.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from benchmarks.harness.registry import COMPARED
from benchmarks.harness.results import Result, number

__all__ = ["Regression", "limit", "regressions", "unknown"]

_MARGIN: Final = 0.1


@dataclass(frozen=True, slots=True)
class Regression:
    """A figure that is beyond its limit."""

    recorded: Result
    now: Result

    def __str__(self) -> str:
        one = self.now
        values = ", ".join(map(number, one.values))
        return (
            f"{one.measurement}, {one.case}, {one.figure}: {number(one.median)} {one.unit} ({values}); "
            f"recorded {number(self.recorded.median)}, limit {number(limit(self.recorded))}"
        )


def limit(recorded: Result) -> float:
    """Return the limit: the worst value that is not a regression."""
    sign = COMPARED[recorded.unit]
    return min(sign * value for value in recorded.values) * sign - sign * _MARGIN * recorded.median


def regressions(recorded: Iterable[Result], now: Iterable[Result]) -> list[Regression]:
    """Return the figures of this run that are worse than their limits."""
    before = {one.key: one for one in recorded if one.unit in COMPARED}
    return [
        Regression(before[one.key], one)
        for one in now
        if one.key in before and COMPARED[one.unit] * (one.median - limit(before[one.key])) < 0
    ]


def unknown(recorded: Sequence[Result], now: Iterable[Result]) -> list[Result]:
    """Return compared figures of this run that have no recorded value."""
    known = {one.key for one in recorded}
    return [one for one in now if one.unit in COMPARED and one.key not in known]
