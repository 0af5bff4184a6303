"""Release and resolve records of the quarantine, each once.

Guarantees: a released record and its mark are written in one transaction. All processes that release or resolve share a
transactional id, so a record is never closed twice. Test: tests/integration/operations/test_quarantine.py.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Final

from reconsume.bridge.groups.groups_store import read_groups
from reconsume.bridge.kafka.admin import Partition
from reconsume.bridge.kafka.cluster import Cluster
from reconsume.bridge.scheduler.targets.routing import target_of
from reconsume.bridge.writing.exclusive_writer import Acknowledged, ExclusiveWriter, wait_until_shown
from reconsume.bridge.writing.lane_partitions import ANY_PARTITION, LanePartitions
from reconsume.bridge.writing.new_record import NewRecord
from reconsume.delay_levels.errors import IllegalSetting
from reconsume.delay_levels.wire.dead_letter_states import OPEN, RESOLVED, DeadLetterState, encode_state
from reconsume.delay_levels.wire.names import TopicNames
from reconsume.delay_levels.wire.quarantine import RELEASED, QuarantineMark
from reconsume.operations.dead_letter_states import check_reason
from reconsume.operations.quarantine.records import (
    QuarantineRecord,
    QuarantineStates,
    find_spans,
    is_quarantined,
    read_records,
    read_spans,
)
from reconsume.operations.record_address import RecordAddress

_TOGETHER: Final = 500
"""The maximum number of records in a transaction."""
_PART_BYTES: Final = 1024 * 1024
"""The maximum size of the records in a transaction: small enough for a narrow link."""
Told = Callable[[QuarantineRecord], None]


def release(
    cluster: Cluster,
    chosen: Collection[RecordAddress] | None,
    changes: Mapping[str, str],
    told: Told = lambda _record: None,
) -> int:
    """Give open records back to the schedulers and mark them as released, in transactions; return their number.

    Args:
        cluster: the installation.
        chosen: the positions of the records; None for all open ones.
        changes: headers to set on each record.
        told: called with each released record.

    Raises:
        IllegalSetting: a chosen record does not exist or is not open; nothing was released.
        KafkaNotReachable: no answer; the same call continues, or refuses records that are already released.
    """
    write = partial(_release, cluster.names, changes, _partitions_at_once(cluster))
    return _close(cluster, chosen, "releasing from the quarantine", write, told)


def resolve_quarantined(
    cluster: Cluster,
    chosen: Collection[RecordAddress] | None,
    *,
    by: str,
    why: str,
    told: Told = lambda _record: None,
) -> int:
    """Mark open records as resolved, for good; return their number. They stay in the quarantine.

    Args:
        cluster: the installation.
        chosen: the positions of the records; None for all open ones.
        by: the user.
        why: the reason.
        told: called with each resolved record.

    Raises:
        IllegalSetting: the reason is missing, or a chosen record does not exist or is not open; nothing was resolved.
        KafkaNotReachable: no answer; the same call continues, or refuses records that are already resolved.
    """
    check_reason(why)
    resolution = DeadLetterState(RESOLVED, int(cluster.clock()), by, why)
    write = partial(_resolve, cluster.names.quarantine, encode_state(resolution).encode())
    return _close(cluster, chosen, "resolving records of the quarantine", write, told)


def _close(
    cluster: Cluster,
    chosen: Collection[RecordAddress] | None,
    doing: str,
    write: Callable[[Sequence[QuarantineRecord], ExclusiveWriter], None],
    told: Told,
) -> int:
    count, closed = 0, set[Partition]()
    with ExclusiveWriter(cluster, f"{cluster.names.prefix}quarantine-release", doing) as writer:
        # This comes first: from here on no other change can be committed any more, so the records read are final.
        writer.take_over()
        choice = _Choice(cluster, None if chosen is None else frozenset(chosen))
        for read in _parts(choice.records()):
            if not writer.is_alone:
                writer.take_over()
                choice.look_again()
            part = choice.still_open(read)
            if part:
                write(part, writer)
            count += len(part)
            for one in part:
                told(one)
            closed |= {(cluster.names.quarantine, one.place.partition) for one in part}
    wait_until_shown(cluster, closed)
    return count


class _Choice:
    """The records to release or to resolve: all chosen ones, or none.

    Args:
        cluster: the installation.
        chosen: the positions of the records; None for all open ones.

    Raises:
        IllegalSetting: a chosen record does not exist or is not open.
    """

    def __init__(self, cluster: Cluster, chosen: Collection[RecordAddress] | None) -> None:
        self._cluster, self._chosen = cluster, chosen
        self._spans = self._read = find_spans(cluster, to_the_last=True)
        self._states, missing = QuarantineStates(self._spans), set(chosen or ())
        for read in read_spans(cluster, self._spans):
            self._states.look(read)
            if missing and (place := RecordAddress(read.partition, read.offset)) in missing:
                missing -= {place} if is_quarantined(read.headers) else set()
        for place in sorted(missing):
            raise IllegalSetting(f"{place}: the record does not exist; `reconsume quarantine list` shows them")
        for place in sorted(chosen or ()):
            if (state := self._states.of(place)) != OPEN:
                raise IllegalSetting(
                    f"{place}: the record was {state.lower()} before; `reconsume quarantine list` shows the others"
                )

    def records(self) -> Iterator[QuarantineRecord]:
        """Read them, in order."""
        for record in read_records(self._cluster, self._spans, self._states):
            if record.state == OPEN if self._chosen is None else record.place in self._chosen:
                yield record

    def look_again(self) -> None:
        """Read the marks that were committed since the last look."""
        ends = find_spans(self._cluster, to_the_last=True)
        added = {where: (end, ends[where][1]) for where, (_, end) in self._read.items() if where in ends}
        self._read = self._read | added
        for read in read_spans(self._cluster, added):
            self._states.look(read)

    def still_open(self, records: Iterable[QuarantineRecord]) -> list[QuarantineRecord]:
        """Return the records that nobody has closed meanwhile."""
        return [one for one in records if self._states.of(one.place) == OPEN]


def _parts(records: Iterable[QuarantineRecord]) -> Iterator[list[QuarantineRecord]]:
    """Yield the records of one transaction each."""
    part: list[QuarantineRecord] = []
    size = 0
    for one in records:
        part.append(one)
        size += one.size
        if len(part) >= _TOGETHER or size >= _PART_BYTES:
            yield part
            part, size = [], 0
    if part:
        yield part


def _partitions_at_once(cluster: Cluster) -> Callable[[str, bytes | None], int]:
    """Return a function from target and key to the partition of `DELAY.0s`."""
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
            real_topic, group = target_of(headers)
            partition = choose(group or real_topic, one.key)
        back.append(NewRecord(topic, one.value, one.key, partition, headers))

    def marks(stored: Acknowledged) -> Iterator[NewRecord]:
        for one, place in zip(records, stored.places, strict=True):
            # The mark tells where the record went, so that a reader of both topics recognises the copy.
            yield _mark(names.quarantine, one, RELEASED, str(place).encode())

    writer.write_after(back, marks)


def _resolve(topic: str, value: bytes, records: Sequence[QuarantineRecord], writer: ExclusiveWriter) -> None:
    writer.write_records([_mark(topic, one, RESOLVED, value) for one in records])


def _mark(topic: str, one: QuarantineRecord, state: str, value: bytes) -> NewRecord:
    return NewRecord(topic, value, None, one.place.partition, QuarantineMark(one.place.offset, state).headers())
