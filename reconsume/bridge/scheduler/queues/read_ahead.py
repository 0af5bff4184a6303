"""The waiting records that a worker holds in memory: a bounded head of each partition, never the backlog."""

from __future__ import annotations

import logging
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate
from sys import maxsize
from typing import Self

from confluent_kafka import TIMESTAMP_LOG_APPEND_TIME, Message, TopicPartition

from reconsume.bridge.kafka.admin import Partition
from reconsume.bridge.process.clock import Clock, now_ms
from reconsume.bridge.scheduler.queues.out_of_turn import Waits
from reconsume.bridge.scheduler.queues.partition_queues import PartitionQueue, TimerQueue

__all__ = ["DueRun", "OvertakingRun", "ReadAhead"]

logger = logging.getLogger(__name__)


@dataclass(slots=True)
class DueRun:
    """Due records of one partition: without a gap from its head, or the earliest of a `TimerQueue`."""

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

    @property
    def bytes(self) -> int:
        """The size of the values."""
        return sum(len(message) for _, message in self.records)

    def first(self, count: int) -> Self:
        """Return the run of its first records."""
        return type(self)(self.queue, self.records[:count])

    def hold(self, until_ms: float) -> None:
        """Do not try again before."""
        self.queue.held_until_ms = until_ms


class OvertakingRun(DueRun):
    """Records that are delivered before those in front of them.

    Guarantees: they have a batch of their own, in front of what is due from the head. A record that is refused is
    singled out among them, and no larger batch comes between. Test: tests/integration/test_scheduler_fairness.py.
    """

    __slots__ = ()

    def hold(self, until_ms: float) -> None:
        """Those in front of them go on."""
        if self.queue.out_of_turn is not None:
            self.queue.out_of_turn.held_until_ms = until_ms


def _fitting(run: DueRun, share: int, left: int, *, alone: bool) -> tuple[DueRun, int]:
    """Return the beginning of a run that is no larger than its share, and its size.

    Args:
        run: larger than its share.
        share: in bytes.
        left: in bytes; a first record that is larger than the share may take all of it.
        alone: whether the first record is taken whatever its size.
    """
    sizes = list(accumulate(len(message) for _, message in run.records))
    count = bisect_right(sizes, share)
    if count == 0 and (alone or sizes[0] <= left):
        count = 1
    return run.first(count), sizes[count - 1] if count else 0


class ReadAhead:
    """All partitions of a worker.

    Args:
        records_per_partition: stop reading a partition at so many waiting records.
        total_bytes: the memory for all partitions; each gets an equal part.
        clock: the time, for records whose timestamp is not the brokers'.
        saw: is told append times, and whether they are of records that were stored a moment ago.
    """

    def __init__(
        self,
        records_per_partition: int,
        total_bytes: int,
        clock: Clock = now_ms,
        saw: Callable[[int, bool], None] = lambda _append_ms, _is_new: None,
    ) -> None:
        self._records_per_partition = records_per_partition
        self._total_bytes = total_bytes
        self._clock = clock
        self._saw = saw
        self._warned: set[str] = set()
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
        self._queues[topic, partition] = PartitionQueue(topic, partition, delay_ms, self._clock)

    def assign_held(self, topic: str, partition: int, due_of: Callable[[Message], float]) -> None:
        """The same for a partition whose records have due moments of their own."""
        self._queues[topic, partition] = TimerQueue(topic, partition, due_of)

    def revoke(self, partitions: Iterable[Partition]) -> None:
        """Forget partitions that another worker owns now; it reads their records again."""
        for partition in partitions:
            self._queues.pop(partition, None)

    def add(self, partition: Partition, messages: Sequence[Message]) -> None:
        """Keep records of a partition; those of one that was revoked meanwhile are left to its new owner."""
        queue = self._queues.get(partition)
        if queue is not None and messages:
            kind, append_ms = messages[-1].timestamp()
            if kind == TIMESTAMP_LOG_APPEND_TIME:
                self._saw(append_ms, queue.is_at_end)
            elif partition[0] not in self._warned:
                self._warned.add(partition[0])
                logger.warning(
                    "records of topic %s have their producers' timestamps: each waits from when it was read; set "
                    "message.timestamp.type=LogAppendTime",
                    partition[0],
                )
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

    def take_due(self, now_ms: float, limit: int, max_bytes: int = maxsize) -> list[DueRun]:
        """Take due records, shared fairly: a flooded partition leaves room for the others.

        Args:
            now_ms: the time.
            limit: of records.
            max_bytes: of their values. A larger record is taken alone.
        """
        ready = [queue for queue in self if (due := queue.next_due_ms) is not None and due <= now_ms]
        # The most overdue partition is served first, so none waits for ever when the limit is small.
        ready.sort(key=lambda queue: queue.next_due_ms or 0.0)
        runs: list[DueRun] = []
        left, left_bytes = limit, max_bytes
        for position, queue in enumerate(ready):
            others = len(ready) - position
            run = DueRun(queue, queue.due(now_ms, max(1, left // others)))
            size = run.bytes
            if size > left_bytes // others:
                run, size = _fitting(run, left_bytes // others, left_bytes, alone=not runs)
            if run.records:
                runs.append(run)
            left -= len(run.records)
            left_bytes -= size
            if left <= 0 or left_bytes <= 0:
                break
        return runs

    def take_overtaking(self, now_ms: float, limit: int, max_bytes: int = maxsize) -> list[DueRun]:
        """What was chosen to leave before those in front of it, at most `limit` records of `max_bytes`."""
        runs: list[DueRun] = []
        for queue in self:
            if limit > 0 and max_bytes > 0 and (records := queue.overtaking(now_ms, limit)):
                run, size = _fitting(OvertakingRun(queue, records), max_bytes, max_bytes, alone=not runs)
                if run.records:
                    runs.append(run)
                limit -= len(run.records)
                max_bytes -= size
        return runs

    def next_due_ms(self) -> float | None:
        """The earliest moment at which something here is due."""
        return min((due for queue in self if (due := queue.next_due_ms) is not None), default=None)

    def to_pause(self, now_ms: float) -> list[PartitionQueue]:
        """Partitions that are full, still being read, and have nothing due.

        What is due leaves at once, and pausing throws away what librdkafka has fetched ahead: benchmarks/throughput.py.
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
