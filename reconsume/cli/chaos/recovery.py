"""How late deliveries were during each fault, and how long after its beginning and its end the last late one was."""

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

__all__ = ["LATE_MS", "Inflicted", "Recovery", "lateness", "recoveries", "summary"]

LATE_MS: Final = 1_000


@dataclass(frozen=True, slots=True)
class Inflicted:
    """A fault as it was; milliseconds since the epoch."""

    kind: FaultKind
    began_ms: float
    ended_ms: float


class Recovery(NamedTuple):
    """Seconds until no step is late by a second or more.

    Attributes:
        from_beginning: a user waits so long after a kill.
        from_end: from the moment when the process, broker or right is back.
    """

    from_beginning: float
    from_end: float


def recoveries(faults: Sequence[Inflicted], late: Iterable[tuple[int, int]]) -> dict[FaultKind, list[Recovery]]:
    """How long each fault held steps up; 0 if none was late.

    Args:
        faults: in order of time.
        late: steps that were late, by when they were due and done. A step belongs to the last fault that began before
            the step was late, so what a later fault holds up counts for the earlier one too.
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
    """By kind: how many faults, median and maximum from the beginning, and the same from the end."""
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
    """By kind, how late those deliveries were that were due from the beginning of its faults to that of the next one.

    A fault takes over what the one before it has held up, so there is a median too: of the 99th percentiles of each
    fault of the kind.

    Args:
        faults: in order of time.
        deliveries: when each was due and done.
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
    """The smallest of which 99 % are no greater."""
    return in_order[ceil(len(in_order) * 0.99) - 1]
