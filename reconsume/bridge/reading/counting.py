"""How many records stand between two offsets, and how far the lanes are. Read from outside, with no worker's help.

Records are read where they are few, else estimated from the offsets.

A difference of offsets counts the end marks of transactions too, and what was aborted, compacted or done out of turn.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from typing import Any, Final, NamedTuple

from reconsume.bridge.kafka.admin import KafkaAdmin, Partition
from reconsume.bridge.reading.range_reader import RangeReader
from reconsume.delay_levels.errors import ReconsumeError

__all__ = ["Count", "Span", "count_records", "look_at_lanes", "total"]

logger = logging.getLogger(__name__)

_READ_UP_TO: Final = 500
"""Offsets of one partition."""
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

    Read are spans of at most 500 offsets, within 10 s altogether; what could not be read, for want of time or of the
    right to, is estimated.
    """
    few = {where: span for where, span in spans.items() if 0 < span.end - span.start <= _READ_UP_TO}
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

    def refused(_where: Partition, error: ReconsumeError) -> None:
        logger.warning("counting: %s", error)

    ranges = {where: (span.start, span.end) for where, span in spans.items()}
    with RangeReader(base, client_id) as reader:
        for message in reader.read(ranges, within_seconds=_SECONDS, on_refusal=refused):
            where = message.topic() or "", message.partition() or 0
            counts[where] += message.offset() not in spans[where].done
        return {where: count for where, count in counts.items() if where not in reader.unread}


class LaneLag(NamedTuple):
    """How far one delay topic is behind.

    Attributes:
        overdue: waiting records whose time has come; none where each record has a moment of its own.
        next_due_ms: when the first waiting record is due, None if none waits or nobody can tell.
    """

    overdue: Count
    next_due_ms: int | None


def look_at_lanes(
    admin: KafkaAdmin,
    base: Mapping[str, Any],
    delays_ms: Mapping[str, int | None],
    waiting: Mapping[str, Mapping[Partition, Span]],
    *,
    now_ms: int,
    client_id: str,
) -> dict[str, LaneLag]:
    """Look at each topic.

    Args:
        admin: asks for offsets.
        base: librdkafka's settings for any client.
        delays_ms: of each topic; None where each record has a moment of its own.
        waiting: what is not delivered yet of each of its partitions.
        now_ms: the time.
        client_id: shown in the brokers' logs; a right to a group of this name is needed.
    """
    open_ones = {where: span for spans in waiting.values() for where, span in spans.items() if span.end > span.start}
    heads = _first_timestamps(base, open_ones, client_id)
    due: dict[Partition, Span] = {}
    for topic, spans in waiting.items():
        delay_ms = delays_ms[topic]
        late = [where for where in spans if delay_ms is not None and heads.get(where, now_ms) + delay_ms < now_ms]
        if late and delay_ms is not None:
            ends = admin.offsets_at(late, now_ms - delay_ms)
            due |= {where: Span(spans[where].start, min(spans[where].end, ends[where])) for where in late}
    counts = count_records(base, due, client_id)
    return {topic: _lane(delays_ms[topic], spans, heads, counts) for topic, spans in waiting.items()}


def _lane(
    delay_ms: int | None,
    spans: Mapping[Partition, Span],
    heads: Mapping[Partition, int],
    counts: Mapping[Partition, Count],
) -> LaneLag:
    overdue = total(counts[where] for where in spans if where in counts)
    first = min((heads[where] for where in spans if where in heads), default=None)
    return LaneLag(overdue, None if first is None or delay_ms is None else first + delay_ms)


def _first_timestamps(base: Mapping[str, Any], spans: Mapping[Partition, Span], client_id: str) -> dict[Partition, int]:
    """When the first record of each span was stored; a span that holds none, or could not be read, is left out."""
    found: dict[Partition, int] = {}
    if not spans:
        return found
    ranges = {where: (span.start, span.end) for where, span in spans.items()}
    with RangeReader(base, client_id) as reader:
        for message in reader.read(ranges, within_seconds=_SECONDS, on_refusal=lambda *_: None):
            where = message.topic() or "", message.partition() or 0
            found[where] = message.timestamp()[1]
            reader.leave(where)
    return found
