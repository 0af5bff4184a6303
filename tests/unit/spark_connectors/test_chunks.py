"""How a replay is cut into chunks and paced."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reconsume.spark_connectors.replay.chunks import ReplayChunk, chunk_size, chunks_of, pause_seconds, unsettled
from reconsume.spark_connectors.replay.execution import RunEvent, is_overtaken

FAR = 1_000


@given(st.lists(st.integers(0, 50)), st.integers(1, 20))
def test_each_number_is_in_one_chunk_in_order_and_all_chunks_but_the_last_are_full(
    lengths: list[int], size: int
) -> None:
    runs = [range(FAR * number, FAR * number + length) for number, length in enumerate(lengths)]
    numbers = [number for run in runs for number in run]
    chunks = list(chunks_of(runs, size))
    covered = [[number for number in numbers if one.first <= number <= one.last] for one in chunks]
    assert [number for one in covered for number in one] == numbers, "each once, in order"
    assert [one.size for one in chunks] == [len(one) for one in covered]
    assert all(one.size == size for one in chunks[:-1])
    assert all(0 < one.size <= size for one in chunks)


def test_a_chunk_goes_on_in_the_next_file() -> None:
    assert list(chunks_of([range(3), range(10, 14)], 5)) == [ReplayChunk(0, 11, 5), ReplayChunk(12, 13, 2)]


@given(st.sets(st.integers(0, 40)), st.integers(1, 7), st.data())
def test_what_was_settled_meanwhile_is_in_no_chunk(all_numbers: set[int], size: int, data: st.DataObject) -> None:
    """The numbers may have gaps: chunks begin again at each file."""
    numbers = sorted(all_numbers)
    settled = sorted(data.draw(st.sets(st.sampled_from(numbers)))) if numbers else []
    chunks = list(chunks_of([range(number, number + 1) for number in numbers], size))
    for one in chunks:
        rest = [at for at in numbers if one.first <= at <= one.last and at not in settled]
        assert unsettled(one, settled) == len(rest)


@pytest.mark.parametrize(("rate", "size"), [(None, 200_000), (0.5, 1), (100, 100), (1e9, 200_000)])
def test_a_chunk_is_about_a_second_of_the_rate(rate: float | None, size: int) -> None:
    assert chunk_size(rate) == size


@given(st.lists(st.tuples(st.floats(0, 3), st.floats(0, 1)), max_size=30), st.floats(0.1, 50) | st.floats(1e5, 1e6))
def test_no_second_has_more_than_the_rate(chunks: list[tuple[float, float]], rate: float) -> None:
    """Whenever within its job the records of a chunk were stored, and however long the job took."""
    now, stored = 0.0, list[float]()
    for took, at in chunks:
        stored.append(now + took * at)
        now += took + pause_seconds(rate)
    size, period = chunk_size(rate), pause_seconds(rate)
    for begin in stored:
        inside = sum(begin <= moment < begin + period - 1e-6 for moment in stored)
        assert inside * size <= max(1, rate * period) + 1e-6


@pytest.mark.parametrize(("rate", "pause"), [(None, 0), (0.5, 2), (1.5, 1), (10, 1), (200_000, 1), (400_000, 0.5)])
def test_a_second_without_records_follows_a_chunk(rate: float | None, pause: float) -> None:
    """So a run that was slow does not catch up."""
    assert pause_seconds(rate) == pytest.approx(pause)


def test_the_last_run_that_started_goes_on_and_all_others_stop() -> None:
    events = [RunEvent(1, "a", "started"), RunEvent(2, "b", "started"), RunEvent(3, "a", "finished")]
    assert [is_overtaken(events, run) for run in ("a", "b")] == [True, False]
    assert not is_overtaken([], "a")
