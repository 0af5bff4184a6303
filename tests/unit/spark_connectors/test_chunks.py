"""How a replay is cut into chunks and paced."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reconsume.spark_connectors.replay.chunks import (
    Bucket,
    Pace,
    Range,
    ReplayChunk,
    chunk_size,
    chunks_of,
    parts_of,
)
from reconsume.spark_connectors.replay.events import RunEvent, is_overtaken

WIDTH = 7
PLACES = st.tuples(st.sampled_from(["a", "b"]), st.integers(0, 2), st.integers(0, 30))


@given(st.dictionaries(PLACES, st.integers(0, 9)), st.integers(1, 20))
def test_each_bucket_that_is_left_is_in_one_chunk_and_no_other_bucket_is(
    to_send: dict[tuple[str, int, int], int], size: int
) -> None:
    chunks = chunks_of([Bucket(*place, count, count == 0) for place, count in to_send.items()], size, WIDTH)
    covered = [
        (piece.topic, piece.partition, number)
        for chunk in chunks
        for piece in chunk.ranges
        for number in _numbers(piece)
    ]
    assert len(covered) == len(set(covered))
    # Places without a bucket hold nothing that could be sent.
    assert {place for place in covered if place in to_send} == {place for place, count in to_send.items() if count}
    for chunk in chunks:
        counts = [to_send[place] for place in covered if place in to_send and _within(place, chunk)]
        assert sum(counts) == chunk.to_send
        assert chunk.to_send <= size or len(counts) == 1


def _numbers(piece: Range) -> range:
    """The buckets that it covers, all of each."""
    assert piece.first % WIDTH == 0
    assert piece.last % WIDTH == WIDTH - 1
    return range(piece.first // WIDTH, piece.last // WIDTH + 1)


def _within(place: tuple[str, int, int], chunk: ReplayChunk) -> bool:
    return any((piece.topic, piece.partition) == place[:2] and place[2] in _numbers(piece) for piece in chunk.ranges)


def test_a_chunk_says_whether_some_of_it_was_sent() -> None:
    buckets = [
        Bucket("t", 0, 1, 5, partly=False),
        Bucket("t", 0, 2, 5, partly=True),
        Bucket("t", 1, 0, 5, partly=False),
    ]
    assert chunks_of(buckets, 10, 100) == [
        ReplayChunk((Range("t", 0, 100, 299),), 10, partly=True),
        ReplayChunk((Range("t", 1, 0, 99),), 5, partly=False),
    ]


@given(st.sets(st.integers(0, 999), min_size=1), st.integers(1, 50), st.booleans())
def test_a_bucket_is_cut_into_chunks_that_the_rate_allows(offsets: set[int], size: int, partly: bool) -> None:
    whole = ReplayChunk((Range("t", 3, 0, 999),), len(offsets), partly=partly)
    parts = parts_of(whole, sorted(offsets), size)
    covered = [sorted(offsets & set(range(part.ranges[0].first, part.ranges[0].last + 1))) for part in parts]
    assert [one for part in covered for one in part] == sorted(offsets), "each once, in order"
    assert [part.to_send for part in parts] == [len(one) for one in covered]
    assert all(part.to_send <= size for part in parts)
    assert all((part.partly, part.ranges[0].topic, part.ranges[0].partition) == (partly, "t", 3) for part in parts)


@pytest.mark.parametrize(("rate", "size"), [(None, 200_000), (0.5, 1), (100, 100), (1e9, 200_000)])
def test_a_chunk_is_about_a_second_of_the_rate(rate: float | None, size: int) -> None:
    assert chunk_size(rate) == size


CHUNKS = st.lists(st.tuples(st.integers(1, 50), st.floats(0, 3), st.floats(0, 1)), max_size=30)


@given(CHUNKS, st.floats(0.1, 50))
def test_no_second_has_more_than_the_rate(chunks: list[tuple[int, float, float]], rate: float) -> None:
    """Whenever within its job the records of a chunk were stored, and however long the job took."""
    pace, now, stored = Pace(rate), 0.0, list[tuple[float, int]]()
    for wanted, took, at in chunks:
        count = min(wanted, chunk_size(rate))
        now += pace.wait_seconds(count, now)
        stored.append((now + took * at, count))
        now += took
        pace.sent(count, now)
    period = max(1.0, 1 / rate)
    for begin, _ in stored:
        assert sum(count for moment, count in stored if begin <= moment < begin + period - 1e-6) <= max(1, rate)


@pytest.mark.parametrize(
    ("rate", "sent", "now", "wait"),
    [
        (10, [], 0, 0),
        (10, [(10, 5.0)], 5.2, 0.8),
        (10, [(5, 5.0)], 5.2, 0.8),
        (10, [(4, 5.0), (4, 5.5)], 5.6, 0.9),
        (10, [(10, 5.0)], 60, 0),
        (0.5, [(1, 5.0)], 5.5, 1.5),
        (None, [(200_000, 5.0)], 5.0, 0),
        (400_000, [(200_000, 5.0)], 5.0, 0.5),
    ],
)
def test_a_chunk_waits_until_the_second_has_room_for_all_of_it(
    rate: float | None, sent: list[tuple[int, float]], now: float, wait: float
) -> None:
    pace = Pace(rate)
    for count, ended in sent:
        pace.sent(count, ended)
    assert pace.wait_seconds(chunk_size(rate), now) == pytest.approx(wait)


def test_a_run_that_was_slow_does_not_catch_up() -> None:
    pace, now = Pace(10), 0.0
    pace.sent(10, 60.0)
    now = 60.0
    for _ in range(5):
        wait = pace.wait_seconds(10, now)
        assert wait == pytest.approx(1.0)
        now += wait
        pace.sent(10, now)


def test_the_last_run_that_started_goes_on_and_all_others_stop() -> None:
    events = [RunEvent(1, "a", "started", 0), RunEvent(2, "b", "started", 0), RunEvent(3, "a", "finished", 9)]
    assert [is_overtaken(events, run) for run in ("a", "b")] == [True, False]
    assert not is_overtaken([], "a")
