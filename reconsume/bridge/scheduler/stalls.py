"""Detects partitions that are no longer read although they have more records."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from reconsume.bridge.kafka.admin import Partition
from reconsume.bridge.scheduler.queues.backlog import PartitionHead
from reconsume.delay_levels.errors import ReconsumeError

_PATIENCE_MS: Final = 120_000.0
"""A large flood in other partitions may take a while."""
_BLIND_MS: Final = 45_000.0
"""After this time without a look, earlier ones do not count: unreachable brokers report no ends."""


class ReadingStopped(ReconsumeError):
    """This consumer no longer reads; a new one will."""


class StallWatch:
    """Notes how far each partition was read.

    After a lost connection librdkafka may wait forever for the answer that validates its position (librdkafka issue
    4492), and the records there would be overdue until the process is restarted.

    Guarantees: a worker restarts if an unpaused partition with more records returns none for two minutes. Times without
    known ends do not count.
    Tests: tests/unit/bridge/scheduler/test_stalls.py, tests/integration/scheduler/test_stalled_reading.py.
    Remove when: librdkafka issue 4492 is closed and the oldest supported version has the fix.

    Args:
        patience_ms: how long a partition with more records may return none.
    """

    def __init__(self, patience_ms: float = _PATIENCE_MS) -> None:
        self._patience_ms = patience_ms
        self._since: dict[Partition, tuple[int | None, float]] = {}
        self._looked_ms = 0.0

    def look(self, now_ms: float, heads: Iterable[PartitionHead], ends: Mapping[Partition, int]) -> list[str]:
        """Return a description of each stalled partition.

        Args:
            now_ms: monotonic milliseconds.
            heads: the current heads of the worker's partitions.
            ends: the offset after the last committed record of each.
        """
        since: dict[Partition, tuple[int | None, float]] = {}
        if now_ms - self._looked_ms > _BLIND_MS:
            self._since = {}
        self._looked_ms = now_ms
        for head in heads:
            # An empty partition is reported as its end.
            has_more = head.read_to is None or ends.get(head.where, 0) > head.read_to
            if has_more and not head.paused:
                before = self._since.get(head.where)
                began_ms = before[1] if before is not None and before[0] == head.read_to else now_ms
                since[head.where] = head.read_to, began_ms
        self._since = since
        return [
            f"{topic}-{number} stands at {read_to or 0} of {ends.get((topic, number), 0)}"
            for (topic, number), (read_to, began_ms) in since.items()
            if now_ms - began_ms >= self._patience_ms
        ]
