"""What waits, and what each group has: numbers for `reconsume status` and the console."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from reconsume.bridge.kafka.admin import Commit, KafkaAdmin, Partition
from reconsume.bridge.process.clock import Clock, now_ms
from reconsume.bridge.process.settings import Settings
from reconsume.bridge.reading.counting import Count, Span, count_records, look_at_lanes, total
from reconsume.delay_levels.errors import IllegalName, MalformedProperty, TopicNotReady
from reconsume.delay_levels.progress.done_apart import decode_either
from reconsume.delay_levels.wire.names import DLQ_PREFIX, DOCTOR_GROUP, RETRY_PREFIX, TopicNames
from reconsume.operations.quarantine import count_quarantined

__all__ = ["collect_status"]


def collect_status(settings: Settings, clock: Clock = now_ms) -> dict[str, Any]:
    """What waits on each scheduled topic, and the retry and dead-letter topics of each group.

    Beside each number stands `<its name>_exact`: false for those that are estimated from offsets.
    """
    base, names = settings.client_settings(), settings.names
    admin = KafkaAdmin(base)
    topics = {topic: count for topic, count in admin.topics().items() if topic.startswith(names.prefix)}
    if not topics:
        raise TopicNotReady(
            f"no topic that starts with {names.prefix} is to be seen: make them, reconsume topics apply; or this "
            "client has no right to use the topic: grant Read on the prefix, see reconsume topics acls --role console"
        )
    scheduled, groups = _scheduled(names, topics), _groups(names, topics)
    wanted = _left_of(admin, names, topics, scheduled, groups)
    counts = count_records(
        base, {where: one for found in wanted.values() for where, one in found.items()}, names.prefix + "status"
    )

    def counted(name: str, topic: str) -> dict[str, Any]:
        count = total(counts[where] for where in wanted[topic])
        return {name: count.number, f"{name}_exact": count.exact}

    lanes = look_at_lanes(
        admin,
        base,
        {topic: _delay_ms(names, topic) for topic in scheduled},
        {topic: wanted[topic] for topic in scheduled},
        now_ms=int(clock()),
        client_id=names.prefix + "status",
    )

    def due(topic: str) -> dict[str, Any]:
        lane = lanes[topic]
        overdue = lane.overdue
        return {"overdue": overdue.number, "overdue_exact": overdue.exact, "next_due_ms": lane.next_due_ms}

    quarantined = total(counts[where] for where in wanted[names.quarantine])
    if quarantined.exact and quarantined.number:
        # What was released is there still, and so are the marks that tell it.
        quarantined = Count(count_quarantined(settings), exact=True)
    return {
        "at_ms": int(clock()),
        "waiting": [{"topic": topic} | counted("waiting", topic) | due(topic) for topic in scheduled],
        "groups": [
            {"group": group}
            | counted("retry_lag", names.retry(group))
            | counted("dead_letters", names.dead_letter(group))
            for group in groups
        ],
        "quarantined": quarantined.number,
        "quarantined_exact": quarantined.exact,
    }


def _left_of(
    admin: KafkaAdmin, names: TopicNames, topics: Mapping[str, int], scheduled: Sequence[str], groups: Sequence[str]
) -> dict[str, dict[Partition, Span]]:
    """What is not done yet of each partition, by topic."""
    # Commits before ends: what is committed meanwhile then shows as waiting still, and not as less than nothing.
    partitions = [(topic, one) for topic, count in topics.items() for one in range(count)]
    commits = admin.commits(names.scheduler_group, [one for one in partitions if one[0] in scheduled])
    consumed = {
        group: admin.commits(group, [one for one in partitions if one[0] == names.retry(group)]) for group in groups
    }
    ends, starts = admin.end_offsets(partitions), admin.end_offsets(partitions, earliest=True)

    def spans(topic: str, after: Mapping[Partition, Commit]) -> dict[Partition, Span]:
        wheres = [(topic, one) for one in range(topics.get(topic, 0))]
        return {where: _span(starts[where], ends[where], after.get(where)) for where in wheres}

    wanted = {topic: spans(topic, commits) for topic in scheduled}
    wanted[names.quarantine] = spans(names.quarantine, {})
    for group in groups:
        wanted[names.retry(group)] = spans(names.retry(group), consumed[group])
        wanted[names.dead_letter(group)] = spans(names.dead_letter(group), {})
    return wanted


def _delay_ms(names: TopicNames, topic: str) -> int | None:
    """After how long its records are due; None where each has a moment of its own."""
    return None if topic == names.delay(0) else names.delay_ms(topic)


def _span(start: int, end: int, commit: Commit | None) -> Span:
    """What is left of a partition: without what was delivered out of turn, as the commit's metadata tells."""
    if commit is None or commit.offset < start:
        return Span(start, end)
    try:
        return Span(commit.offset, end, decode_either(commit.offset, commit.metadata))
    except MalformedProperty:
        return Span(commit.offset, end)  # the consumer's own metadata


def _scheduled(names: TopicNames, topics: dict[str, int]) -> list[str]:
    """The inbox first, then the levels from the shortest on; a topic that is none of ours is left out."""
    found = []
    for topic in topics:
        if names.is_scheduled(topic):
            try:
                found.append((topic != names.send_back, names.delay_ms(topic), topic))
            except IllegalName:
                continue
    return [topic for _, _, topic in sorted(found)]


def _groups(names: TopicNames, topics: dict[str, int]) -> list[str]:
    """All but the doctor's, whose retries nobody consumes."""
    found = set()
    for topic in topics:
        name = names.rocketmq_name(topic)
        for prefix in (RETRY_PREFIX, DLQ_PREFIX):
            if name.startswith(prefix):
                found.add(name.removeprefix(prefix))
    return sorted(found - {DOCTOR_GROUP})
