"""Two works measured in turns, so that a busy machine meets both: what counts is the ratio of neighbours."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass

__all__ = ["ROUNDS", "Measured", "in_turns", "spread"]

ROUNDS = 3


@dataclass(frozen=True, slots=True)
class Measured:
    """Seconds of the work that is compared with, and of the one that is compared; neighbours belong together."""

    baseline: list[float]
    work: list[float]

    @property
    def ratios(self) -> list[float]:
        """How fast the work is: 1 is as fast as the baseline."""
        return [one / other for one, other in zip(self.baseline, self.work, strict=True)]


def in_turns(baseline: Callable[[], object], work: Callable[[], object], rounds: int = ROUNDS) -> Measured:
    """Each once to warm up, for the first of each compiles what the others use; then by turns."""
    baseline(), work()
    pairs = [(_timed(baseline), _timed(work)) for _ in range(rounds)]
    return Measured([one for one, _ in pairs], [other for _, other in pairs])


def spread(values: list[float], form: str) -> str:
    """`min median max`."""
    return " ".join(format(one, form) for one in (min(values), statistics.median(values), max(values)))


def _timed(work: Callable[[], object]) -> float:
    began = time.perf_counter()
    work()
    return time.perf_counter() - began
