"""Reads and writes subscription groups."""

from __future__ import annotations

from typing import Final

from reconsume.bridge.groups.groups import Groups, SubscriptionGroupConfig, SystemConfig
from reconsume.bridge.kafka.cluster import Cluster
from reconsume.bridge.kafka.partitioning import all_partitions
from reconsume.bridge.kafka.single_records import write_records
from reconsume.bridge.reading.range_reader import RangeReader
from reconsume.delay_levels.wire.allowed_topics import encode_allowed
from reconsume.delay_levels.wire.names import ALLOWED_TOPICS_KEY, SYSTEM_KEY

_SECONDS: Final = 15.0


def read_groups(cluster: Cluster, *, to_the_last: bool = False) -> Groups:
    """Return the current groups of the topic.

    Args:
        cluster: the installation.
        to_the_last: wait for the end of open transactions.

    Raises:
        KafkaNotReachable: no answer within 15 s.
        KafkaRefused: rights are missing.
    """
    topic = cluster.names.groups
    ends = cluster.admin.end_offsets(all_partitions(cluster.admin.partitions([topic])), uncommitted=to_the_last)
    groups = Groups()
    with RangeReader(cluster.base, topic, seconds=_SECONDS) as reader:
        for read in reader.records({where: (0, end) for where, end in ends.items()}):
            groups = groups.with_record(read.key, read.value)
    return groups


def write_group(cluster: Cluster, config: SubscriptionGroupConfig) -> None:
    """Replace a group, whatever its record is now."""
    write_records(cluster, cluster.names.groups, [(config.group_name, config.to_json())])


def write_system(cluster: Cluster, config: SystemConfig) -> None:
    """Replace the level table and the switches for all groups, whatever they are now."""
    write_records(cluster, cluster.names.groups, [(SYSTEM_KEY, config.to_json())])


def write_allowed_topics(cluster: Cluster) -> None:
    """Publish a scheduler's setting `allowed_real_topics`, for senders of delayed messages."""
    value = encode_allowed(cluster.settings.allowed_real_topics)
    write_records(cluster, cluster.names.groups, [(ALLOWED_TOPICS_KEY, value)])
