"""Lateness of deliveries during each fault, and the time until the last late one."""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from math import ceil
from statistics import median
from typing import Final, NamedTuple

from reconsume.cli.chaos.faults import FaultKind

LATE_MS: Final = 1_000


@dataclass(frozen=True, slots=True)
class Inflicted:
    """An applied fault; milliseconds since the epoch."""

    kind: FaultKind
    began_ms: float
    ended_ms: float


class Recovery(NamedTuple):
    """Seconds until no step is late by a second or more.

    Attributes:
        from_beginning: from the start of the fault, as a user experiences a kill.
        from_end: from the return of the process, broker or right.
    """

    from_beginning: float
    from_end: float


def recoveries(faults: Sequence[Inflicted], late: Iterable[tuple[int, int]]) -> dict[FaultKind, list[Recovery]]:
    """Return how long each fault delayed steps; 0 if none was late.

    Args:
        faults: the faults in order of time.
        late: late steps, with their due and actual times. A step belongs to the last fault that began before it was
            late, so a delay by a later fault counts for the earlier one too.
    """
    began = [one.began_ms for one in faults]
    last: list[float] = [0] * len(faults)
    for due_ms, done_ms in late:
        index = bisect_right(began, due_ms + LATE_MS) - 1
        if index >= 0:
            last[index] = max(last[index], done_ms)
    found: dict[FaultKind, list[Recovery]] = defaultdict(list)
    for one, until in zip(faults, last, strict=True):
        found[one.kind].append(Recovery(_seconds(until - one.began_ms), _seconds(until - one.ended_ms)))
    return dict(found)


def _seconds(ms: float) -> float:
    return round(max(0.0, ms) / 1000, 1)


def summary(found: Mapping[FaultKind, Sequence[Recovery]]) -> dict[str, dict[str, float]]:
    """Return by kind the number of faults, median and maximum from the start, and the same from the end."""
    return {
        str(kind): {
            "faults": len(all_of),
            "median_seconds": round(median(one.from_beginning for one in all_of), 1),
            "max_seconds": max(one.from_beginning for one in all_of),
            "median_seconds_after_end": round(median(one.from_end for one in all_of), 1),
            "max_seconds_after_end": max(one.from_end for one in all_of),
        }
        for kind, all_of in sorted(found.items())
    }


def lateness(faults: Sequence[Inflicted], deliveries: Iterable[tuple[int, int]]) -> dict[str, dict[str, float]]:
    """Return by kind the lateness of deliveries that were due between the start of its faults and the next fault.

    A fault inherits the backlog of the previous one, so there is also the median of the 99th percentiles of each fault
    of the kind.

    Args:
        faults: the faults in order of time.
        deliveries: due and actual time of each.
    """
    began = [one.began_ms for one in faults]
    seconds: list[list[float]] = [[] for _ in faults]
    for due_ms, done_ms in deliveries:
        index = bisect_right(began, due_ms) - 1
        if index >= 0:
            seconds[index].append(max(0, done_ms - due_ms) / 1000)
    by_kind: dict[FaultKind, list[list[float]]] = defaultdict(list)
    for one, found in zip(faults, seconds, strict=True):
        if found:
            by_kind[one.kind].append(sorted(found))
    return {str(kind): _lateness(found) for kind, found in sorted(by_kind.items())}


def _lateness(faults: Sequence[Sequence[float]]) -> dict[str, float]:
    together = sorted(chain.from_iterable(faults))
    return {
        "deliveries": len(together),
        "p99_seconds": round(_p99(together), 3),
        "median_p99_seconds": round(median(map(_p99, faults)), 3),
        "max_seconds": round(together[-1], 3),
    }


def _p99(in_order: Sequence[float]) -> float:
    """Return the smallest value that is at least as large as 99 % of them."""
    return in_order[ceil(len(in_order) * 0.99) - 1]
