"""Two works measured in turns, so that a busy machine meets both: what counts is the ratio of neighbours."""

from __future__ import annotations

import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass

__all__ = ["ROUNDS", "Measured", "Told", "in_turns", "run_program", "spread"]

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


@dataclass(frozen=True, slots=True)
class Told:
    """What a program says of itself.

    Attributes:
        rate: messages per second.
        cpu: seconds of its process for a message, all threads together.
    """

    rate: float
    cpu: float

    def __str__(self) -> str:
        return f"{self.rate:,.0f}/s with {self.cpu * 1e6:.2f} us of CPU each"


def run_program(program: str, *arguments: str) -> Told:
    """Run it in a process of its own; it prints its rate and its CPU time for a message."""
    command = [sys.executable, "-c", program, *arguments]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    return Told(*map(float, done.stdout.split()))


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
