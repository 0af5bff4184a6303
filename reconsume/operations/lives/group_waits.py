"""The number of a group's waiting records on each delay topic."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

from reconsume.bridge.kafka.cluster import Cluster
from reconsume.delay_levels.errors import MalformedProperty
from reconsume.delay_levels.wire.names import DLQ_PREFIX, RETRY_PREFIX
from reconsume.delay_levels.wire.properties import REAL_TOPIC, text_property
from reconsume.operations.waiting import WaitingReader

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
    """Count the group's records among those of all groups that `WaitingReader` reads in 10 s.

    Raises:
        KafkaNotReachable: no answer.
        KafkaRefused: rights are missing.
    """
    names = cluster.names
    topics = {topic: count for topic, count in cluster.admin.topics().items() if names.is_scheduled(topic)}
    reader = WaitingReader(cluster, topics)
    wanted, found = {RETRY_PREFIX + group, DLQ_PREFIX + group}, Counter[str]()
    for one in reader.records(within_seconds=_SECONDS):
        with suppress(MalformedProperty):
            found[one.topic] += text_property(one.headers, REAL_TOPIC) in wanted
    return GroupWaits({topic: number for topic, number in found.items() if number}, reader.looked_at, reader.is_whole)
