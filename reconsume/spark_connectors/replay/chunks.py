"""Splits a run into chunks, and paces them."""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Sequence
from types import NoneType
from typing import Final, NamedTuple

from reconsume.delay_levels.errors import IllegalSetting
from reconsume.delay_levels.foreign_values import check_range, check_types, shown

_LARGEST: Final = 200_000
_SLOWEST: Final = 1e-5
"""One record a day is faster."""
_MOST_PARTITIONS: Final = 1_000_000
"""More than a topic has."""


class ReplayChunk(NamedTuple):
    """The records that one Spark job sends: those with the numbers from `first` to `last`, both included."""

    first: int
    last: int
    size: int


def check_rate(rate: float | None) -> None:
    """Check the records per second that a user asks for.

    Raises:
        IllegalSetting: the rate is not possible.
    """
    if rate is not None and not _SLOWEST <= rate < math.inf:
        raise IllegalSetting(f"rate {rate}: use a number of records per second, {_SLOWEST:f} or more")


def check_run(
    rate: float | None, settle_seconds: float, bulk_partitions: Sequence[int], retention_days: float = 7
) -> None:
    """Check the arguments of a run.

    Raises:
        IllegalSetting: one of them is not possible.
    """
    numeric = int, float
    check_types(locals(), rate=(*numeric, NoneType), settle_seconds=numeric, retention_days=numeric)
    check_rate(rate)
    if not 0 <= settle_seconds < math.inf:
        raise IllegalSetting(f"settle_seconds {settle_seconds}: use a number of seconds, 0 or more")
    if not 0 < retention_days < math.inf:
        raise IllegalSetting(f"retention_days {retention_days}: use a number of days above 0")
    if isinstance(bulk_partitions, str | bytes) or not isinstance(bulk_partitions, Sequence):
        raise IllegalSetting(f"bulk_partitions must be a list of int, such as [8, 9], got {shown(bulk_partitions)}")
    for number in bulk_partitions:
        check_range("each of bulk_partitions", number, 0, _MOST_PARTITIONS)


def chunk_size(rate: float | None) -> int:
    """Return the number of records to send at once: one second at the rate, at most 200,000."""
    return _LARGEST if rate is None else max(1, min(_LARGEST, int(rate)))


def pause_seconds(rate: float | None) -> float:
    """Return the pause between chunks, so that no second has more records than the rate.

    It is unknown when within a chunk its records are stored, so an empty second follows each chunk.
    """
    if rate is None:
        return 0.0
    # Below one record per second, and beyond the largest chunk, a chunk has another period.
    return 1.0 if 1 <= rate <= _LARGEST else chunk_size(rate) / rate


def chunks_of(runs: Iterable[range], size: int) -> Iterator[ReplayChunk]:
    """Split ascending runs of numbers into chunks of `size` numbers; the last chunk has the rest."""
    pieces: list[range] = []
    count = 0
    for run in runs:
        left = run
        while left:
            piece, left = left[: size - count], left[size - count :]
            pieces.append(piece)
            count += len(piece)
            if count == size:
                yield ReplayChunk(pieces[0][0], piece[-1], count)
                pieces, count = [], 0
    if pieces:
        yield ReplayChunk(pieces[0][0], pieces[-1][-1], count)


def unsettled(chunk: ReplayChunk, settled: Sequence[int]) -> int:
    """Return how many records of a chunk are to be sent.

    Args:
        chunk: the chunk.
        settled: the numbers of records that are not, ascending.
    """
    return chunk.size - (bisect_right(settled, chunk.last) - bisect_left(settled, chunk.first))
