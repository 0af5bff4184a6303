"""The partition of a delay topic for a record."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final
from zlib import crc32

from reconsume.bridge.groups.groups import Groups
from reconsume.bridge.kafka.partitioning import choose_partition
from reconsume.bridge.process.brokers_clock import monotonic_ms
from reconsume.bridge.process.clock import Clock
from reconsume.delay_levels.rules.lane_budgets import LaneBudgets

ANY_PARTITION: Final = -1
"""Lets the producer choose: by key as a Java client does, else any."""


class LanePartitions:
    """Normal partitions for ordinary records, and behind them bulk partitions for floods.

    Within its budget (`LaneBudgets`) a group's record goes to a normal partition by its key; beyond it, to the group's
    bulk partition. A worker reads all partitions alike and divides its batches among them, so a flood delays only its
    own group and others that flood the same bulk partition.

    Guarantees: a record is never refused for its partition. Without bulk partitions it goes by key.
    Tests: tests/unit/bridge/writing/test_lane_partitions.py, tests/integration/scheduler/test_fairness.py.

    Args:
        groups: the groups as known now, with the number of normal partitions.
        clock: monotonic milliseconds.
    """

    def __init__(self, groups: Callable[[], Groups], clock: Clock = monotonic_ms) -> None:
        self._groups = groups
        self._clock = clock
        self._budgets = LaneBudgets()

    def choose(self, lane: str, partitions: int, target: str, key: bytes | None) -> int:
        """Return the partition for a group's record.

        Args:
            lane: the delay topic.
            partitions: its number of partitions.
            target: the group, or the topic of a delayed message.
            key: the record's key.
        """
        normal = self._groups().normal_partitions
        if partitions <= normal:
            return ANY_PARTITION
        if self._budgets.is_flood(lane, target, self._clock()):
            return normal + crc32(target.encode()) % (partitions - normal)
        return choose_partition(key, normal)
