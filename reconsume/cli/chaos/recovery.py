"""How long after each fault the last step was that came late."""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Final

from reconsume.cli.chaos.faults import Kind

__all__ = ["LATE_MS", "Inflicted", "recoveries", "summary"]

LATE_MS: Final = 1_000


@dataclass(frozen=True, slots=True)
class Inflicted:
    """A fault as it was; milliseconds since the epoch."""

    kind: Kind
    began_ms: float
    ended_ms: float


def recoveries(faults: Sequence[Inflicted], late: Iterable[tuple[int, int]]) -> dict[Kind, list[float]]:
    """Seconds from the end of each fault until lateness is back under a second; 0 if it never was above.

    Args:
        faults: in order of time.
        late: steps that were late, by when they were due and done. A step belongs to the last fault that began before
            the step was late, so what a later fault holds up counts for the earlier one too.
    """
    began = [one.began_ms for one in faults]
    last = [one.ended_ms for one in faults]
    for due_ms, done_ms in late:
        index = bisect_right(began, due_ms + LATE_MS) - 1
        if index >= 0:
            last[index] = max(last[index], done_ms)
    found: dict[Kind, list[float]] = defaultdict(list)
    for one, until in zip(faults, last, strict=True):
        found[one.kind].append(round((until - one.ended_ms) / 1000, 1))
    return dict(found)


def summary(seconds: dict[Kind, list[float]]) -> dict[str, dict[str, float]]:
    """By kind: how many, the median, and the longest."""
    return {
        str(kind): {"faults": len(all_of), "median_seconds": round(median(all_of), 1), "max_seconds": max(all_of)}
        for kind, all_of in sorted(seconds.items())
    }
