"""The waiting records in a worker's memory: a bounded head of each partition, never the whole backlog."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from math import inf
from operator import itemgetter
from sys import maxsize
from typing import Final

from reconsume.bridge.kafka.admin import Commit, Partition
from reconsume.bridge.process.clock import Clock, now_ms
from reconsume.bridge.process.polled_records import LOG_APPEND_TIME, PolledRecord, bytes_of
from reconsume.bridge.process.safe_logger import SafeLogger
from reconsume.bridge.scheduler.queues.partition_queues import ParkedQueue, PartitionQueue, TimerQueue, Waits

logger = SafeLogger(__name__)

LONGEST_HOLD_MS: Final = 10_000
"""The longest time for which a partition is held; see `DueRun.hold`."""

_MESSAGE: Callable[[Waits], PolledRecord] = itemgetter(1)


@dataclass(slots=True)
class DueRun:
    """Due records of a partition: without a gap from its head, or the earliest of a `TimerQueue`.

    Attributes:
        bytes: the size of the values.
    """

    queue: PartitionQueue
    records: list[Waits]
    bytes: int = field(init=False)

    def __post_init__(self) -> None:
        self.bytes = bytes_of(map(_MESSAGE, self.records))

    @property
    def where(self) -> Partition:
        """The records' partition."""
        return self.queue.topic, self.queue.partition

    @property
    def commit(self) -> Commit:
        """Return the offset to commit when all of them are delivered."""
        return Commit(*self.queue.after(self.records))

    def drop(self) -> None:
        """Remove them: they are delivered and committed."""
        self.queue.drop(self.records)

    def first(self, count: int) -> DueRun:
        """Return the run of its first records."""
        return self if count == len(self.records) else DueRun(self.queue, self.records[:count])

    def hold(self, until_ms: float) -> None:
        """Do not try again before this moment, at most `LONGEST_HOLD_MS` ahead."""
        self.queue.held_until_ms = until_ms


def _fitting(run: DueRun, share: int, left: int) -> DueRun:
    """Return the beginning of a run that does not exceed its share.

    Args:
        run: a run larger than its share.
        share: the share in bytes.
        left: the remaining bytes; a first record larger than the share may take all of them.
    """
    sizes = list(accumulate(len(message) for _, message in run.records))
    count = bisect_right(sizes, share)
    if count == 0 and sizes[0] <= left:
        count = 1
    return run.first(count)


