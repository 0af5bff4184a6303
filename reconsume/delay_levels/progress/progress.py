"""The offset to commit while records of a partition finish in any order, and the finished records above it."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from operator import lt

from reconsume.delay_levels.progress.offset_runs import OffsetRuns, runs_of


class OffsetProgress:
    """The unfinished records of a partition, from a start offset on.

    Guarantees:
        1. `safe_offset` is the smallest unfinished offset, or one past the last begun (RocketMQ: CC-13).
        2. It never decreases (CC-14), and never passes an unfinished record.
        3. Offsets may have gaps: compaction and transaction markers take some.
        4. Finished records stay finished over a restart: a consumer that starts at `safe_offset` with `done_ahead`
           begins none of them again.

    Args:
        done: offsets that an earlier owner has finished, from its `done_ahead`.
        start: the committed offset; every record below it is finished.
    """

    __slots__ = ("_begun", "_earlier", "_first", "_next", "_start", "_unfinished")

    def __init__(self, done: Iterable[int] = (), start: int = 0) -> None:
        self._earlier = set(done)
        self._start = start
        # May contain offsets below the safe offset, until the next record begins.
        self._begun = OffsetRuns()
        self._unfinished = OffsetRuns()
        self._first: int | None = None
        self._next: int | None = None

    def was_begun(self, offset: int) -> bool:
        """Return whether this offset is below the start or was begun here before."""
        if offset < self._start:
            return True
        return self._first is not None and self._next is not None and self._first <= offset < self._next

    def begin(self, offset: int) -> bool:
        """Note a record that was read; False if an earlier owner has finished it.

        Raises:
            ValueError: the offset is not higher than the last one, so the caller has read a record twice.
        """
        if self._next is not None and offset < self._next:
            raise ValueError(f"offset {offset} was begun before; the next one must be {self._next} or higher")
        run = range(offset, offset + 1)
        if self._earlier and offset in self._earlier:
            self._earlier.discard(offset)
            self._note(run)
            return False
        self._note(run)
        self._unfinished.append(run)
        return True

    def begin_all(self, offsets: Sequence[int]) -> bool:
        """Note records that were read together; False, without a change, if some may be finished."""
        if self._earlier or not offsets:
            return False
        rising = isinstance(offsets, range) or all(map(lt, offsets, offsets[1:]))
        if (self._next is not None and offsets[0] < self._next) or not rising:
            raise ValueError(f"offsets {offsets[0]} to {offsets[-1]} must rise from {self._next} or higher")
        for run in runs_of(offsets):
            self._note(run)
            self._unfinished.append(run)
        return True

    def _note(self, run: range) -> None:
        if self._first is None:
            self._first = run.start
        safe = self.safe_offset
        if safe is not None:
            self._begun.remove_below(safe)
        self._begun.append(run)
        self._next = run.stop

    def finish(self, offset: int) -> bool:
        """Note that a record is finished; False if it was finished already or never begun."""
        return self._unfinished.remove(range(offset, offset + 1))

    def finish_all(self, offsets: Sequence[int]) -> None:
        """Note that several records are finished, in rising order."""
        for run in runs_of(offsets):
            if not self._unfinished.remove(run):
                for offset in run:
                    self.finish(offset)

    def finish_everything(self) -> None:
        """Note that all begun records are finished."""
        self._unfinished = OffsetRuns()

    @property
    def safe_offset(self) -> int | None:
        """Return the offset to commit; None before the first record."""
        first = self._unfinished.first
        return self._next if first is None else first

    def after(self, finished: Collection[int] = ()) -> tuple[int, list[int]] | None:
        """Return the safe offset and the done ones above it, as if these were finished too; None before a begin."""
        if self._next is None:
            return None
        unfinished = self._unfinished.without(finished) if finished else self._unfinished
        safe = self._next if unfinished.first is None else unfinished.first
        earlier = sorted(one for one in self._earlier if one >= safe)
        if len(unfinished) == self._next - safe:
            return safe, earlier
        above = set(self._begun).difference(unfinished)
        return safe, sorted(one for one in above if one > safe) + earlier

    @property
    def end(self) -> int:
        """Return the offset behind the last begun record; 0 before the first."""
        return self._next or 0

    @property
    def unfinished(self) -> int:
        """The number of unfinished records."""
        return len(self._unfinished)

    @property
    def span(self) -> int:
        """The distance from the smallest unfinished offset to the last begun one; 0 if nothing is unfinished.

        One stuck record stops its partition when this passes a limit (RocketMQ: FC-03).
        """
        first = self._unfinished.first
        return 0 if first is None or self._next is None else self._next - 1 - first
