"""Numbers of waiting records and of each group, for `reconsume status` and the console."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from typing import Any, Final

from reconsume.bridge.kafka.admin import Commit, Partition
from reconsume.bridge.kafka.cluster import Cluster
from reconsume.bridge.kafka.partitioning import partitions_with_leader
from reconsume.bridge.reading.commits_of_groups import commits_of_groups
from reconsume.bridge.reading.counting import Count, Span, count_records, total
from reconsume.bridge.reading.range_reader import RangeReader
from reconsume.delay_levels.errors import IllegalName, MalformedProperty, TopicNotReady
from reconsume.delay_levels.progress.done_ahead import decode_done
from reconsume.delay_levels.wire.names import DOCTOR_GROUP, MAX_TOPIC_LENGTH, TopicNames, prefix_and_group
from reconsume.operations.quarantine.records import QuarantineCounter

_SECONDS: Final = 10.0
_NONE: Final = Count(0, exact=True)
_UNKNOWN: Final = Count(0, exact=False)


@dataclass(frozen=True, slots=True)
class LaneStatus:
    """A scheduled topic.

    Attributes:
        overdue: number of due waiting records; 0 if each record has its own due moment.
        next_due_ms: when the first waiting record is due; None if none waits or it is unknown.
    """

    topic: str
    waiting: Count
    overdue: Count
    next_due_ms: int | None


@dataclass(frozen=True, slots=True)
class GroupStatus:
    """A group with retry or dead-letter topics.

    Attributes:
        parked: number of records in the group's parked topic, because it is paused, or was a moment ago.
    """

    group: str
    retry_lag: Count
    dead_letters: Count
    parked: Count = _NONE


@dataclass(frozen=True, slots=True)
class Status:
    """The waiting records of each scheduled topic, and the retry and dead-letter topics of each group.

    Attributes:
        leaderless: the partitions that are not counted, because they have no leader.
    """

    at_ms: int
    waiting: list[LaneStatus]
    groups: list[GroupStatus]
    quarantined: Count
    leaderless: Sequence[str] = ()

    @property
    def is_exact(self) -> bool:
        """Return whether no number is an estimate from offsets."""
        of_lanes = (count for one in self.waiting for count in (one.waiting, one.overdue))
        of_groups = (count for one in self.groups for count in (one.retry_lag, one.dead_letters, one.parked))
        return all(count.exact for count in (self.quarantined, *of_lanes, *of_groups))

    def as_json(self) -> dict[str, Any]:
        """Return the status as JSON. Each number has a `<name>_exact` beside it: false for an estimate."""
        found = _spelled(asdict(self))
        return found | {name: [_spelled(one) for one in found[name]] for name in ("waiting", "groups")}


def _spelled(values: Mapping[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, value in values.items():
        found |= {name: value.number, f"{name}_exact": value.exact} if isinstance(value, Count) else {name: value}
    return found


def collect_status(cluster: Cluster, quarantine: QuarantineCounter | None = None) -> Status:
    """Read the status of the installation; records are read only where they are few.

    Args:
        cluster: the installation.
        quarantine: the counter of a caller that asks repeatedly, so that the quarantine is read only once.

    Raises:
        TopicNotReady: no topic of the installation is visible.
    """
    names, client_id = cluster.names, f"{cluster.names.prefix}status"
    topics = {topic: count for topic, count in cluster.admin.topics().items() if topic.startswith(names.prefix)}
    if not topics:
        raise TopicNotReady(
            f"no topics start with {names.prefix}; create them: reconsume topics apply. If they exist, this client has "
            "no right to use the topics: grant Read on the prefix, see reconsume topics acls --role console"
        )
    scheduled, groups = _scheduled(names, topics), _groups(names, topics)
    partitions, leaderless = partitions_with_leader(cluster.admin, topics)
    unknown = dict.fromkeys(leaderless, _UNKNOWN)
    left = _left(cluster, partitions, scheduled, groups)
    counts = _by_topic(count_records(cluster.base, left, client_id) | unknown)
    now_ms = int(cluster.clock())
    heads = _first_timestamps(cluster, {where: one for where, one in left.items() if where[0] in scheduled}, client_id)
    overdue = _by_topic(count_records(cluster.base, _overdue(cluster, left, heads, now_ms), client_id) | unknown)
    return Status(
        int(cluster.clock()),
        [LaneStatus(topic, counts[topic], overdue[topic], _next_due_ms(names, topic, heads)) for topic in scheduled],
        [_of_group(names, group, counts) for group in groups],
        (quarantine or QuarantineCounter()).look(cluster) if names.quarantine not in dict(leaderless) else _UNKNOWN,
        sorted(f"{topic}-{partition}" for topic, partition in leaderless),
    )


def _of_group(names: TopicNames, group: str, counts: Mapping[str, Count]) -> GroupStatus:
    parked = counts[names.parked(group)] if len(names.retry(group)) < MAX_TOPIC_LENGTH else _NONE
    return GroupStatus(group, counts[names.retry(group)], counts[names.dead_letter(group)], parked)


def _by_topic(counts: Mapping[Partition, Count]) -> defaultdict[str, Count]:
    found: defaultdict[str, Count] = defaultdict(lambda: Count(0, exact=True))
    for (topic, _), count in counts.items():
        found[topic] = total((found[topic], count))
    return found


def _left(
    cluster: Cluster, existing: Sequence[Partition], scheduled: Sequence[str], groups: Sequence[str]
) -> dict[Partition, Span]:
    """Return the unfinished rest of each of these partitions that are counted."""
    admin, names = cluster.admin, cluster.names
    delivering = [*scheduled, *filter(names.is_parked, dict(existing))]
    consumers = dict.fromkeys(delivering, names.scheduler_group) | {names.retry(group): group for group in groups}
    wanted = {*consumers, *map(names.dead_letter, groups)}
    partitions = [where for where in existing if where[0] in wanted]
    ends, starts = admin.end_offsets(partitions), admin.end_offsets(partitions, earliest=True)
    # Empty partitions need no look-up of commits: a request for each group is the expensive part.
    of_consumer: defaultdict[str, list[Partition]] = defaultdict(list)
    for where in partitions:
        if where[0] in consumers and starts[where] < ends[where]:
            of_consumer[consumers[where[0]]].append(where)
    # Commits before ends: commits made in between then show as waiting records, not as negative numbers.
    commits: dict[Partition, Commit] = {}
    for found in commits_of_groups(cluster, of_consumer).values():
        commits |= found
    ends |= admin.end_offsets(where for asked in of_consumer.values() for where in asked)
    return {where: unfinished_span(starts[where], ends[where], commits.get(where)) for where in partitions}


def unfinished_span(start: int, end: int, commit: Commit | None) -> Span:
    """Return the unfinished rest of a partition, without records that the metadata marks as done."""
    if commit is None or commit.offset < start:
        return Span(start, end)
    try:
        return Span(commit.offset, end, decode_done(commit.offset, commit.metadata))
    except MalformedProperty:
        return Span(commit.offset, end)  # metadata of another client


def _first_timestamps(cluster: Cluster, spans: Mapping[Partition, Span], client_id: str) -> dict[Partition, int]:
    """Return when the first record of each range was stored; unreadable or empty ranges are left out."""
    found: dict[Partition, int] = {}
    with RangeReader(cluster.base, client_id) as reader:
        ranges = {where: (span.start, span.end) for where, span in spans.items()}
        for read in reader.records(ranges, within_seconds=_SECONDS, on_refusal=lambda *_: None):
            found[read.where] = read.stored_ms
            reader.leave(read.where)
    return found


def _delay_ms(names: TopicNames, topic: str) -> int | None:
    """Return the delay of a topic's records; None if each has its own due moment."""
    return None if topic == names.delay(0) else names.delay_ms(topic)


