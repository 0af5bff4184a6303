"""The waiting records that a worker holds in memory: a bounded head of each partition, never the backlog."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import islice

from confluent_kafka import Message

from reconsume.bridge.admin import Partition

__all__ = ["DueRun", "PartitionQueue", "ReadAhead"]

_RECORD_OVERHEAD_BYTES = 1_000
"""About what a message costs in Python and librdkafka besides its value."""


class PartitionQueue:
    """The first waiting records of one partition, in order of their offsets."""

    __slots__ = ("_records", "bytes", "delay_ms", "held_until_ms", "partition", "paused", "topic")

    def __init__(self, topic: str, partition: int, delay_ms: int) -> None:
        self.topic = topic
        self.partition = partition
        self.delay_ms = delay_ms
        self.paused = False
        self.held_until_ms = 0.0
        self.bytes = 0
        self._records: deque[tuple[int, Message]] = deque()

    def __len__(self) -> int:
        return len(self._records)

    def append(self, message: Message) -> None:
        """Add the record that was read next."""
        self._records.append((message.timestamp()[1] + self.delay_ms, message))  # due_ms(), spelled out: a hot path
        self.bytes += len(message) + _RECORD_OVERHEAD_BYTES

    @property
    def next_due_ms(self) -> float | None:
        """When the head is due; None if nothing waits here."""
        return max(self._records[0][0], self.held_until_ms) if self._records else None

    def due(self, now_ms: float, limit: int) -> list[tuple[int, Message]]:
        """Up to `limit` records from the head that are due, with their due times; they stay here."""
        if now_ms < self.held_until_ms:
            return []
        first = list(islice(self._records, limit))
        for index, record in enumerate(first):
            if record[0] > now_ms:
                return first[:index]
        return first

    def drop(self, count: int) -> None:
        """Forget the first `count` records: they are delivered and committed."""
        # The exact size of each is not worth a look at it: the queue is emptied often.
        self.bytes -= self.bytes * count // len(self._records)
        popleft = self._records.popleft
        for _ in range(count):
            popleft()


@dataclass(slots=True)
class DueRun:
    """Due records of one partition, without a gap from its head."""

    queue: PartitionQueue
    records: list[tuple[int, Message]]

    @property
    def next_offset(self) -> int:
        """What to commit when they are all delivered."""
        last = self.records[-1][1].offset()
        assert last is not None
        return last + 1


class ReadAhead:
    """All partitions of a worker.

    Args:
        records_per_partition: stop reading a partition at so many waiting records.
        total_bytes: the memory for all partitions; each gets an equal part.
    """

    def __init__(self, records_per_partition: int, total_bytes: int) -> None:
        self._records_per_partition = records_per_partition
        self._total_bytes = total_bytes
        self._queues: dict[Partition, PartitionQueue] = {}

    def __iter__(self) -> Iterator[PartitionQueue]:
        return iter(self._queues.values())

    def __len__(self) -> int:
        return len(self._queues)

    def owns(self, partition: Partition) -> bool:
        """Whether this worker schedules from the partition."""
        return partition in self._queues

    def assign(self, topic: str, partition: int, delay_ms: int) -> None:
        """Begin with an empty queue for a partition."""
        self._queues[topic, partition] = PartitionQueue(topic, partition, delay_ms)

    def revoke(self, partitions: Iterable[Partition]) -> None:
        """Forget partitions that another worker owns now; it reads their records again."""
        for partition in partitions:
            self._queues.pop(partition, None)

    def add(self, message: Message) -> None:
        """Keep a record; one of a partition that was revoked meanwhile is left to its new owner."""
        queue = self._queues.get((message.topic(), message.partition()))  # type: ignore[arg-type]  # never None here
        if queue is not None:
            queue.append(message)

    def take_due(self, now_ms: float, limit: int) -> list[DueRun]:
        """Due records, at most `limit`, shared fairly: a flooded partition leaves room for the others."""
        ready = [queue for queue in self if (due := queue.next_due_ms) is not None and due <= now_ms]
        # The most overdue partition is served first, so none waits for ever when the limit is small.
        ready.sort(key=lambda queue: queue.next_due_ms or 0.0)
        runs: list[DueRun] = []
        left = limit
        for position, queue in enumerate(ready):
            share = max(1, left // (len(ready) - position))
            records = queue.due(now_ms, share)
            runs.append(DueRun(queue, records))
            left -= len(records)
            if left <= 0:
                break
        return runs

    def next_due_ms(self) -> float | None:
        """The earliest moment at which something here is due."""
        return min((due for queue in self if (due := queue.next_due_ms) is not None), default=None)

    def to_pause(self, now_ms: float) -> list[PartitionQueue]:
        """Partitions that are full, still being read, and have nothing due.

        What is due leaves at once, and pausing throws away what librdkafka has fetched ahead.
        """
        return [
            queue
            for queue in self
            if not queue.paused and self._is_filled(queue, 1.0) and (queue.next_due_ms or 0.0) > now_ms
        ]

    def to_resume(self) -> list[PartitionQueue]:
        """Paused partitions that have drained to half, early enough to be read on before they run dry."""
        return [queue for queue in self if queue.paused and not self._is_filled(queue, 0.5)]

    def _is_filled(self, queue: PartitionQueue, part: float) -> bool:
        share = self._total_bytes / max(1, len(self._queues))
        return len(queue) >= self._records_per_partition * part or queue.bytes >= share * part
