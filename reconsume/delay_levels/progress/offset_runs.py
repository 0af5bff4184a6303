"""A set of offsets that is stored as runs without gaps."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from itertools import count, groupby
from operator import sub


class OffsetRuns:
    """Offsets in order, stored as runs: adding or removing a run costs as much as one offset.

    Offsets are added at the end only, and removed anywhere.
    """

    __slots__ = ("_ends", "_firsts", "_size")

    def __init__(self, runs: Iterable[range] = ()) -> None:
        self._firsts: list[int] = []
        self._ends: list[int] = []
        self._size = 0
        for run in runs:
            self.append(run)

    def append(self, run: range) -> None:
        """Add a run behind all others.

        Raises:
            ValueError: the run is not behind the others.
        """
        if not run:
            return
        if self._ends and run.start < self._ends[-1]:
            raise ValueError(f"offset {run.start} must be {self._ends[-1]} or higher")
        if self._ends and run.start == self._ends[-1]:
            self._ends[-1] = run.stop
        else:
            self._firsts.append(run.start)
            self._ends.append(run.stop)
        self._size += len(run)

    def remove(self, run: range) -> bool:
        """Remove a run; False, without a change, if part of it is missing."""
        first, end = run.start, run.stop
        firsts, ends = self._firsts, self._ends
        place = bisect_right(firsts, first) - 1
        if place < 0 or ends[place] < end or first >= end:
            return False
        self._size -= end - first
        if firsts[place] < first:
            if end < ends[place]:
                firsts.insert(place + 1, end)
                ends.insert(place, first)
            else:
                ends[place] = first
        elif end < ends[place]:
            firsts[place] = end
        else:
            del firsts[place], ends[place]
        return True

    def remove_below(self, offset: int) -> None:
        """Remove all offsets below one."""
        whole = bisect_right(self._ends, offset)
        self._size -= sum(self._ends[:whole]) - sum(self._firsts[:whole])
        del self._firsts[:whole], self._ends[:whole]
        if self._firsts and self._firsts[0] < offset:
            self._size -= offset - self._firsts[0]
            self._firsts[0] = offset

    def without(self, offsets: Iterable[int]) -> OffsetRuns:
        """Return a copy without these offsets."""
        copy = OffsetRuns(self.runs())
        for offset in offsets:
            copy.remove(range(offset, offset + 1))
        return copy

    def runs(self) -> Iterator[range]:
        """Return the runs in order; no two are adjacent."""
        return map(range, self._firsts, self._ends)

    @property
    def first(self) -> int | None:
        """Return the smallest offset; None if the set is empty."""
        return self._firsts[0] if self._firsts else None

    def __contains__(self, offset: object) -> bool:
        if not isinstance(offset, int):
            return False
        place = bisect_right(self._firsts, offset) - 1
        return place >= 0 and offset < self._ends[place]

    def __iter__(self) -> Iterator[int]:
        for run in self.runs():
            yield from run

    def __len__(self) -> int:
        return self._size


def runs_of(offsets: Sequence[int]) -> Iterable[range]:
    """Return rising offsets as runs, in order."""
    if isinstance(offsets, range):
        return (offsets,)
    if not offsets:
        return ()
    first, last = offsets[0], offsets[-1]
    if last - first + 1 == len(offsets):
        return (range(first, last + 1),)
    found = (
        list(run) for _, run in groupby(zip(map(sub, offsets, count()), offsets, strict=False), lambda pair: pair[0])
    )
    return [range(run[0][1], run[-1][1] + 1) for run in found]