def _overdue(
    cluster: Cluster, left: Mapping[Partition, Span], heads: Mapping[Partition, int], now_ms: int
) -> dict[Partition, Span]:
    """Return the due part of each partition."""
    late: defaultdict[int, list[Partition]] = defaultdict(list)
    for where, stored_ms in heads.items():
        delay_ms = _delay_ms(cluster.names, where[0])
        if delay_ms is not None and stored_ms + delay_ms < now_ms:
            late[delay_ms].append(where)
    found: dict[Partition, Span] = {}
    for delay_ms, partitions in late.items():
        ends = cluster.admin.offsets_at(partitions, now_ms - delay_ms)
        found |= {where: Span(left[where].start, min(left[where].end, end)) for where, end in ends.items()}
    return found


def _next_due_ms(names: TopicNames, topic: str, heads: Mapping[Partition, int]) -> int | None:
    first = min((at for where, at in heads.items() if where[0] == topic), default=None)
    delay_ms = _delay_ms(names, topic)
    return None if first is None or delay_ms is None else first + delay_ms


def _scheduled(names: TopicNames, topics: Mapping[str, int]) -> list[str]:
    """Return the inbox, then the levels from the shortest on; other topics are left out."""
    found = []
    for topic in topics:
        if names.is_scheduled(topic):
            try:
                found.append((topic != names.send_back, names.delay_ms(topic), topic))
            except IllegalName:
                continue
    return [topic for _, _, topic in sorted(found)]


def _groups(names: TopicNames, topics: Mapping[str, int]) -> list[str]:
    """Return all groups but the doctor's, whose retries have no consumer."""
    found = set()
    for topic in topics:
        if names.is_parked(topic):
            with suppress(IllegalName):
                found.add(names.group_parked_in(topic))
            continue
        prefix, group = prefix_and_group(names.rocketmq_name(topic))
        if prefix:
            found.add(group)
    return sorted(found - {DOCTOR_GROUP})
