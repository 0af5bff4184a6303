"""Deleting what was delivered from parked topics: old enough, and never before it was committed."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, cast

from reconsume.bridge.kafka.admin import Partition
from reconsume.bridge.scheduler.delivery.delivered_parked import DeliveredParked
from reconsume.delay_levels.errors import KafkaRefused
from reconsume.delay_levels.wire.names import TopicNames

NAMES = TopicNames()
A, B, LANE = (NAMES.parked("a"), 0), (NAMES.parked("b"), 0), (NAMES.delay(1_000), 0)
DAY_MS = 86_400_000


@dataclass
class Kafka:
    """Offsets as they are told."""

    commits: dict[Partition, int]
    old: dict[Partition, int]
    refuses: bool = False
    deleted: list[dict[Partition, int]] = field(default_factory=list)
    asked_ms: int = 0

    def committed(self, _group: str, partitions: Iterable[Partition]) -> dict[Partition, int]:
        return {where: self.commits[where] for where in partitions if where in self.commits}

    def offsets_at(self, partitions: Iterable[Partition], timestamp_ms: int) -> dict[Partition, int]:
        self.asked_ms = timestamp_ms
        return {where: self.old[where] for where in partitions}

    def delete_before(self, offsets: dict[Partition, int]) -> None:
        if self.refuses:
            raise KafkaRefused("no right")
        self.deleted.append(offsets)


def test_only_committed_records_that_are_old_go_and_not_more_often_than_every_ten_minutes() -> None:
    kafka, elapsed = Kafka({A: 50, B: 10, LANE: 7}, {A: 20, B: 90, LANE: 7}), [0.0]
    parked = DeliveredParked(cast("Any", kafka), NAMES, lambda: 5_000.0, lambda: 12_000.0, lambda: elapsed[0])
    parked.delete([LANE])
    parked.delete([LANE, A, B])
    parked.delete([LANE, A, B])
    assert kafka.deleted == [{A: 20, B: 10}]
    assert kafka.asked_ms == 2_000
    elapsed[0] = 600_000.0
    parked.delete([A])
    assert kafka.deleted[1:] == [{A: 20}]


def test_a_parked_record_stays_as_long_as_its_delivery() -> None:
    """Reconcile explains a delivery without a send-back by it: parked 8 days ago, delivered 6 days ago."""
    parked_at = [(offset, day * DAY_MS) for offset, day in enumerate((6, 12))]
    now_ms = 14 * DAY_MS

    @dataclass
    class Timed(Kafka):
        """Finds offsets by the times of records."""

        def offsets_at(self, partitions: Iterable[Partition], timestamp_ms: int) -> dict[Partition, int]:
            return {where: min(at for at, stored in parked_at if stored >= timestamp_ms) for where in partitions}

    kafka = Timed({A: 1}, {})
    DeliveredParked(cast("Any", kafka), NAMES, lambda: 7.0 * DAY_MS, lambda: now_ms).delete([A])
    assert kafka.deleted == []
    DeliveredParked(cast("Any", kafka), NAMES, lambda: 7.0 * DAY_MS, lambda: now_ms + 7.0 * DAY_MS).delete([A])
    assert kafka.deleted == [{A: 1}]


def test_without_a_commit_or_the_right_nothing_is_deleted() -> None:
    kafka = Kafka({}, {A: 20})
    DeliveredParked(cast("Any", kafka), NAMES, lambda: 0.0, lambda: 0.0).delete([A])
    refusing = Kafka({A: 5}, {A: 20}, refuses=True)
    DeliveredParked(cast("Any", refusing), NAMES, lambda: 0.0, lambda: 0.0).delete([A])
    assert kafka.deleted == refusing.deleted == []
