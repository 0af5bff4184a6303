"""The number of a group's waiting records on each delay topic."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from reconsume.bridge.kafka.cluster import Cluster
from reconsume.bridge.kafka.partitioning import partitions_with_leader
from reconsume.bridge.reading.range_reader import RangeReader
from reconsume.delay_levels.errors import MalformedProperty
from reconsume.delay_levels.wire.names import DLQ_PREFIX, RETRY_PREFIX
from reconsume.delay_levels.wire.properties import REAL_TOPIC, text_property
from reconsume.operations.waiting import unfinished

_MOST: Final = 20_000
"""Maximum of records to read."""
_SECONDS: Final = 10.0


@dataclass(frozen=True, slots=True)
class GroupWaits:
    """The waiting records of a group.

    Attributes:
        by_topic: the number of records on each delay topic that has some.
        read: the number of records of all groups that were read.
        is_whole: whether all waiting records were read.
    """

    by_topic: Mapping[str, int]
    read: int
    is_whole: bool


def count_group_waits(cluster: Cluster, group: str) -> GroupWaits:
    """Count the group's records among at most 20,000 waiting records of all groups, the earliest due first.

    Raises:
        KafkaNotReachable: no answer.
        KafkaRefused: rights are missing.
    """
    names = cluster.names
    topics = {topic: count for topic, count in cluster.admin.topics().items() if names.is_scheduled(topic)}
    partitions, lost = partitions_with_leader(cluster.admin, topics)
    spans, ranges, left = unfinished(cluster, partitions), {}, _MOST
    for where, span in spans.items():
        ranges[where] = span.start, min(span.end, span.start + max(left, 0))
        left -= span.end - span.start
    wanted, found, read = {RETRY_PREFIX + group, DLQ_PREFIX + group}, Counter[str](), 0
    with RangeReader(cluster.base, f"{names.prefix}status") as reader:
        for one in reader.records(ranges, within_seconds=_SECONDS):
            read += 1
            if one.offset in spans[one.where].done:
                continue
            try:
                found[one.topic] += text_property(one.headers, REAL_TOPIC) in wanted
            except MalformedProperty:
                continue
        is_whole = not lost and left >= 0 and not reader.unread
    return GroupWaits({topic: number for topic, number in found.items() if number}, read, is_whole)
