"""Commits of many groups at once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from multiprocessing.pool import ThreadPool
from typing import Final

from reconsume.bridge.kafka.admin import Commit, Partition
from reconsume.bridge.kafka.clients import clients_of
from reconsume.bridge.kafka.cluster import Cluster
from reconsume.bridge.librdkafka.offsets_of_groups import offsets_of_groups

FEW: Final = 32
"""This many groups are asked one by one in less time than a child process takes to start."""
_SIDE_BY_SIDE: Final = 16


def commits_of_groups(cluster: Cluster, asked: Mapping[str, Sequence[Partition]]) -> dict[str, dict[Partition, Commit]]:
    """Return the commits of each group for its partitions; a partition without one is missing.

    Args:
        cluster: the cluster.
        asked: the partitions of each group.

    Raises:
        KafkaNotReachable: no answer.
        KafkaRefused: the right to describe a group is missing.
    """
    found: dict[str, dict[Partition, Commit]] = {}
    # No other process can reach an in-memory Kafka.
    if len(asked) > FEW and clients_of(cluster.base).outlive_the_process:
        for group, offsets in offsets_of_groups(cluster.base, asked).items():
            found[group] = {(topic, one): Commit(offset, text) for topic, one, offset, text in offsets if offset >= 0}
    others = [group for group in asked if group not in found]
    # Each request needs its own client: see `KafkaAdmin.commits`. Threads of a `ThreadPoolExecutor` hold up the end of
    # the process until a silent coordinator's time is over; these do not.
    with ThreadPool(min(_SIDE_BY_SIDE, len(others) or 1)) as pool:
        answers = pool.map(lambda group: cluster.admin.commits(group, asked[group]), others, chunksize=1)
        return found | dict(zip(others, answers, strict=True))
