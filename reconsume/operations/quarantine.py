"""Reads the quarantine, however large, and returns records to the schedulers, each once.

Guarantees: a marker in the quarantine, written in the same transaction, records each release, because committed offsets
and metadata expire after 7 days without members. Test: tests/integration/test_quarantine.py.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Final

from reconsume.bridge.groups.groups_store import read_groups
from reconsume.bridge.kafka.admin import Partition
from reconsume.bridge.kafka.cluster import Cluster
from reconsume.bridge.kafka.partitioning import all_partitions
from reconsume.bridge.reading.range_reader import RangeReader, ReadRecord
from reconsume.bridge.writing.exclusive_writer import Acknowledged, ExclusiveWriter
from reconsume.bridge.writing.lane_partitions import ANY_PARTITION, LanePartitions
from reconsume.bridge.writing.new_record import NewRecord
from reconsume.delay_levels.errors import IllegalSetting, MalformedProperty
from reconsume.delay_levels.progress.offset_runs import OffsetRuns
from reconsume.delay_levels.wire.names import TopicNames
from reconsume.delay_levels.wire.properties import REAL_TOPIC, Headers
from reconsume.delay_levels.wire.quarantine import Quarantined, release_marker, released_offset
from reconsume.operations.record_address import RecordAddress

Span = tuple[int, int]
"""The first offset, and the one after the last."""

_TOGETHER: Final = 500
"""Maximum of records in one transaction."""
_PART_BYTES: Final = 8 * 1024 * 1024
"""Maximum of bytes of keys and values in one transaction, which are in memory."""


@dataclass(frozen=True, slots=True)
class QuarantineRecord:
    """A quarantined record.

    Attributes:
        stored_ms: when it was quarantined.
        is_released: whether it was released.
    """

    place: RecordAddress
    key: bytes | None
    value: bytes | None
    quarantined: Quarantined
    stored_ms: int
    is_released: bool


@dataclass(frozen=True, slots=True)
class QuarantineFilter:
    """A filter of quarantined records; None selects all.

    Attributes:
        text: a part of the reason; case does not matter.
        since_ms: quarantined at this moment or later.
        until_ms: quarantined before this moment.
    """

    text: str | None = None
    since_ms: int | None = None
    until_ms: int | None = None

    def takes(self, one: QuarantineRecord) -> bool:
        """Return whether the filter selects a record."""
        return (
            (self.text is None or self.text.casefold() in one.quarantined.reason.casefold())
            and (self.since_ms is None or one.stored_ms >= self.since_ms)
            and (self.until_ms is None or one.stored_ms < self.until_ms)
        )


def read_quarantine(cluster: Cluster) -> Iterator[QuarantineRecord]:
    """Yield all quarantined records in order; records that no scheduler has written are skipped.

    The topic is read twice: the marker of a release follows its record.

    Raises:
        KafkaNotReachable: no record arrived within 30 s before the end of the topic.
        KafkaRefused: rights are missing.
    """
    spans = _spans(cluster)
    waiting = _Waiting(spans)
    for read in _read(cluster, spans):
        waiting.look(read)
    yield from _records(cluster, spans, waiting)


def count_quarantined(cluster: Cluster) -> int:
    """Return the number of records that were not released."""
    spans = _spans(cluster)
    waiting = _Waiting(spans)
    return sum(map(waiting.look, _read(cluster, spans)))


def find_quarantined(cluster: Cluster, place: RecordAddress) -> QuarantineRecord | None:
    """Return the record at this place; None if there is none."""
    spans = {where: span for where, span in _spans(cluster).items() if where[1] == place.partition}
    spans = {where: (place.offset, end) for where, (start, end) in spans.items() if start <= place.offset < end}
    waiting, found = _Waiting(spans), None
    for read in _read(cluster, spans):
        waiting.look(read)
        if found is None and (found := _record(read, waiting)) is None:
            return None
        if found.place != place:
            return None
    return None if found is None else replace(found, is_released=place not in waiting)


class _Waiting:
    """The offsets without a marker of a release; markers follow their records, in the same partition."""

    def __init__(self, spans: Mapping[Partition, Span]) -> None:
        self._offsets = {partition: OffsetRuns([range(*span)]) for (_, partition), span in spans.items()}

    def look(self, read: ReadRecord) -> int:
        """Note the next record: 1 if it waits, -1 if it marks a waiting one as released, else 0."""
        released = released_offset(read.headers)
        if released is not None:
            return -self._offsets[read.partition].remove(range(released, released + 1))
        return int(_is_quarantined(read.headers))

    def __contains__(self, place: object) -> bool:
        return isinstance(place, RecordAddress) and place.offset in self._offsets.get(place.partition, ())


def _is_quarantined(headers: Headers) -> bool:
    try:
        Quarantined.of(headers)
    except MalformedProperty:
        return False
    return True


def _spans(cluster: Cluster, *, to_the_last: bool = False) -> dict[Partition, Span]:
    """Return the current offsets of its records.

    Args:
        cluster: the installation.
        to_the_last: wait for the end of open transactions: records committed behind the first of them are invisible
            before its end.
    """
    admin = cluster.admin
    partitions = all_partitions(admin.partitions([cluster.names.quarantine]))
    starts, ends = admin.end_offsets(partitions, earliest=True), admin.end_offsets(partitions, uncommitted=to_the_last)
    return {where: (starts[where], ends[where]) for where in partitions}


def _read(cluster: Cluster, spans: Mapping[Partition, Span]) -> Iterator[ReadRecord]:
    with RangeReader(cluster.base, "reconsume-quarantine") as reader:
        yield from reader.records(spans)


def _records(cluster: Cluster, spans: Mapping[Partition, Span], waiting: _Waiting) -> Iterator[QuarantineRecord]:
    return (record for one in _read(cluster, spans) if (record := _record(one, waiting)) is not None)


def _record(read: ReadRecord, waiting: _Waiting) -> QuarantineRecord | None:
    """Return the record; None if no scheduler has written it."""
    place = RecordAddress(read.partition, read.offset)
    try:
        quarantined = Quarantined.of(read.headers)
    except MalformedProperty:
        return None
    return QuarantineRecord(place, read.key, read.value, quarantined, read.stored_ms, place not in waiting)


def release(
    cluster: Cluster,
    chosen: Collection[RecordAddress] | None,
    changes: Mapping[str, str],
    told: Callable[[QuarantineRecord], None] = lambda _record: None,
) -> int:
    """Return records to the schedulers, in transactions that also mark them as released; return their number.

    Another release at the same time is fenced, and released records are refused, so each goes once.

    Args:
        cluster: the installation.
        chosen: the places; None selects all that are not released.
        changes: headers to replace on each.
        told: called with each released record.

    Raises:
        IllegalSetting: a chosen record does not exist, or was released before; nothing was released.
        KafkaNotReachable: an answer is missing; repeat the call, which continues, or refuses released records.
    """
    transactional_id, count = f"{cluster.names.prefix}quarantine-release", 0
    with ExclusiveWriter(cluster, transactional_id, "releasing from the quarantine") as writer:
        # First: from here on no other release can be committed, so the records read are final.
        writer.take_over()
        choice = _Choice(cluster, None if chosen is None else frozenset(chosen))
        give_back = partial(_release, cluster.names, changes, _partitions_at_once(cluster))
        for read in _parts(choice.records()):
            if not writer.is_alone:
                writer.take_over()
                choice.look_again()
            part = choice.still_waiting(read)
            if part:
                give_back(part, writer)
            count += len(part)
            for one in part:
                told(one)
    return count


class _Choice:
    """The records to release; all of the chosen ones, or none.

    Args:
        cluster: the installation.
        chosen: the places; None selects all that are not released.

    Raises:
        IllegalSetting: a chosen record does not exist, or was released before.
    """

    def __init__(self, cluster: Cluster, chosen: Collection[RecordAddress] | None) -> None:
        self._cluster, self._chosen = cluster, chosen
        self._spans = self._read = _spans(cluster, to_the_last=True)
        self._waiting, missing = _Waiting(self._spans), set(chosen or ())
        for read in _read(cluster, self._spans):
            self._waiting.look(read)
            if missing and (place := RecordAddress(read.partition, read.offset)) in missing:
                missing -= {place} if _is_quarantined(read.headers) else set()
        for place in sorted(missing):
            raise IllegalSetting(f"{place}: the record does not exist; `reconsume quarantine list` shows them")
        for place in sorted(chosen or ()):
            if place not in self._waiting:
                raise IllegalSetting(
                    f"{place}: the record was released before; `reconsume quarantine list` shows the others"
                )

    def records(self) -> Iterator[QuarantineRecord]:
        """Read them, in order."""
        for record in _records(self._cluster, self._spans, self._waiting):
            if not record.is_released if self._chosen is None else record.place in self._chosen:
                yield record

    def look_again(self) -> None:
        """Read the releases that were committed since the last look."""
        ends = _spans(self._cluster, to_the_last=True)
        added = {where: (end, ends[where][1]) for where, (_, end) in self._read.items() if where in ends}
        self._read = self._read | added
        for read in _read(self._cluster, added):
            self._waiting.look(read)

    def still_waiting(self, records: Iterable[QuarantineRecord]) -> list[QuarantineRecord]:
        """Return those that were not released meanwhile."""
        return [one for one in records if one.place in self._waiting]


def _parts(records: Iterable[QuarantineRecord]) -> Iterator[list[QuarantineRecord]]:
    """Split the records, for one transaction each."""
    part: list[QuarantineRecord] = []
    size = 0
    for one in records:
        part.append(one)
        size += len(one.key or b"") + len(one.value or b"")
        if len(part) >= _TOGETHER or size >= _PART_BYTES:
            yield part
            part, size = [], 0
    if part:
        yield part


def _partitions_at_once(cluster: Cluster) -> Callable[[str, bytes | None], int]:
    """Return a function that chooses the partition of `DELAY.0s` for a target and a key."""
    lane, groups = cluster.names.delay(0), read_groups(cluster)
    count = cluster.admin.partitions([lane]).get(lane, 0)
    return partial(LanePartitions(lambda: groups).choose, lane, count)


def _release(
    names: TopicNames,
    changes: Mapping[str, str],
    choose: Callable[[str, bytes | None], int],
    records: Sequence[QuarantineRecord],
    writer: ExclusiveWriter,
) -> None:
    back: list[NewRecord] = []
    for one in records:
        topic, headers = one.quarantined.back(names, changes)
        partition = ANY_PARTITION
        if topic != names.send_back:
            partition = choose(str(dict(headers).get(REAL_TOPIC)), one.key)
        back.append(NewRecord(topic, one.value, one.key, partition, headers))

    def marks(stored: Acknowledged) -> Iterator[NewRecord]:
        for one, place in zip(records, stored.places, strict=True):
            # The marker names the destination, so that a reader of both topics can match the two.
            mark = release_marker(one.place.offset)
            yield NewRecord(names.quarantine, str(place).encode(), None, one.place.partition, mark)

    writer.write_after(back, marks)
