"""The waiting records that a worker holds in memory: a bounded head of each partition, never the backlog."""

from __future__ import annotations

from bisect import bisect_right, insort
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import islice, takewhile
from math import ceil
from operator import itemgetter

from confluent_kafka import Message, TopicPartition

from reconsume.bridge.admin import Partition
from reconsume.bridge.scheduler.waiting import PartitionHead
from reconsume.delay_levels.done_ahead import DoneAhead

__all__ = ["DueRun", "HeldQueue", "PartitionQueue", "ReadAhead"]

_due: Callable[[tuple[int, ...]], int] = itemgetter(0)
_RECORD_OVERHEAD_BYTES = 1_000
"""About what a message costs in Python and librdkafka besides its value."""


class PartitionQueue:
    """The first waiting records of one partition, in order of their offsets."""

    __slots__ = ("_read_to", "_records", "bytes", "delay_ms", "held_until_ms", "partition", "paused", "topic")

    def __init__(self, topic: str, partition: int, delay_ms: int) -> None:
        self.topic = topic
        self.partition = partition
        self.delay_ms = delay_ms
        self.paused = False
        self.held_until_ms = 0.0
        self.bytes = 0
        self._read_to: int | None = None
        self._records: deque[tuple[int, Message]] = deque()

    def __len__(self) -> int:
        return len(self._records)

    def append(self, message: Message) -> None:
        """Add the record that was read next."""
        self._records.append((message.timestamp()[1] + self.delay_ms, message))  # due_ms(), spelled out: a hot path
        self.bytes += len(message) + _RECORD_OVERHEAD_BYTES

    def reached_end(self, offset: int) -> None:
        """Everything before that offset was read; the marks of transactions are no records and are passed over."""
        self._read_to = offset

    def look(self, now_ms: float) -> PartitionHead:
        """What waits here."""
        records = self._records
        last = _offset(records[-1][1]) + 1 if records else None
        # The newest of the two: a record that was read after the end, or an end after the last record.
        read_to = last if self._read_to is None else max(self._read_to, last or 0)
        head_due_ms = records[0][0] if records else None
        due = bisect_right(records, now_ms, key=_due)  # type: ignore[arg-type]  # no tuple of a fixed length
        return PartitionHead((self.topic, self.partition), self.delay_ms, len(records), due, head_due_ms, read_to)

    @property
    def blocked(self) -> bool:
        """Whether reading on makes no sense, whatever is due."""
        return False

    def after(self, records: list[tuple[int, Message]]) -> tuple[int, str]:
        """The offset to commit when these are delivered, and its metadata."""
        return _offset(records[-1][1]) + 1, ""

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

    def drop(self, records: list[tuple[int, Message]]) -> None:
        """Forget the records that `due` gave last: they are delivered and committed."""
        count = len(records)
        self._read_to = max(self._read_to or 0, _offset(records[-1][1]) + 1)
        # The exact size of each is not worth a look at it: the queue is emptied often.
        self.bytes -= self.bytes * count // len(self._records)
        popleft = self._records.popleft
        for _ in range(count):
            popleft()


class HeldQueue(PartitionQueue):
    """The records of a partition whose due moments are their own: the last stretch of delayed messages.

    They leave in the order of their due moments. What has left before the first in the partition is remembered with
    the committed offset, so the next owner of the partition does not deliver it again. Records too far behind the
    first one wait until it has left: what is remembered has a limit.

    Args:
        topic: the lane `DELAY.0s`.
        partition: of it.
        due_of: when a record leaves, in milliseconds.
        done: offsets that are done already, as the committed metadata says.
    """

    __slots__ = ("_behind", "_due_of", "_held", "_progress")

    def __init__(
        self, topic: str, partition: int, due_of: Callable[[Message], float], done: Iterable[int] = ()
    ) -> None:
        super().__init__(topic, partition, 0)
        self._due_of = due_of
        self._progress = DoneAhead(done)
        self._held: list[tuple[int, int, Message]] = []
        self._behind: deque[Message] = deque()

    def __len__(self) -> int:
        return len(self._held) + len(self._behind)

    def append(self, message: Message) -> None:
        """Add the record that was read next, unless it is done already."""
        offset = _offset(message)
        self._read_to = offset + 1
        if not self._progress.read(offset):
            return
        self.bytes += len(message) + _RECORD_OVERHEAD_BYTES
        self._behind.append(message)
        self._hold()

    def _hold(self) -> None:
        while self._behind and self._progress.in_reach(_offset(self._behind[0])):
            message = self._behind.popleft()
            insort(self._held, (ceil(self._due_of(message)), _offset(message), message))

    def look(self, now_ms: float) -> PartitionHead:
        """What waits here; what is out of reach is counted as not due."""
        head_due_ms = self._held[0][0] if self._held else None
        due = bisect_right(self._held, now_ms, key=_due)  # type: ignore[arg-type]  # no tuple of a fixed length
        return PartitionHead((self.topic, self.partition), None, len(self), due, head_due_ms, self._read_to)

    @property
    def blocked(self) -> bool:
        """Records are too far behind the first one; more of them would only take memory."""
        return bool(self._behind)

    @property
    def next_due_ms(self) -> float | None:
        """When the earliest is due; None if nothing waits here."""
        return max(self._held[0][0], self.held_until_ms) if self._held else None

    def due(self, now_ms: float, limit: int) -> list[tuple[int, Message]]:
        """Up to `limit` records that are due, the earliest first; they stay here."""
        if now_ms < self.held_until_ms:
            return []
        first = islice(self._held, limit)
        return [(due, message) for due, _, message in takewhile(lambda record: record[0] <= now_ms, first)]

    def after(self, records: list[tuple[int, Message]]) -> tuple[int, str]:
        """The smallest offset that is not done when these are, and what is done above it."""
        return self._progress.after(_offset(message) for _, message in records)

    def drop(self, records: list[tuple[int, Message]]) -> None:
        """Forget the records that `due` gave last: they are delivered and committed."""
        self.bytes -= self.bytes * len(records) // len(self)
        # They are the first ones still: nothing is read between the two.
        del self._held[: len(records)]
        self._progress.finish(_offset(message) for _, message in records)
        self._hold()


def _offset(message: Message) -> int:
    offset = message.offset()
    assert offset is not None
    return offset


@dataclass(slots=True)
class DueRun:
    """Due records of one partition: without a gap from its head, or the earliest of a `HeldQueue`."""

    queue: PartitionQueue
    records: list[tuple[int, Message]]

    @property
    def position(self) -> TopicPartition:
        """What to commit when they are all delivered."""
        offset, metadata = self.queue.after(self.records)
        return TopicPartition(self.queue.topic, self.queue.partition, offset, metadata)

    def drop(self) -> None:
        """Forget them: they are delivered and committed."""
        self.queue.drop(self.records)


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

    def assign_held(self, topic: str, partition: int, due_of: Callable[[Message], float], done: Iterable[int]) -> None:
        """The same for a partition whose records have due moments of their own."""
        self._queues[topic, partition] = HeldQueue(topic, partition, due_of, done)

    def revoke(self, partitions: Iterable[Partition]) -> None:
        """Forget partitions that another worker owns now; it reads their records again."""
        for partition in partitions:
            self._queues.pop(partition, None)

    def add(self, message: Message) -> None:
        """Keep a record; one of a partition that was revoked meanwhile is left to its new owner."""
        queue = self._queues.get((message.topic(), message.partition()))  # type: ignore[arg-type]  # never None here
        if queue is not None:
            queue.append(message)

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
