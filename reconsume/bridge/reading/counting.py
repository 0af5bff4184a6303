"""How many records stand between two offsets: read where they are few, else estimated from the offsets.

A difference of offsets counts the end marks of transactions too, and what was aborted, compacted or done out of turn.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from typing import Any, Final, NamedTuple

from reconsume.bridge.kafka.admin import Partition
from reconsume.bridge.reading.range_reader import RangeReader

logger = logging.getLogger(__name__)

_READ_UP_TO: Final = 500
"""Offsets of one partition."""
_READ_IN_ALL: Final = 20_000
_SECONDS: Final = 10.0


class Span(NamedTuple):
    """The offsets from `start` to before `end`, without those in `done`."""

    start: int
    end: int
    done: frozenset[int] = frozenset()


class Count(NamedTuple):
    """A number of records; not exact if it is an estimate from offsets, which is rather too high than too low."""

    number: int
    exact: bool

    def __str__(self) -> str:
        return f"{self.number:,}" if self.exact else f"~{self.number:,}"


def total(counts: Iterable[Count]) -> Count:
    """All together; exact if each is."""
    given = list(counts)
    return Count(sum(one.number for one in given), all(one.exact for one in given))


def count_records(base: Mapping[str, Any], spans: Mapping[Partition, Span], client_id: str) -> dict[Partition, Count]:
    """Count the committed records of each span.

    Read are spans of at most 500 offsets, the smallest first, up to 20,000 offsets and within 10 s altogether; what
    could not be read, for want of time or of the right to, is estimated.
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
    """The counts of those spans that were read to their ends."""
    counts = dict.fromkeys(spans, 0)

    ranges = {where: (span.start, span.end) for where, span in spans.items()}
    with RangeReader(base, client_id) as reader:
        for read in reader.records(
            ranges, within_seconds=_SECONDS, on_refusal=lambda _, error: logger.warning("%s", error)
        ):
            counts[read.where] += read.offset not in spans[read.where].done
        return {where: count for where, count in counts.items() if where not in reader.unread}
