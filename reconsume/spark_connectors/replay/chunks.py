"""How a run is cut into pieces and paced; pure."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

__all__ = ["Bucket", "Pace", "Range", "ReplayChunk", "chunk_size", "chunks_of", "parts_of"]

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
    """Offsets from `first` to `last`, both included, of one partition."""

    topic: str
    partition: int
    first: int
    last: int


@dataclass(frozen=True, slots=True)
class ReplayChunk:
    """What one Spark job sends."""

    ranges: tuple[Range, ...]
    to_send: int
    partly: bool


def chunk_size(rate: float | None) -> int:
    """What may be sent at once: one second's worth of a rate in records per second, at most 200,000 records."""
    return _LARGEST if rate is None else max(1, min(_LARGEST, int(rate)))


def chunks_of(buckets: Iterable[Bucket], size: int, width: int) -> list[ReplayChunk]:
    """Chunks of at most `size` records, or of one bucket where that has more; each bucket once, in order.

    Args:
        buckets: of the plan.
        size: of a chunk, in records.
        width: of a bucket, in offsets.
    """
    chunks: list[ReplayChunk] = []
    pending: list[Bucket] = []
    count = 0
    for bucket in sorted(buckets):
        # A range may not reach over a bucket that is sent: its records would go with it.
        if pending and (bucket.to_send == 0 or count + bucket.to_send > size):
            chunks.append(_chunk(pending, width))
            pending, count = [], 0
        if bucket.to_send > 0:
            pending.append(bucket)
            count += bucket.to_send
    return [*chunks, _chunk(pending, width)] if pending else chunks


def parts_of(chunk: ReplayChunk, offsets: Sequence[int], size: int) -> list[ReplayChunk]:
    """A chunk of one bucket, cut into chunks of at most `size` records.

    Args:
        chunk: of one range.
        offsets: of the records that it is to send, in order.
        size: in records.
    """
    (whole,) = chunk.ranges
    cuts = [offsets[start : start + size] for start in range(0, len(offsets), size)]
    return [
        ReplayChunk((Range(whole.topic, whole.partition, cut[0], cut[-1]),), len(cut), partly=chunk.partly)
        for cut in cuts
    ]


def _chunk(buckets: list[Bucket], width: int) -> ReplayChunk:
    ranges: dict[tuple[str, int], Range] = {}
    for bucket in buckets:
        where = (bucket.topic, bucket.partition)
        first = ranges[where].first if where in ranges else bucket.number * width
        ranges[where] = Range(*where, first, bucket.number * width + width - 1)
    return ReplayChunk(tuple(ranges.values()), sum(one.to_send for one in buckets), any(one.partly for one in buckets))


class Pace:
    """Says how long to wait, so that no second, whenever it begins, has more records than the rate.

    Nobody knows when within a chunk its records were stored, so a chunk counts until a second after its end.

    Args:
        rate: records per second; None does not limit.
    """

    def __init__(self, rate: float | None) -> None:
        self._most = chunk_size(rate)
        self._rate = rate
        self._sent: deque[tuple[float, int]] = deque()

    def wait_seconds(self, count: int, now: float) -> float:
        """Until so many records may be sent; they are no more than a chunk may have."""
        if self._rate is None:
            return 0.0
        # Below one record a second, and beyond the largest chunk, the period of one chunk is another.
        period = 1.0 if 1 <= self._rate <= _LARGEST else self._most / self._rate
        wait, left = 0.0, self._most - sum(sent for _, sent in self._sent)
        while self._sent and (left < count or self._sent[0][0] + period <= now):
            ended, sent = self._sent.popleft()
            wait, left = max(wait, ended + period - now), left + sent
        return wait

    def sent(self, count: int, now: float) -> None:
        """So many were sent, the last of them now at the latest."""
        self._sent.append((now, count))
