"""The quarantine: read it, however large, and give records back to the schedulers, each once.

Guarantees: a record in the quarantine itself tells what was released, written in the same transaction, because offsets
and their metadata are forgotten after 7 days without members. Test: tests/integration/test_quarantine.py.
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
"""The first offset, and the one behind the last."""

_TOGETHER: Final = 500
"""Records of one transaction."""
_PART_BYTES: Final = 8 * 1024 * 1024
"""Of keys and values in one transaction, which are held in memory."""


@dataclass(frozen=True, slots=True)
class QuarantineRecord:
    """One of them.

    Attributes:
        stored_ms: when it came to the quarantine.
        is_released: whether it was given back.
    """

    place: RecordAddress
    key: bytes | None
    value: bytes | None
    quarantined: Quarantined
    stored_ms: int
    is_released: bool


@dataclass(frozen=True, slots=True)
class QuarantineFilter:
    """Records to look for; None takes all.

    Attributes:
        text: in the reason; upper and lower case are the same.
        since_ms: in the quarantine since this moment, or later.
        until_ms: since a moment before this one.
    """

    text: str | None = None
    since_ms: int | None = None
    until_ms: int | None = None

    def takes(self, one: QuarantineRecord) -> bool:
        """Whether it is one of them."""
        return (
            (self.text is None or self.text.casefold() in one.quarantined.reason.casefold())
            and (self.since_ms is None or one.stored_ms >= self.since_ms)
            and (self.until_ms is None or one.stored_ms < self.until_ms)
        )


def read_quarantine(cluster: Cluster) -> Iterator[QuarantineRecord]:
    """Give all that was ever put there, in order, one by one; what no scheduler has written is left out.

    The topic is read twice: whether a record was released stands behind it.

    Raises:
        KafkaNotReachable: the topic was not read to its end within 30 s without news.
        KafkaRefused: rights are missing.
    """
    spans = _spans(cluster)
    waiting = _Waiting(spans)
    for read in _read(cluster, spans):
        waiting.look(read)
    yield from _records(cluster, spans, waiting)


def count_quarantined(cluster: Cluster) -> int:
    """How many records are there that were not released."""
    spans = _spans(cluster)
    waiting = _Waiting(spans)
    return sum(map(waiting.look, _read(cluster, spans)))


def find_quarantined(cluster: Cluster, place: RecordAddress) -> QuarantineRecord | None:
    """The record at this place; None if none is there."""
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
    """The offsets that no mark of a release names; marks stand behind their records, in the same partition."""

    def __init__(self, spans: Mapping[Partition, Span]) -> None:
        self._offsets = {partition: OffsetRuns([range(*span)]) for (_, partition), span in spans.items()}

    def look(self, read: ReadRecord) -> int:
        """Take note of the next record: 1 if it waits, -1 if it marks one that waited, 0 if it is neither."""
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


def _read(cluster: Cluster, spans: Mapping[Partition, Span]) -> Iterator[ReadRecord]:
    with RangeReader(cluster.base, "reconsume-quarantine") as reader:
        yield from reader.records(spans)


def _records(cluster: Cluster, spans: Mapping[Partition, Span], waiting: _Waiting) -> Iterator[QuarantineRecord]:
    return (record for one in _read(cluster, spans) if (record := _record(one, waiting)) is not None)


def _record(read: ReadRecord, waiting: _Waiting) -> QuarantineRecord | None:
    """None of one that no scheduler has written."""
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
    """Give records back to the schedulers, in transactions that also mark them as released; their number.

    Another release at the same time is fenced, and released records are refused, so each goes once.

    Args:
        cluster: the installation.
        chosen: where they stand; None takes all that are not released.
        changes: headers to set anew on each.
        told: is given each that was released.

    Raises:
        IllegalSetting: one of the chosen is not there, or was released before; nothing was released.
        KafkaNotReachable: an answer did not come; the same call goes on, or refuses what is done.
    """
    transactional_id, count = f"{cluster.names.prefix}quarantine-release", 0
    with ExclusiveWriter(cluster, transactional_id, "releasing from the quarantine") as writer:
        # First: from here on nobody else's release can be committed any more, so what is read is the last word.
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
    """The records that are to be released; all of the chosen, or none.

    Args:
        cluster: the installation.
        chosen: where they stand; None takes all that are not released.

    Raises:
        IllegalSetting: one of the chosen is not there, or was released before.
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
        """Take note of the releases that were committed since the last look."""
        ends = _spans(self._cluster, to_the_last=True)
        added = {where: (end, ends[where][1]) for where, (_, end) in self._read.items() if where in ends}
        self._read = self._read | added
        for read in _read(self._cluster, added):
            self._waiting.look(read)

    def still_waiting(self, records: Iterable[QuarantineRecord]) -> list[QuarantineRecord]:
        """Return those that were not released meanwhile."""
        return [one for one in records if one.place in self._waiting]


def _parts(records: Iterable[QuarantineRecord]) -> Iterator[list[QuarantineRecord]]:
    """For one transaction each."""
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
    """Give the partition of `DELAY.0s` for a target and a key."""
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
            # A mark says where the record went, so that a reader of both topics knows the two for one.
            mark = release_marker(one.place.offset)
            yield NewRecord(names.quarantine, str(place).encode(), None, one.place.partition, mark)

    writer.write_after(back, marks)
