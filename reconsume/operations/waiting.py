"""Records that wait in delay topics, parked topics and the inbox, and the withdrawal of delayed messages."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final, TypeVar

from reconsume.bridge.kafka.admin import Partition
from reconsume.bridge.kafka.cluster import Cluster
from reconsume.bridge.kafka.partitioning import partitions_with_leader
from reconsume.bridge.reading.counting import Span
from reconsume.bridge.reading.range_reader import RangeReader, ReadRecord
from reconsume.delay_levels.errors import IllegalName, IllegalSetting, MalformedProperty, RecordNotFound, TopicNotReady
from reconsume.delay_levels.wire.names import RETRY_PREFIX, TopicNames, prefix_and_group
from reconsume.delay_levels.wire.properties import (
    DELAY,
    ORIGIN_MESSAGE_ID,
    REAL_TOPIC,
    RECONSUME_TIME,
    TIMER_DEL_UNIQKEY,
    TIMER_DELIVER_MS,
    UNIQ_KEY,
    Header,
    Headers,
    count_property,
    integer_property,
    text_property,
)
from reconsume.delay_levels.wire.send_back_copy import Position
from reconsume.delay_levels.wire.withdrawals import check_remembered
from reconsume.operations.status import unfinished_span

_MOST_LOOKED_AT: Final = 20_000
"""Maximum of records read for one list, shared by the partitions."""
_SECONDS: Final = 30.0
_MOST_BYTES: Final = 64 * 1024 * 1024
_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class WaitingRecord:
    """A record that waits.

    Attributes:
        place: its current place; a delayed message moves from topic to topic.
        kind: `retry`, `dead letter` or `delayed message`; `unknown` if its target is unreadable.
        target: the group of a retry or dead letter, the topic of a delayed message.
        message_id: the id of the first copy.
        uniq_key: the id for withdrawing a delayed message.
        attempt: how often the message was sent back.
        due_ms: when it is due; None while its group is paused.
    """

    place: Position
    kind: str
    target: str
    message_id: str | None
    uniq_key: str | None
    attempt: int | None
    level: int | None
    due_ms: int | None
    stored_ms: int


@dataclass(frozen=True, slots=True)
class WaitingList:
    """Waiting records, the earliest due first.

    Attributes:
        looked_at: the number of waiting records that were read.
        is_whole: whether all waiting records were read.
    """

    records: list[WaitingRecord]
    looked_at: int
    is_whole: bool


class WaitingReader:
    """Reads waiting records, at most 20,000 and 64 MiB, of each partition those that leave first.

    Args:
        cluster: the installation.
        topics: the topics to read, with their numbers of partitions.

    Attributes:
        looked_at: the number of waiting records that were read.
        is_whole: after `records`, whether all waiting records were read.
    """

    def __init__(self, cluster: Cluster, topics: Mapping[str, int]) -> None:
        self._cluster = cluster
        partitions, lost = partitions_with_leader(cluster.admin, topics)
        self._spans = unfinished(cluster, partitions)
        self._ranges: dict[Partition, tuple[int, int]] = {}
        left = _MOST_LOOKED_AT
        # The smallest first: what they leave of their shares is for the others.
        ordered = sorted(self._spans.items(), key=lambda one: one[1].end - one[1].start)
        for others, (where, span) in zip(reversed(range(len(ordered))), ordered, strict=True):
            end = min(span.end, span.start + left // (others + 1))
            self._ranges[where] = span.start, end
            left -= end - span.start
        self.looked_at = 0
        self.is_whole = not lost and all(self._ranges[where][1] == span.end for where, span in ordered)

    def records(self, *, within_seconds: float | None = None) -> Iterator[ReadRecord]:
        """Yield the records, in order within each partition; None reads without a limit of time.

        Raises:
            KafkaNotReachable: no answer.
            KafkaRefused: rights are missing.
        """
        left_bytes = _MOST_BYTES
        with RangeReader(self._cluster.base, f"{self._cluster.names.prefix}delay-list", seconds=_SECONDS) as reader:
            for read in reader.records(self._ranges, within_seconds=within_seconds):
                if read.offset in self._spans[read.where].done:
                    continue
                self.looked_at, left_bytes = self.looked_at + 1, left_bytes - read.size
                if left_bytes < 0:
                    self.is_whole = False
                    return
                yield read
            self.is_whole = self.is_whole and not reader.unread


def list_waiting(
    cluster: Cluster, *, group: str | None = None, topic: str | None = None, limit: int = 50
) -> WaitingList:
    """Return waiting records, reading those of each partition that leave first.

    Args:
        cluster: the installation.
        group: only retries and dead letters of this group.
        topic: only delayed messages for this topic.
        limit: the length of the list.

    Raises:
        TopicNotReady: the installation has no topics.
        KafkaNotReachable: no answer.
    """
    names = cluster.names
    lanes = {one: count for one, count in cluster.admin.topics().items() if _is_lane(names, one)}
    if not lanes:
        raise TopicNotReady(f"topics {names.prefix}DELAY.* do not exist; create them: reconsume topics apply")
    reader, found = WaitingReader(cluster, lanes), list[WaitingRecord]()
    for read in reader.records():
        one = describe_waiting(read, names)
        if (group is None or (one.target == group and one.kind in ("retry", "dead letter"))) and (
            topic is None or (one.target == topic and one.kind == "delayed message")
        ):
            found.append(one)
    found.sort(key=lambda one: (one.due_ms is None, one.due_ms or one.stored_ms, str(one.place)))
    return WaitingList(found[:limit], reader.looked_at, reader.is_whole and len(found) <= limit)


def describe_waiting(read: ReadRecord, names: TopicNames) -> WaitingRecord:
    """Return the facts in a waiting record's headers; unreadable headers are left out."""
    headers = read.headers
    target, kind = _readable(text_property, headers, REAL_TOPIC) or "", "delayed message"
    prefix, named = prefix_and_group(target)
    if prefix:
        target, kind = named, "retry" if prefix == RETRY_PREFIX else "dead letter"
    deliver_ms = uniq_key = due_ms = None
    if kind == "delayed message":
        deliver_ms = _readable(count_property, headers, TIMER_DELIVER_MS)
        uniq_key = _readable(text_property, headers, UNIQ_KEY)
    if not names.is_parked(read.topic):
        due_ms = max(read.stored_ms + names.delay_ms(read.topic), deliver_ms or 0)
    return WaitingRecord(
        Position(read.topic, read.partition, read.offset),
        kind if target else "unknown",
        target,
        _readable(text_property, headers, ORIGIN_MESSAGE_ID),
        uniq_key,
        _readable(count_property, headers, RECONSUME_TIME),
        _readable(integer_property, headers, DELAY),
        due_ms,
        read.stored_ms,
    )


