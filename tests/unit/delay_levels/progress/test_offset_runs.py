"""A set of offsets kept as runs, against a plain set."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from reconsume.delay_levels.progress.offset_runs import OffsetRuns, runs_of


@given(st.sets(st.integers(0, 40)))
def test_rising_offsets_are_taken_as_runs(offsets: set[int]) -> None:
    runs = list(runs_of(sorted(offsets)))
    assert [offset for run in runs for offset in run] == sorted(offsets)
    assert all(one.stop < other.start for one, other in pairwise(runs))


def test_a_range_is_one_run() -> None:
    assert list(runs_of(range(7, 9))) == [range(7, 9)]


def test_what_does_not_lie_behind_all_others_is_not_added() -> None:
    runs = OffsetRuns([range(3, 6)])
    with pytest.raises(ValueError, match="offset 5 must be 6 or higher"):
        runs.append(range(5, 8))
    assert list(runs) == [3, 4, 5]


def test_what_is_no_offset_is_not_in_it() -> None:
    assert "3" not in OffsetRuns([range(3, 6)])


class RunsAgainstASet(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.runs = OffsetRuns()
        self.model: set[int] = set()
        self.end = 0

    @rule(gap=st.integers(0, 2), size=st.integers(0, 6))
    def append(self, gap: int, size: int) -> None:
        run = range(self.end + gap, self.end + gap + size)
        self.runs.append(run)
        self.model.update(run)
        self.end = run.stop

    @rule(data=st.data(), size=st.integers(0, 5))
    def remove(self, data: st.DataObject, size: int) -> None:
        first = data.draw(st.integers(0, self.end + 1))
        run = range(first, first + size)
        whole = bool(run) and self.model.issuperset(run)
        assert self.runs.remove(run) == whole
        if whole:
            self.model.difference_update(run)

    @rule(data=st.data())
    def remove_below(self, data: st.DataObject) -> None:
        offset = data.draw(st.integers(0, self.end + 1))
        self.runs.remove_below(offset)
        self.model = {one for one in self.model if one >= offset}

    @rule(others=st.sets(st.integers(0, 30)))
    def without(self, others: set[int]) -> None:
        assert list(self.runs.without(others)) == sorted(self.model - others)

    @invariant()
    def agrees_with_the_set(self) -> None:
        assert list(self.runs) == sorted(self.model)
        assert len(self.runs) == len(self.model)
        assert self.runs.first == min(self.model, default=None)
        assert all((offset in self.runs) == (offset in self.model) for offset in range(self.end + 2))

    @invariant()
    def no_run_touches_the_next(self) -> None:
        assert all(one.stop < other.start for one, other in pairwise(self.runs.runs()))


RunsAgainstASet.TestCase.settings = settings(max_examples=100, stateful_step_count=30, deadline=None)
TestRunsAgainstASet = RunsAgainstASet.TestCase
