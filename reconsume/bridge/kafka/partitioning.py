"""The partition of a key."""

from __future__ import annotations

import random

from confluent_kafka import murmur2

__all__ = ["choose_partition"]


def choose_partition(key: bytes | None, partitions: int) -> int:
    """The partition of a retry topic: by key as a Java client would, else any (RocketMQ: BR-05)."""
    if partitions <= 1:
        return 0
    return random.randrange(partitions) if key is None else murmur2(key, partitions)  # noqa: S311 - no secret
