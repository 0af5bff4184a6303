"""The number of records between two offsets: exact for small ranges, else estimated from the offsets.

A difference of offsets also counts transaction markers, and aborted, compacted and already finished records.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final, NamedTuple

from reconsume.bridge.kafka.admin import Partition
from reconsume.bridge.process.safe_logger import SafeLogger
from reconsume.bridge.reading.range_reader import RangeReader

logger = SafeLogger(__name__)

_READ_UP_TO: Final = 500
"""Offsets of one partition."""
_READ_IN_ALL: Final = 20_000
_SECONDS: Final = 10.0


class Span(NamedTuple):
    """The offsets from `start` to before `end`, except those in `done`."""

    start: int
    end: int
    done: frozenset[int] = frozenset()


class Count(NamedTuple):
    """A number of records; an estimate (not exact) is rather too high than too low."""

    number: int
    exact: bool

    def __str__(self) -> str:
        return f"{self.number:,}" if self.exact else f"~{self.number:,}"


def total(counts: Iterable[Count]) -> Count:
    """Return the sum; exact if each count is."""
    given = list(counts)
    return Count(sum(one.number for one in given), all(one.exact for one in given))


def count_records(base: Mapping[str, Any], spans: Mapping[Partition, Span], client_id: str) -> dict[Partition, Count]:
    """Count the committed records of each range of offsets.

    Ranges of at most 500 offsets are read, the smallest first, up to 20,000 offsets and 10 s in all. The others are
    estimated, and so are ranges that could not be read for lack of time or rights.
    """
    few: dict[Partition, Span] = {}
    left = _READ_IN_ALL
    for where, span in sorted(spans.items(), key=lambda one: one[1].end - one[1].start):
        width = span.end - span.start
        if 0 < width <= min(_READ_UP_TO, left):
            few[where] = span
            left -= width
    read = _read(base, few, client_id) if few else {}
    return {
        where: Count(read[where], exact=True) if where in read else _estimate(span) for where, span in spans.items()
    }


def _estimate(span: Span) -> Count:
    between = max(0, span.end - span.start)
    return Count(max(0, between - len(span.done)), exact=between == 0)


def _read(base: Mapping[str, Any], spans: Mapping[Partition, Span], client_id: str) -> dict[Partition, int]:
    """Return the counts of completely read ranges."""
    counts = dict.fromkeys(spans, 0)

    ranges = {where: (span.start, span.end) for where, span in spans.items()}
    with RangeReader(base, client_id) as reader:
        for read in reader.records(
            ranges, within_seconds=_SECONDS, on_refusal=lambda _, error: logger.warning("%s", error)
        ):
            counts[read.where] += read.offset not in spans[read.where].done
        return {where: count for where, count in counts.items() if where not in reader.unread}
