"""`reconsume status`: what waits, and what each group has."""

from __future__ import annotations

import sys
from typing import Any

from reconsume.bridge.admin import KafkaAdmin
from reconsume.bridge.settings import Settings
from reconsume.cli.common import print_json, print_table
from reconsume.delay_levels.errors import IllegalName
from reconsume.delay_levels.names import DLQ_PREFIX, RETRY_PREFIX, TopicNames

__all__ = ["collect_status", "show_status"]


def show_status(settings: Settings, *, as_json: bool) -> None:
    """Print the status once."""
    report = collect_status(settings)
    if as_json:
        print_json(report)
        return
    print_table("waiting", ("topic", "waiting"), [(one["topic"], one["waiting"]) for one in report["waiting"]])
    rows = [(one["group"], one["retry_lag"], one["dead_letters"]) for one in report["groups"]]
    print_table("groups", ("group", "retries not consumed", "dead letters kept"), rows)
    sys.stdout.write(f"quarantined: {report['quarantined']:,}\n")
    sys.stdout.write("Counted by offsets: the end mark of a transaction counts too, about one for each partition.\n")


def collect_status(settings: Settings) -> dict[str, Any]:
    """What waits on each scheduled topic, and the retry and dead-letter topics of each group.

    Numbers are differences of offsets; a transaction's marker takes one too, so they may be a little too high.
    """
    admin, names = KafkaAdmin(settings.client_settings()), settings.names
    topics = {topic: count for topic, count in admin.topics().items() if topic.startswith(names.prefix)}
    partitions = [(topic, one) for topic, count in topics.items() for one in range(count)]
    ends, starts = admin.end_offsets(partitions), admin.end_offsets(partitions, earliest=True)
    committed = admin.committed(names.prefix + "scheduler")

    def kept(topic: str, offsets: dict[tuple[str, int], int]) -> int:
        wheres = [(topic, one) for one in range(topics.get(topic, 0))]
        return sum(ends[where] - max(starts[where], offsets.get(where, 0)) for where in wheres)

    waiting = [{"topic": topic, "waiting": kept(topic, committed)} for topic in _scheduled(names, topics)]
    groups = []
    for group in _groups(names, topics):
        consumed = admin.committed(group)
        groups.append(
            {
                "group": group,
                "retry_lag": kept(names.retry(group), consumed),
                "dead_letters": kept(names.dead_letter(group), {}),
            }
        )
    return {"waiting": waiting, "groups": groups, "quarantined": kept(names.quarantine, {})}


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
    found = set()
    for topic in topics:
        name = names.rocketmq_name(topic)
        for prefix in (RETRY_PREFIX, DLQ_PREFIX):
            if name.startswith(prefix):
                found.add(name.removeprefix(prefix))
    return sorted(found)
