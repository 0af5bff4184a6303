"""Which records may leave a partition before those in front of them, while a few groups fill it."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Hashable, Iterable, Sequence
from typing import Final

from reconsume.delay_levels.progress.done_apart import MOST_APART, REACH

__all__ = ["SMALL_PART", "Overtaking"]

SMALL_PART: Final = 10
"""The groups that overtake have together at most a tenth of what was looked at."""

_FORGET_AT: Final = 200_000
"""Records that are counted before the older ones count half."""


class Overtaking:
    """Looks at the due records of one partition, in order, and chooses.

    A group is small if it, and all groups that have no more records, have at most a tenth of all. So the records in
    front are held up by a ninth of their number at most, and where all groups have equally many none overtakes.

    Guarantees:
        1. Of one group none is chosen while one in front of it was left and is not done.
        2. What is chosen and not yet behind the head is at most `MOST_APART` records, less than `REACH` away.
        3. A group has no more of these places than are free, so there are some left for the next group.
    So a group overtakes with all that it has from the head on, or not at all until the head is past what was left, and
    keeps its order. Test: tests/unit/delay_levels/progress/test_overtaking.py.

    Args:
        done: offsets behind the head that are done already; they take places.
    """

    def __init__(self, done: Iterable[int] = ()) -> None:
        self._head = -1
        self._before = sorted(done)
        self._taken: deque[tuple[int, Hashable]] = deque()
        self._places: Counter[Hashable] = Counter()
        self._counts: Counter[Hashable] = Counter()
        self._left: dict[Hashable, int] = {}

    def choose(self, looked: Sequence[tuple[int, Hashable]], head: int) -> set[int]:
        """The offsets of those that overtake.

        Args:
            looked: offset and group of the next records; None is a group that never overtakes.
            head: the smallest offset that is not done.
        """
        if head > self._head:
            self._pass(head)
        groups = [group for _, group in looked]
        self._counts.update(groups)
        chosen = set[int]()
        # Most of a flood is of groups that were left already.
        most = self._most_of_a_small_group() if set(groups) - self._left.keys() else 0
        for offset, group in looked:
            small = group is not None and self._counts[group] <= most
            if small and group not in self._left and offset < head + REACH and self._has_place(group):
                self._taken.append((offset, group))
                self._places[group] += 1
                chosen.add(offset)
            else:
                self._left[group] = offset
        if self._counts.total() > _FORGET_AT:
            self._counts = Counter({group: half for group, count in self._counts.items() if (half := count // 2)})
        return chosen

    def _pass(self, head: int) -> None:
        """Everything before the head is done."""
        self._head = head
        self._left = {group: offset for group, offset in self._left.items() if offset >= head}
        self._before = [offset for offset in self._before if offset >= head]
        while self._taken and self._taken[0][0] < head:
            _, group = self._taken.popleft()
            self._places[group] -= 1
            if not self._places[group]:
                del self._places[group]

    def _has_place(self, group: Hashable) -> bool:
        return self._places[group] < MOST_APART - len(self._taken) - len(self._before)

    def _most_of_a_small_group(self) -> int:
        """A group with more records than this is not small."""
        total, together, most = self._counts.total(), 0, 0
        for count, groups in sorted(Counter(self._counts.values()).items()):
            together += count * groups
            if together * SMALL_PART > total:
                break
            most = count
        return most
