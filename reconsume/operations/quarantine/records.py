"""Read the records of the quarantine, one by one, and what became of them.

Guarantees: marks in the quarantine itself tell what was released or resolved, because offsets and their metadata are
forgotten after 7 days without members. Test: tests/integration/test_quarantine.py.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Final

from reconsume.bridge.kafka.admin import Partition
from reconsume.bridge.kafka.cluster import Cluster
from reconsume.bridge.kafka.partitioning import all_partitions
from reconsume.bridge.reading.counting import Count
from reconsume.bridge.reading.range_reader import RangeReader, ReadRecord
from reconsume.delay_levels.errors import KafkaRefused, MalformedProperty, ReconsumeError
from reconsume.delay_levels.progress.offset_runs import OffsetRuns
from reconsume.delay_levels.wire.dead_letter_states import OPEN, RESOLVED, DeadLetterState, decode_state
from reconsume.delay_levels.wire.properties import Headers
from reconsume.delay_levels.wire.quarantine import RELEASED, Quarantined, mark_of
from reconsume.operations.record_address import RecordAddress

Span = tuple[int, int]
"""The first offset, and the one behind the last."""
_COUNTED_AT_ONCE: Final = 20_000


@dataclass(frozen=True, slots=True)
class QuarantineRecord:
    """One of them.

    Attributes:
        stored_ms: when it came to the quarantine.
        state: `OPEN`, `RESOLVED` or `RELEASED`.
        resolution: who closed it, when and why, where `find_quarantined` was asked.
    """

    place: RecordAddress
    key: bytes | None
    value: bytes | None
    quarantined: Quarantined
    stored_ms: int
    state: str
    resolution: DeadLetterState | None = None


@dataclass(frozen=True, slots=True)
class QuarantineFilter:
    """Records to look for; None takes all.

    Attributes:
        text: in the reason; upper and lower case are the same.
        since_ms: in the quarantine since this moment, or later.
        until_ms: since a moment before this one.
        state: as of a record.
    """

    text: str | None = None
    since_ms: int | None = None
    until_ms: int | None = None
    state: str | None = None

    def takes(self, one: QuarantineRecord) -> bool:
        """Whether it is one of them."""
        return (
            (self.text is None or self.text.casefold() in one.quarantined.reason.casefold())
            and (self.since_ms is None or one.stored_ms >= self.since_ms)
            and (self.until_ms is None or one.stored_ms < self.until_ms)
            and (self.state is None or one.state == self.state)
        )


def read_quarantine(cluster: Cluster) -> Iterator[QuarantineRecord]:
    """Give all that was ever put there, in order, one by one; what no scheduler has written is left out.

    The topic is read twice: whether a record was released stands behind it.

    Raises:
        KafkaNotReachable: the topic was not read to its end within 30 s without news.
        KafkaRefused: rights are missing.
    """
    spans = find_spans(cluster)
    states = QuarantineStates(spans)
    for read in read_spans(cluster, spans):
        states.look(read)
    yield from read_records(cluster, spans, states)


def find_quarantined(cluster: Cluster, place: RecordAddress) -> QuarantineRecord | None:
    """The record at this place; None if none is there."""
    spans = {where: span for where, span in find_spans(cluster).items() if where[1] == place.partition}
    spans = {where: (place.offset, end) for where, (start, end) in spans.items() if start <= place.offset < end}
    states, found = QuarantineStates(spans), None
    for read in read_spans(cluster, spans):
        states.look(read)
        if found is None and (found := _record(read, states)) is None:
            return None
        if found.place != place:
            return None
        if (mark := mark_of(read.headers)) is not None and mark.offset == place.offset:
            found = replace(found, state=mark.state, resolution=_resolution(mark.state, read.value))
    return found


def _resolution(state: str, value: bytes | None) -> DeadLetterState | None:
    try:
        return decode_state(value or b"") if state == RESOLVED else None
    except MalformedProperty:
        return None


class QuarantineStates:
    """The states of records, as their marks tell; a mark stands behind its record, in the same partition."""

    def __init__(self, spans: Mapping[Partition, Span]) -> None:
        self._unmarked: dict[int, OffsetRuns] = {}
        self._resolved: set[RecordAddress] = set()
        self.grow(spans)

    def grow(self, spans: Mapping[Partition, Span]) -> None:
        """Let records stand in these spans too, which lie behind those known."""
        for (_, partition), span in spans.items():
            self._unmarked.setdefault(partition, OffsetRuns()).append(range(*span))

    def look(self, read: ReadRecord) -> int:
        """Take note of the next record: 1 if it is open, -1 if it marks one that was, 0 if it is neither."""
        if (mark := mark_of(read.headers)) is None:
            return int(is_quarantined(read.headers))
        was_open = self._unmarked[read.partition].remove(range(mark.offset, mark.offset + 1))
        if was_open and mark.state == RESOLVED:
            self._resolved.add(RecordAddress(read.partition, mark.offset))
        return -was_open

    def of(self, place: RecordAddress) -> str:
        """Return the state of a record that is there."""
        if place in self._resolved:
            return RESOLVED
        return OPEN if place.offset in self._unmarked.get(place.partition, ()) else RELEASED


class QuarantineCounter:
    """Counts open records; each look reads what is new, and no more than 20,000 offsets. For one thread."""

    def __init__(self) -> None:
        self._read: dict[Partition, Span] = {}
        self._number, self._states = 0, QuarantineStates({})

    def look(self, cluster: Cluster) -> Count:
        """Return how many are open; an estimate where some were not read, or may not be.

        Raises:
            KafkaNotReachable: no answer.
        """
        spans = find_spans(cluster)
        if any(
            where not in spans or spans[where][0] != start or spans[where][1] < end
            for where, (start, end) in self._read.items()
        ):
            self._forget()  # the topic was made again, or some of its records were deleted
        new, left, rest = dict[Partition, Span](), _COUNTED_AT_ONCE, 0
        for where, (start, end) in spans.items():
            begin = self._read.get(where, (start, start))[1]
            new[where] = begin, min(end, begin + left)
            left -= new[where][1] - begin
            rest += end - new[where][1]
        try:
            self._states.grow(new)
            self._number += sum(map(self._states.look, read_spans(cluster, new)))
        except KafkaRefused:
            self._forget()
            return Count(sum(end - start for start, end in spans.values()), exact=False)
        except ReconsumeError:
            self._forget()
            raise
        self._read = {where: (spans[where][0], end) for where, (_, end) in new.items()}
        return Count(self._number + rest, exact=not rest)

    def _forget(self) -> None:
        self._read, self._number, self._states = {}, 0, QuarantineStates({})


def is_quarantined(headers: Headers) -> bool:
    """Whether a scheduler has written a record with these headers there."""
    try:
        Quarantined.of(headers)
    except MalformedProperty:
        return False
    return True


def find_spans(cluster: Cluster, *, to_the_last: bool = False) -> dict[Partition, Span]:
    """Where its records stand now.

    Args:
        cluster: the installation.
        to_the_last: wait for transactions that are open now: what was committed behind the first of them is not seen
            before its end.
    """
    admin = cluster.admin
    partitions = all_partitions(admin.partitions([cluster.names.quarantine]))
    starts, ends = admin.end_offsets(partitions, earliest=True), admin.end_offsets(partitions, uncommitted=to_the_last)
    return {where: (starts[where], ends[where]) for where in partitions}


def read_spans(cluster: Cluster, spans: Mapping[Partition, Span]) -> Iterator[ReadRecord]:
    """Read records and marks."""
    with RangeReader(cluster.base, "reconsume-quarantine") as reader:
        yield from reader.records(spans)


def read_records(
    cluster: Cluster, spans: Mapping[Partition, Span], states: QuarantineStates
) -> Iterator[QuarantineRecord]:
    """Read the records alone, with these states."""
    return (record for one in read_spans(cluster, spans) if (record := _record(one, states)) is not None)


def _record(read: ReadRecord, states: QuarantineStates) -> QuarantineRecord | None:
    """None of one that no scheduler has written."""
    place = RecordAddress(read.partition, read.offset)
    try:
        quarantined = Quarantined.of(read.headers)
    except MalformedProperty:
        return None
    return QuarantineRecord(place, read.key, read.value, quarantined, read.stored_ms, states.of(place))
