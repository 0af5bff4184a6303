"""How a replay is cut into chunks and paced."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reconsume.spark_connectors.replay.chunks import Bucket, Chunk, Range, chunk_size, chunks_of, wait_seconds
from reconsume.spark_connectors.replay.events import Event, is_overtaken

PLACES = st.tuples(st.sampled_from(["a", "b"]), st.integers(0, 2), st.integers(0, 30))


@given(st.dictionaries(PLACES, st.integers(0, 9)), st.integers(1, 20))
def test_each_bucket_that_is_left_is_in_one_chunk_and_no_other_bucket_is(
    to_send: dict[tuple[str, int, int], int], size: int
) -> None:
    chunks = chunks_of([Bucket(*place, count, count == 0) for place, count in to_send.items()], size)
    covered = [
        (piece.topic, piece.partition, number)
        for chunk in chunks
        for piece in chunk.ranges
        for number in range(piece.first, piece.last + 1)
    ]
    assert len(covered) == len(set(covered))
    # Places without a bucket hold nothing that could be sent.
    assert {place for place in covered if place in to_send} == {place for place, count in to_send.items() if count}
    for chunk in chunks:
        counts = [to_send[place] for place in covered if place in to_send and _within(place, chunk)]
        assert sum(counts) == chunk.to_send
        assert chunk.to_send <= size or len(counts) == 1


def _within(place: tuple[str, int, int], chunk: Chunk) -> bool:
    return any(
        (piece.topic, piece.partition) == place[:2] and piece.first <= place[2] <= piece.last for piece in chunk.ranges
    )


def test_a_chunk_says_whether_some_of_it_was_sent() -> None:
    buckets = [
        Bucket("t", 0, 1, 5, partly=False),
        Bucket("t", 0, 2, 5, partly=True),
        Bucket("t", 1, 0, 5, partly=False),
    ]
    assert chunks_of(buckets, 10) == [
        Chunk((Range("t", 0, 1, 2),), 10, partly=True),
        Chunk((Range("t", 1, 0, 0),), 5, partly=False),
    ]


@pytest.mark.parametrize(("rate", "size"), [(None, 200_000), (0.5, 1), (100, 100), (1e9, 200_000)])
def test_a_chunk_is_about_a_second_of_the_rate(rate: float | None, size: int) -> None:
    assert chunk_size(rate) == size


@pytest.mark.parametrize(
    ("sent", "elapsed", "rate", "wait"),
    [(0, 0, 10, 0), (100, 4, 10, 6), (100, 20, 10, 0), (10**6, 0, None, 0), (1, 0, 0.5, 2)],
)
def test_the_rate_holds_from_the_start_of_the_run(sent: int, elapsed: float, rate: float | None, wait: float) -> None:
    assert wait_seconds(sent, elapsed, rate) == wait


def test_the_last_run_that_started_goes_on_and_all_others_stop() -> None:
    events = [Event(1, "a", "started", 0), Event(2, "b", "started", 0), Event(3, "a", "finished", 9)]
    assert [is_overtaken(events, run) for run in ("a", "b")] == [True, False]
    assert not is_overtaken([], "a")
