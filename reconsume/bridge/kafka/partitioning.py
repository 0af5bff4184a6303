"""The partitions of topics, and the partition of a key."""

from __future__ import annotations

import random
from collections.abc import Mapping

from confluent_kafka import murmur2


def all_partitions(counts: Mapping[str, int]) -> list[tuple[str, int]]:
    """Return all partitions of these topics."""
    return [(topic, one) for topic, count in counts.items() for one in range(count)]


def choose_partition(key: bytes | None, partitions: int) -> int:
    """Choose the partition of a retry topic: by key as a Java client does, else any (RocketMQ: BR-05)."""
    if partitions <= 1:
        return 0
    return random.randrange(partitions) if key is None else murmur2(key, partitions)  # noqa: S311 - no secret
