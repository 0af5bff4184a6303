"""How a run is cut into pieces and paced; pure."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

__all__ = ["Bucket", "Chunk", "Range", "chunk_size", "chunks_of", "wait_seconds"]

_LARGEST: Final = 200_000


@dataclass(frozen=True, slots=True, order=True)
class Bucket:
    """The smallest piece: so many offsets of one partition of a dead-letter topic.

    Attributes:
        number: the offsets divided by the plan's bucket.
        to_send: how many of its records are still to be sent.
        partly: whether some of its records were sent before.
    """

    topic: str
    partition: int
    number: int
    to_send: int
    partly: bool


@dataclass(frozen=True, slots=True)
class Range:
    """Buckets from `first` to `last`, both included, of one partition."""

    topic: str
    partition: int
    first: int
    last: int


@dataclass(frozen=True, slots=True)
class Chunk:
    """What one Spark job sends."""

    ranges: tuple[Range, ...]
    to_send: int
    partly: bool


def chunk_size(rate: float | None) -> int:
    """About one second's worth of a rate in records per second, at most 200,000 records."""
    return _LARGEST if rate is None else max(1, min(_LARGEST, int(rate)))


def chunks_of(buckets: Iterable[Bucket], size: int) -> list[Chunk]:
    """Chunks of at most `size` records, or of one bucket where that has more; each bucket once, in order."""
    chunks: list[Chunk] = []
    pending: list[Bucket] = []
    count = 0
    for bucket in sorted(buckets):
        # A range may not reach over a bucket that is sent: its records would go with it.
        if pending and (bucket.to_send == 0 or count + bucket.to_send > size):
            chunks.append(_chunk(pending))
            pending, count = [], 0
        if bucket.to_send > 0:
            pending.append(bucket)
            count += bucket.to_send
    return [*chunks, _chunk(pending)] if pending else chunks


def _chunk(buckets: list[Bucket]) -> Chunk:
    ranges: dict[tuple[str, int], Range] = {}
    for bucket in buckets:
        where = (bucket.topic, bucket.partition)
        first = ranges[where].first if where in ranges else bucket.number
        ranges[where] = Range(*where, first, bucket.number)
    return Chunk(tuple(ranges.values()), sum(one.to_send for one in buckets), any(one.partly for one in buckets))


def wait_seconds(sent: int, elapsed_seconds: float, rate: float | None) -> float:
    """How long to wait so that what was sent stays within the rate."""
    return 0.0 if rate is None else max(0.0, sent / rate - elapsed_seconds)
