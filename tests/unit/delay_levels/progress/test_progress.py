"""Offset progress: commit up to the smallest unfinished record, never past it, never back."""

from __future__ import annotations

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from reconsume.delay_levels.progress.progress import OffsetProgress


def begun(*offsets: int) -> OffsetProgress:
    progress = OffsetProgress()
    for offset in offsets:
        progress.begin(offset)
    return progress


@pytest.mark.rule("CC-13", "T-15")
@pytest.mark.parametrize(
    ("offsets", "finished", "safe"),
    [
        ([5, 6, 7], [], 5),
        ([5, 6, 7], [5], 6),
        ([5, 6, 7], [6, 7], 5),
        ([5, 6, 7], [7, 5], 6),
        ([5, 6, 7], [6, 5], 7),
        ([5, 6, 7], [7, 6, 5], 8),
        ([5, 9, 20], [5], 9),
        ([5, 9, 20], [5, 9], 20),
        ([5, 9, 20], [5, 9, 20], 21),
        ([0], [0], 1),
    ],
    ids=str,
)
def test_the_safe_offset_is_the_smallest_unfinished_or_one_past_the_last(
    offsets: list[int], finished: list[int], safe: int
) -> None:
    progress = begun(*offsets)
    for offset in finished:
        assert progress.finish(offset)
    assert progress.safe_offset == safe


def test_nothing_begun_is_nothing_to_commit() -> None:
    progress = OffsetProgress()
    assert progress.safe_offset is None
    assert (progress.unfinished, progress.span) == (0, 0)


@pytest.mark.rule("CC-13", "T-15")
def test_a_record_that_could_not_be_sent_back_holds_the_offset_but_not_the_others() -> None:
    progress = begun(*range(100, 110))
    for offset in (101, 102, 103, 104, 105, 106, 107, 108, 109):
        progress.finish(offset)
    assert progress.safe_offset == 100
    assert progress.unfinished == 1
    progress.finish(100)
    assert progress.safe_offset == 110


@pytest.mark.rule("CC-14")
@pytest.mark.parametrize("again", [7, 6, 0])
def test_what_was_begun_is_not_begun_again(again: int) -> None:
    progress = begun(5, 7)
    progress.finish(5)
    with pytest.raises(ValueError, match=f"offset {again} was begun before; the next one must be 8 or higher"):
        progress.begin(again)
    assert progress.safe_offset == 7


@pytest.mark.rule("CC-14")
@pytest.mark.parametrize("offsets", [[7], [3, 9], [8, 8], [9, 8], [8, 10, 9]], ids=str)
def test_of_a_run_that_does_not_rise_nothing_is_begun(offsets: list[int]) -> None:
    progress = begun(5, 7)
    with pytest.raises(ValueError, match="must rise from 8 or higher"):
        progress.begin_all(offsets)
    assert (progress.unfinished, progress.span) == (2, 2)


def test_a_run_is_begun_at_once_unless_an_earlier_life_may_have_finished_some() -> None:
    progress = OffsetProgress()
    assert progress.begin_all([5, 6, 9])
    progress.finish_all([5, 9])
    assert (progress.unfinished, progress.safe_offset, progress.span) == (1, 6, 3)
    assert not OffsetProgress(done=[6]).begin_all([5, 6])
    assert not progress.begin_all([])


def test_finishing_twice_or_finishing_what_was_never_begun_says_so() -> None:
    progress = begun(5, 7)
    assert progress.finish(5)
    assert not progress.finish(5)
    assert not progress.finish(6)
    assert not progress.finish(8)
    assert progress.safe_offset == 7


@pytest.mark.parametrize(
    ("offsets", "finished", "span"),
    [
        ([5], [], 0),
        ([5, 6], [], 1),
        ([5, 2005], [], 2000),
        ([5, 6, 7], [5], 1),
        ([5, 6, 7], [7], 2),
        ([5, 6], [5, 6], 0),
    ],
    ids=str,
)
def test_the_span_reaches_from_the_smallest_unfinished_to_the_last_begun(
    offsets: list[int], finished: list[int], span: int
) -> None:
    progress = begun(*offsets)
    for offset in finished:
        progress.finish(offset)
    assert progress.span == span


class ProgressAgainstAModel(RuleBasedStateMachine):
    """The model keeps every offset it ever saw and counts afresh each time."""

    @initialize(start=st.integers(0, 2**40))
    def start(self, start: int) -> None:
        self.progress = OffsetProgress()
        self.next = start
        self.begun: list[int] = []
        self.finished: set[int] = set()
        self.last_safe: int | None = None

    def unfinished(self) -> list[int]:
        return [offset for offset in self.begun if offset not in self.finished]

    @rule(gap=st.integers(0, 3) | st.just(1_000), count=st.integers(1, 4))
    def begin(self, gap: int, count: int) -> None:
        for offset in range(self.next + gap, self.next + gap + count):
            self.progress.begin(offset)
            self.begun.append(offset)
        self.next += gap + count

    @precondition(lambda self: self.unfinished())
    @rule(data=st.data())
    def finish(self, data: st.DataObject) -> None:
        offset = data.draw(st.sampled_from(self.unfinished()))
        assert self.progress.finish(offset)
        self.finished.add(offset)

    @precondition(lambda self: self.begun)
    @rule(data=st.data())
    def finish_any(self, data: st.DataObject) -> None:
        offset = data.draw(st.integers(self.begun[0] - 2, self.next + 2))
        assert self.progress.finish(offset) == (offset in self.unfinished())
        if offset in self.begun:
            self.finished.add(offset)

    @rule()
    def finish_everything(self) -> None:
        self.progress.finish_everything()
        self.finished.update(self.begun)

    @precondition(lambda self: self.begun)
    @rule(back=st.integers(1, 5))
    def begin_again(self, back: int) -> None:
        with pytest.raises(ValueError, match="was begun before"):
            self.progress.begin(self.begun[-1] + 1 - back)

    @invariant()
    def agrees_with_the_model(self) -> None:
        unfinished = self.unfinished()
        safe = None if not self.begun else min(unfinished, default=self.begun[-1] + 1)
        assert self.progress.safe_offset == safe
        assert self.progress.unfinished == len(unfinished)
        assert self.progress.span == (self.begun[-1] - unfinished[0] if unfinished else 0)

    @invariant()
    def never_goes_back(self) -> None:
        safe = self.progress.safe_offset
        assert self.last_safe is None or (safe is not None and safe >= self.last_safe)
        self.last_safe = safe


ProgressAgainstAModel.TestCase.settings = settings(max_examples=50, stateful_step_count=30, deadline=None)

# Random histories, with gaps as compaction and transaction markers leave them.
TestProgressAgainstAModel = pytest.mark.rule("CC-13", "CC-14", "T-15", "T-25")(ProgressAgainstAModel.TestCase)
