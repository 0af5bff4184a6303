"""Which offset is safe to commit while records of a partition finish in any order, and what is done above it."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Iterable, Sequence
from operator import lt

__all__ = ["OffsetProgress"]


class OffsetProgress:
    """The unfinished records of one partition, as read from a start offset on.

    Guarantees:
        1. `safe_offset` is the smallest unfinished offset, or one past the last begun (RocketMQ: CC-13).
        2. It never goes back (CC-14), and never passes an unfinished record.
        3. Offsets may have gaps: compaction and transaction markers take some.
        4. What was done before a restart is done after it: whoever starts at `safe_offset` with `done_ahead` begins
           no finished record again.

    Args:
        done: offsets that were finished in an earlier life, as its `done_ahead` said.

    Attributes:
        is_unfinished: whether the record at an offset is begun and not finished.
    """

    __slots__ = ("_earlier", "_first", "_next", "_order", "_unfinished", "is_unfinished")

    def __init__(self, done: Iterable[int] = ()) -> None:
        self._earlier = set(done)
        self._order: deque[int] = deque()
        self._unfinished: set[int] = set()
        # Asked for each record, so it is C all the way.
        self.is_unfinished: Callable[[int], bool] = self._unfinished.__contains__
        self._first: int | None = None
        self._next: int | None = None

    def was_begun(self, offset: int) -> bool:
        """Whether this record, or what a gap has in its place, was begun here before."""
        return self._first is not None and self._next is not None and self._first <= offset < self._next

    def begin(self, offset: int) -> bool:
        """Take note of a record that was read; False if it was finished in an earlier life.

        Raises:
            ValueError: the offset is not higher than the last one, so the caller has read something twice.
        """
        if self._next is not None and offset < self._next:
            raise ValueError(f"offset {offset} was begun before; the next one must be {self._next} or higher")
        if self._first is None:
            self._first = offset
        self._next = offset + 1
        if self._earlier and offset in self._earlier:
            self._earlier.discard(offset)
            if self._order:
                self._order.append(offset)
            return False
        self._order.append(offset)
        self._unfinished.add(offset)
        return True

    def begin_all(self, offsets: Sequence[int]) -> bool:
        """`begin` for records that were read together; False, and nothing is noted, if some may be finished."""
        if self._earlier or not offsets:
            return False
        if (self._next is not None and offsets[0] < self._next) or not all(map(lt, offsets, offsets[1:])):
            raise ValueError(f"offsets {offsets[0]} to {offsets[-1]} must rise from {self._next} or higher")
        if self._first is None:
            self._first = offsets[0]
        self._next = offsets[-1] + 1
        self._order.extend(offsets)
        self._unfinished.update(offsets)
        return True

    def finish(self, offset: int) -> bool:
        """Take note that a record needs nothing more; False if it was finished already or never begun."""
        if offset not in self._unfinished:
            return False
        self.finish_all((offset,))
        return True

    def finish_all(self, offsets: Iterable[int]) -> None:
        """`finish` for several."""
        order, unfinished = self._order, self._unfinished
        unfinished.difference_update(offsets)
        while order and order[0] not in unfinished:
            order.popleft()

    @property
    def safe_offset(self) -> int | None:
        """What to commit; None as long as nothing was begun."""
        return self._order[0] if self._order else self._next

    def after(self, finished: Collection[int] = ()) -> tuple[int, list[int]] | None:
        """The safe offset and what is done above it, as they are when these are finished too; None before a begin."""
        if self._next is None:
            return None
        unfinished = self._unfinished.difference(finished) if finished else self._unfinished
        safe = next((one for one in self._order if one in unfinished), self._next) if self._order else self._next
        done = [one for one in self._order if one > safe and one not in unfinished]
        return safe, done + sorted(one for one in self._earlier if one >= safe)

    @property
    def unfinished(self) -> int:
        """How many records are begun and not finished."""
        return len(self._unfinished)

    @property
    def span(self) -> int:
        """From the smallest unfinished offset to the last begun; 0 when nothing is unfinished.

        One stuck record stops its partition when this passes a limit (RocketMQ: FC-03).
        """
        return self._next - 1 - self._order[0] if self._order and self._next is not None else 0