def read_waiting(cluster: Cluster, places: Iterable[str]) -> Iterator[tuple[ReadRecord, WaitingRecord]]:
    """Yield the records at these places, and their facts.

    Raises:
        IllegalSetting: a place is not one of a waiting record.
        RecordNotFound: no record is at a place.
    """
    names = cluster.names
    positions = [_parsed(names, one) for one in places]
    spans = unfinished(cluster, {(one.topic, one.partition) for one in positions})
    with RangeReader(cluster.base, f"{names.prefix}delay-list", seconds=_SECONDS) as reader:
        for one in positions:
            span = spans.get((one.topic, one.partition))
            if span is not None and one.offset >= span.end:
                raise RecordNotFound(
                    f"no record is visible at {one}; if it was just written, a transaction in front of it may be open: "
                    "try again, and run `reconsume doctor` if this stays so"
                )
            if span is None or one.offset < span.start or one.offset in span.done:
                raise IllegalSetting(f"{one} no longer waits; `reconsume delay list` shows waiting records")
            ranges = {(one.topic, one.partition): (one.offset, one.offset + 1)}
            read = next(iter(reader.records(ranges)), None)
            if read is None:
                raise RecordNotFound(f"no record is at {one}; `reconsume delay list` shows waiting records")
            yield read, describe_waiting(read, names)


def withdrawal_headers(one: WaitingRecord, names: TopicNames) -> list[Header]:
    """Return the headers of the record of CANCEL that withdraws a delayed message."""
    found: list[Header] = [(TIMER_DEL_UNIQKEY, (one.uniq_key or "").encode())]
    # In the inbox the due moment is not known yet.
    if one.place.topic != names.send_back:
        found.append((TIMER_DELIVER_MS, str(one.due_ms).encode()))
    return found


def check_withdrawable(one: WaitingRecord, now_ms: float) -> None:
    """Raise `IllegalSetting` if schedulers cannot drop this record, or would forget to."""
    if one.kind in ("retry", "dead letter"):
        raise IllegalSetting(
            f"{one.place} is a {one.kind} of group {one.target!r}, and a failed message is never dropped: hold the "
            f"group's retries with `reconsume groups set --retry-paused`, or resolve the dead letter when it is one"
        )
    if not one.uniq_key:
        raise IllegalSetting(f"{one.place} has no UNIQ_KEY, so it cannot be withdrawn")
    check_remembered(str(one.place), one.due_ms or 0, now_ms)


def _is_lane(names: TopicNames, topic: str) -> bool:
    if names.is_parked(topic):
        return True
    try:
        return names.is_scheduled(topic) and names.delay_ms(topic) >= 0
    except IllegalName:
        return False


def unfinished(cluster: Cluster, partitions: Iterable[Partition]) -> Mapping[Partition, Span]:
    """Return unfinished records; commits before ends, so that records which leave meanwhile are still shown."""
    asked, admin = sorted(partitions), cluster.admin
    there = admin.partitions({topic for topic, _ in asked})
    asked = [(topic, number) for topic, number in asked if number < there.get(topic, 0)]
    commits = admin.commits(cluster.names.scheduler_group, asked)
    ends, starts = admin.end_offsets(asked), admin.end_offsets(asked, earliest=True)
    return {where: unfinished_span(starts[where], ends[where], commits.get(where)) for where in asked}


def _parsed(names: TopicNames, text: str) -> Position:
    try:
        found = Position.parse(text)
        if _is_lane(names, found.topic):
            return found
    except MalformedProperty:
        pass
    raise IllegalSetting(f"{text[:80]!r}: write TOPIC/PARTITION/OFFSET as `reconsume delay list` shows it")


def _readable(read: Callable[[Headers, str], _T | None], headers: Headers, name: str) -> _T | None:
    """Return a property; None if it is absent or malformed."""
    try:
        return read(headers, name)
    except MalformedProperty:
        return None
