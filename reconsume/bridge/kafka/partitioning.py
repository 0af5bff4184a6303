"""The partitions of topics, the partition of a key, and ids of topics that were created again."""

from __future__ import annotations

import random
from collections.abc import Mapping
from typing import Final

from confluent_kafka import Uuid, murmur2

from reconsume.bridge.kafka.admin import KafkaAdmin, Partition

NO_ID: Final = str(Uuid(0, 0))
"""Reported for each topic while brokers run with an `inter.broker.protocol.version` before 2.8."""


def is_another_topic(before: str, now: str) -> bool:
    """Return whether these two ids of a name are those of two topics.

    In an upgrade of the brokers a topic gets its id, and for a moment some brokers still report none.
    """
    return before != now and NO_ID not in (before, now)


def all_partitions(counts: Mapping[str, int]) -> list[Partition]:
    """Return all partitions of these topics."""
    return [(topic, one) for topic, count in counts.items() for one in range(count)]


def partitions_with_leader(admin: KafkaAdmin, counts: Mapping[str, int]) -> tuple[list[Partition], set[Partition]]:
    """Return the partitions of these topics with a leader, and those without.

    A request for the offsets of a partition without a leader fails for all others.
    """
    lost = admin.leaderless(counts)
    return [one for one in all_partitions(counts) if one not in lost], lost


def choose_partition(key: bytes | None, partitions: int) -> int:
    """Choose the partition of a retry topic: by key as a Java client does, else any (RocketMQ: BR-05)."""
    if partitions <= 1:
        return 0
    return random.randrange(partitions) if key is None else murmur2(key, partitions)  # noqa: S311 - no secret