class ReadAhead:
    """All partitions of a worker.

    Args:
        records_per_partition: stop reading a partition at this many waiting records.
        total_bytes: the memory for all partitions. When it is full, those with more than an equal share wait.
        clock: the clock, for records whose timestamp is not the brokers'.
        saw: called with append times, and whether the records were stored a moment ago.
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
        self._did_not_fit: PartitionQueue | None = None

    def __iter__(self) -> Iterator[PartitionQueue]:
        return iter(self._queues.values())

    def __len__(self) -> int:
        return len(self._queues)

    def owns(self, partition: Partition) -> bool:
        """Return whether this worker schedules from the partition."""
        return partition in self._queues

    def has(self, queue: PartitionQueue) -> bool:
        """Return whether this is still the partition's queue: a partition that left and returned has another."""
        return self._queues.get((queue.topic, queue.partition)) is queue

    def assign(self, topic: str, partition: int, delay_ms: int) -> None:
        """Start a partition with an empty queue."""
        self._queues[topic, partition] = PartitionQueue(topic, partition, delay_ms, self._clock)

    def assign_held(self, topic: str, partition: int, due_of: Callable[[PolledRecord], float]) -> None:
        """Start a partition whose records have their own due moments."""
        self._queues[topic, partition] = TimerQueue(topic, partition, due_of)

    def assign_parked(self, topic: str, partition: int, is_paused: Callable[[], bool]) -> None:
        """Start a partition whose records are due as soon as their group is not paused."""
        self._queues[topic, partition] = ParkedQueue(topic, partition, is_paused, self._clock)

    def revoke(self, partitions: Iterable[Partition]) -> None:
        """Forget partitions of another worker, which reads their records again."""
        for partition in partitions:
            self._queues.pop(partition, None)

    def add(self, partition: Partition, messages: Sequence[PolledRecord]) -> None:
        """Keep records of a partition; those of a revoked partition are left to its new owner."""
        queue = self._queues.get(partition)
        if queue is not None and messages:
            kind, append_ms = messages[-1].timestamp()
            if kind == LOG_APPEND_TIME:
                self._saw(append_ms, queue.is_new(messages[-1]))
            elif partition[0] not in self._warned:
                self._warned.add(partition[0])
                logger.warning(
                    "topic %s has its producers' timestamps, so each record waits from when it is read; set "
                    "message.timestamp.type=LogAppendTime",
                    partition[0],
                )
            queue.extend(messages)

    def learn(self, partition: Partition, start: int, done: Iterable[int]) -> None:
        """Note where a partition continues, and the records that its earlier owner has delivered out of order."""
        queue = self._queues.get(partition)
        if queue is not None:
            queue.start = start
            queue.learn(done)

    def reached_end(self, partition: Partition, offset: int) -> None:
        """Note that a partition was read to its end."""
        queue = self._queues.get(partition)
        if queue is not None:
            queue.reached_end(offset)

    def was_paused(self, partition: Partition) -> None:
        """Note that a partition was not read for a while, so that its next record may be old."""
        queue = self._queues.get(partition)
        if queue is not None:
            queue.is_at_end = False

    def take_due(self, now_ms: float, limit: int, max_bytes: int = maxsize) -> list[DueRun]:
        """Return due records in fair shares: each partition gets as much as any other, or all that it has.

        With a small limit the most overdue ones come first. A record that did not fit is the next batch.

        Args:
            now_ms: the current time.
            limit: maximum of records.
            max_bytes: maximum of bytes of their values. A larger record is returned alone.
        """
        for queue in self:
            if queue.held_until_ms > now_ms + LONGEST_HOLD_MS:
                queue.held_until_ms = 0.0  # the clock was set back after the hold began
        ready = [queue for queue in self if (due := queue.next_due_ms) is not None and due <= now_ms]
        large, self._did_not_fit = self._did_not_fit, None
        if large in ready:
            return [DueRun(large, large.due(now_ms, 1))]
        # The most overdue partitions are served first, so none waits forever when the limit is small.
        ready.sort(key=lambda queue: queue.next_due_ms or 0.0)
        del ready[limit:]
        runs: dict[PartitionQueue, DueRun] = {}
        left, left_bytes = limit, max_bytes
        # Of those, short partitions come first, so that their unused share goes to the long ones.
        for position, queue in enumerate(sorted(ready, key=len)):
            others = len(ready) - position
            run = DueRun(queue, queue.due(now_ms, left // others))
            if run.bytes > left_bytes // others:
                run = _fitting(run, left_bytes // others, left_bytes)
            if run.records:
                runs[queue] = run
            else:
                self._did_not_fit = queue
            left -= len(run.records)
            left_bytes -= run.bytes
        if ready and not runs:
            return self.take_due(now_ms, limit, max_bytes)
        return [runs[queue] for queue in ready if queue in runs]

    def next_due_ms(self) -> float | None:
        """Return the earliest moment at which a record here is due."""
        return min((due for queue in self if (due := queue.next_due_ms) is not None), default=None)

    def to_pause(self, now_ms: float) -> list[PartitionQueue]:
        """Return partitions that are being read, and are full or blocked.

        A partition with due records is read on, unless memory is full: due records leave at once, and a pause discards
        librdkafka's prefetched records (benchmarks/scheduler/throughput.py).
        """
        share = self._share(1.0)
        return [
            queue
            for queue in self
            if not queue.paused
            and (
                queue.blocked
                or queue.bytes >= share
                or (self._is_filled(queue, 1.0) and (queue.next_due_ms or 0.0) > now_ms)
            )
        ]

    def to_resume(self) -> list[PartitionQueue]:
        """Return paused partitions that are at most half full, early enough not to run dry."""
        share = self._share(0.5)
        return [
            queue
            for queue in self
            if queue.paused and not queue.blocked and queue.bytes < share and not self._is_filled(queue, 0.5)
        ]

    def _is_filled(self, queue: PartitionQueue, part: float) -> bool:
        return len(queue) >= max(self._records_per_partition, queue.least_room) * part

    def _share(self, part: float) -> float:
        """Return the bytes that a partition may use of this fraction of the memory; infinity until it is full."""
        total = self._total_bytes * part
        return total / len(self._queues) if sum(queue.bytes for queue in self) >= total else inf
