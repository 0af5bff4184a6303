"""Deletion of delivered records from parked topics, after twice the retention time of retry topics."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final

from reconsume.bridge.kafka.admin import KafkaAdmin, Partition
from reconsume.bridge.process.brokers_clock import monotonic_ms
from reconsume.bridge.process.clock import Clock
from reconsume.bridge.process.safe_logger import SafeLogger
from reconsume.delay_levels.errors import KafkaRefused
from reconsume.delay_levels.wire.names import TopicNames

logger = SafeLogger(__name__)

_EVERY_MS: Final = 600_000.0
_RETENTIONS: Final = 2
"""Reconcile explains a delivery by its parked record if the send-back is gone. The delivery may be younger than the
parked record by the length of the pause, and is kept for one retention."""


class DeliveredParked:
    """Deletes delivered records of parked topics, because their retention is unlimited.

    A record of a paused group must outlive any retention, so brokers must not delete by age. Its age counts from when
    it was parked, because nothing stores when it was delivered.

    Guarantees: no record is deleted before the schedulers have committed its offset.
    Test: tests/unit/bridge/scheduler/delivery/test_delivered_parked.py.

    Args:
        admin: looks offsets up and deletes records.
        names: the installation's topics.
        retention_ms: returns how long retry topics keep records.
        clock: the brokers' clock.
        elapsed: monotonic milliseconds.
    """

    def __init__(
        self,
        admin: KafkaAdmin,
        names: TopicNames,
        retention_ms: Callable[[], float],
        clock: Clock,
        elapsed: Clock = monotonic_ms,
    ) -> None:
        self._admin = admin
        self._names = names
        self._retention_ms = retention_ms
        self._clock = clock
        self._elapsed = elapsed
        self._again_at = float("-inf")

    def delete(self, partitions: Iterable[Partition]) -> None:
        """Delete old delivered records in these partitions, at most every ten minutes.

        Raises:
            KafkaNotReachable: a later call tries again.
        """
        parked = [where for where in partitions if self._names.is_parked(where[0])]
        if not parked or self._elapsed() < self._again_at:
            return
        self._again_at = self._elapsed() + _EVERY_MS
        committed = self._admin.committed(self._names.scheduler_group, parked)
        kept_since = int(self._clock() - _RETENTIONS * self._retention_ms())
        old = self._admin.offsets_at(list(committed), kept_since)
        before = {where: min(offset, old[where]) for where, offset in committed.items()}
        if wanted := {where: offset for where, offset in before.items() if offset > 0}:
            try:
                self._admin.delete_before(wanted)
            except KafkaRefused as error:
                logger.warning(
                    "delivered records of parked topics stay: %s; grant Delete on %sPARKED.*", error, self._names.prefix
                )
