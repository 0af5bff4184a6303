"""Read the records of the quarantine, one by one, and what was done with them.

Guarantees: marks in the quarantine itself tell which records were released or resolved; Kafka would forget offsets and
their metadata after 7 days without members. Test: tests/integration/operations/test_quarantine.py.
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
from reconsume.delay_levels.wire.properties import Headers, size_of
from reconsume.delay_levels.wire.quarantine import RELEASED, Quarantined, mark_of
from reconsume.operations.record_address import RecordAddress

Span = tuple[int, int]
"""The first offset, and the one after the last."""
_COUNTED_AT_ONCE: Final = 20_000


@dataclass(frozen=True, slots=True)
class QuarantineRecord:
    """A record of the quarantine.

    Attributes:
        stored_ms: when the record was stored in the quarantine.
        state: `OPEN`, `RESOLVED` or `RELEASED`.
        resolution: who closed it, when and why; only in the result of `find_quarantined`.
    """

    place: RecordAddress
    key: bytes | None
    value: bytes | None
    quarantined: Quarantined
    stored_ms: int
    state: str
    resolution: DeadLetterState | None = None

    @property
    def size(self) -> int:
        """Bytes of key, value and headers."""
        return size_of(self.key, self.value, self.quarantined.headers)


@dataclass(frozen=True, slots=True)
class QuarantineFilter:
    """Selects records; None selects all.

    Attributes:
        text: a part of the reason, in upper or lower case.
        since_ms: stored in the quarantine at this time or later.
        until_ms: stored before this time.
        state: the state.
    """

    text: str | None = None
    since_ms: int | None = None
    until_ms: int | None = None
    state: str | None = None

    def takes(self, one: QuarantineRecord) -> bool:
        """Return whether a record matches."""
        return (
            (self.text is None or self.text.casefold() in one.quarantined.reason.casefold())
            and (self.since_ms is None or one.stored_ms >= self.since_ms)
            and (self.until_ms is None or one.stored_ms < self.until_ms)
            and (self.state is None or one.state == self.state)
        )


def read_quarantine(cluster: Cluster, after: Mapping[Partition, int] | None = None) -> Iterator[QuarantineRecord]:
    """Yield all records ever stored there, in order; records that no scheduler wrote are left out.

    The topic is read twice, because the mark that a record was released follows the record.

    Args:
        cluster: the installation.
        after: begin at these offsets, as those of `QuarantineCounter.closed`.

    Raises:
        KafkaNotReachable: the topic was not read to its end within 30 s without news.
        KafkaRefused: rights are missing.
    """
    after = after or {}
    spans = {
        where: (max(start, min(after.get(where, 0), end)), end) for where, (start, end) in find_spans(cluster).items()
    }
    states = QuarantineStates(spans)
    for read in read_spans(cluster, spans):
        states.look(read)
    yield from read_records(cluster, spans, states)


def find_quarantined(cluster: Cluster, place: RecordAddress) -> QuarantineRecord | None:
    """Return the record at this position; None if there is none."""
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
    """The states of records according to their marks; a mark follows its record, in the same partition."""

    def __init__(self, spans: Mapping[Partition, Span]) -> None:
        self._unmarked: dict[int, OffsetRuns] = {}
        self._resolved: set[RecordAddress] = set()
        self.grow(spans)

    def grow(self, spans: Mapping[Partition, Span]) -> None:
        """Include the records in these spans, which follow the known ones."""
        for (_, partition), span in spans.items():
            self._unmarked.setdefault(partition, OffsetRuns()).append(range(*span))

    def look(self, read: ReadRecord) -> int:
        """Process the next record: 1 if it is open, -1 if it closes an open one, 0 if neither."""
        if (mark := mark_of(read.headers)) is None:
            return int(is_quarantined(read.headers))
        was_open = self._unmarked[read.partition].remove(range(mark.offset, mark.offset + 1))
        if was_open and mark.state == RESOLVED:
            self._resolved.add(RecordAddress(read.partition, mark.offset))
        return -was_open

    def of(self, place: RecordAddress) -> str:
        """Return the state of a record."""
        if place in self._resolved:
            return RESOLVED
        return OPEN if place.offset in self._unmarked.get(place.partition, ()) else RELEASED


class QuarantineCounter:
    """Counts open records; each look reads only new records, at most 20,000 offsets. For one thread.

    Attributes:
        closed: offsets before which all records are closed, by partition; any thread may read it.
    """

    def __init__(self) -> None:
        self._read: dict[Partition, Span] = {}
        self.closed: Mapping[Partition, int] = {}
        self._number, self._states = 0, QuarantineStates({})

    def look(self, cluster: Cluster) -> Count:
        """Return the number of open records; an estimate if some were not read or may not be read.

        Raises:
            KafkaNotReachable: no answer.
        """
        spans = find_spans(cluster)
        if any(
            where not in spans or spans[where][0] != start or spans[where][1] < end
            for where, (start, end) in self._read.items()
        ):
            self._forget()  # the topic was created again, or some of its records were deleted
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
        if not self._number:
            # Closed records stay closed, so nothing about them needs to be kept, or read again.
            self.closed = {where: end for where, (_, end) in new.items()}
            self._states = QuarantineStates({})
        return Count(self._number + rest, exact=not rest)

    def _forget(self) -> None:
        self._read, self.closed = {}, {}
        self._number, self._states = 0, QuarantineStates({})


def is_quarantined(headers: Headers) -> bool:
    """Return whether a record with these headers was written there by a scheduler."""
    try:
        Quarantined.of(headers)
    except MalformedProperty:
        return False
    return True


def find_spans(cluster: Cluster, *, to_the_last: bool = False) -> dict[Partition, Span]:
    """Return the spans of offsets that have records now.

    Args:
        cluster: the installation.
        to_the_last: wait for transactions that are open now, because records behind the first of them are not visible
            before its end.
    """
    admin = cluster.admin
    partitions = all_partitions(admin.partitions([cluster.names.quarantine]))
    starts, ends = admin.end_offsets(partitions, earliest=True), admin.end_offsets(partitions, uncommitted=to_the_last)
    return {where: (starts[where], ends[where]) for where in partitions}


def read_spans(cluster: Cluster, spans: Mapping[Partition, Span]) -> Iterator[ReadRecord]:
    """Yield records and marks."""
    with RangeReader(cluster.base, "reconsume-quarantine") as reader:
        yield from reader.records(spans)


def read_records(
    cluster: Cluster, spans: Mapping[Partition, Span], states: QuarantineStates
) -> Iterator[QuarantineRecord]:
    """Yield the records without the marks, with these states."""
    return (record for one in read_spans(cluster, spans) if (record := _record(one, states)) is not None)


def _record(read: ReadRecord, states: QuarantineStates) -> QuarantineRecord | None:
    """Return the record; None if no scheduler wrote it."""
    place = RecordAddress(read.partition, read.offset)
    try:
        quarantined = Quarantined.of(read.headers)
    except MalformedProperty:
        return None
    return QuarantineRecord(place, read.key, read.value, quarantined, read.stored_ms, states.of(place))
