"""The waiting records that a worker holds in memory: a bounded head of each partition, never the backlog."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

from confluent_kafka import Message, TopicPartition

from reconsume.bridge.admin import Partition
from reconsume.bridge.scheduler.out_of_turn import Waits
from reconsume.bridge.scheduler.partition_queues import HeldQueue, PartitionQueue

__all__ = ["DueRun", "OvertakingRun", "ReadAhead"]


@dataclass(slots=True)
class DueRun:
    """Due records of one partition: without a gap from its head, or the earliest of a `HeldQueue`."""

    queue: PartitionQueue
    records: list[Waits]

    @property
    def position(self) -> TopicPartition:
        """What to commit when they are all delivered."""
        offset, metadata = self.queue.after(self.records)
        return TopicPartition(self.queue.topic, self.queue.partition, offset, metadata)

    def drop(self) -> None:
        """Forget them: they are delivered and committed."""
        self.queue.drop(self.records)

    def hold(self, until_ms: float) -> None:
        """Do not try again before."""
        self.queue.held_until_ms = until_ms


class OvertakingRun(DueRun):
    """Records that are delivered before those in front of them."""

    __slots__ = ()

    def hold(self, until_ms: float) -> None:
        """Those in front of them go on."""
        if self.queue.out_of_turn is not None:
            self.queue.out_of_turn.held_until_ms = until_ms


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

    def has(self, queue: PartitionQueue) -> bool:
        """Whether this is a partition's queue still: one that went and came back has another."""
        return self._queues.get((queue.topic, queue.partition)) is queue

    def assign(self, topic: str, partition: int, delay_ms: int) -> None:
        """Begin with an empty queue for a partition."""
        self._queues[topic, partition] = PartitionQueue(topic, partition, delay_ms)

    def assign_held(self, topic: str, partition: int, due_of: Callable[[Message], float], done: Iterable[int]) -> None:
        """The same for a partition whose records have due moments of their own."""
        self._queues[topic, partition] = HeldQueue(topic, partition, due_of, done)

    def revoke(self, partitions: Iterable[Partition]) -> None:
        """Forget partitions that another worker owns now; it reads their records again."""
        for partition in partitions:
            self._queues.pop(partition, None)

    def add(self, partition: Partition, messages: Sequence[Message]) -> None:
        """Keep records of a partition; those of one that was revoked meanwhile are left to its new owner."""
        queue = self._queues.get(partition)
        if queue is not None and messages:
            queue.extend(messages)

    def learn(self, partition: Partition, done: Iterable[int]) -> None:
        """What an earlier owner of a partition has delivered out of turn."""
        queue = self._queues.get(partition)
        if queue is not None:
            queue.learn(done)

    def reached_end(self, partition: Partition, offset: int) -> None:
        """A partition was read up to its end."""
        queue = self._queues.get(partition)
        if queue is not None:
            queue.reached_end(offset)

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

    def take_overtaking(self, now_ms: float, limit: int) -> list[DueRun]:
        """What was chosen to leave before those in front of it, at most `limit`."""
        runs: list[DueRun] = []
        for queue in self:
            if limit > 0 and (records := queue.overtaking(now_ms, limit)):
                runs.append(OvertakingRun(queue, records))
                limit -= len(records)
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
            if not queue.paused
            and (queue.blocked or (self._is_filled(queue, 1.0) and (queue.next_due_ms or 0.0) > now_ms))
        ]

    def to_resume(self) -> list[PartitionQueue]:
        """Paused partitions that have drained to half, early enough to be read on before they run dry."""
        return [queue for queue in self if queue.paused and not queue.blocked and not self._is_filled(queue, 0.5)]

    def _is_filled(self, queue: PartitionQueue, part: float) -> bool:
        share = self._total_bytes / max(1, len(self._queues))
        return len(queue) >= self._records_per_partition * part or queue.bytes >= share * part
