"""The records of a partition in a worker's memory, and which of them leave next."""

from __future__ import annotations

from bisect import bisect_right, insort
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from itertools import islice, takewhile
from math import ceil, inf
from operator import itemgetter

from reconsume.bridge.librdkafka.undecodable import headers_of
from reconsume.bridge.process.clock import Clock, now_ms
from reconsume.bridge.process.polled_records import (
    LOG_APPEND_TIME,
    PolledRecord,
    bytes_of,
    key_of,
    offset_of,
    stored_ms,
    timestamp_of,
)
from reconsume.bridge.scheduler.queues.backlog import PartitionHead
from reconsume.delay_levels.progress.done_ahead import LONGEST_SPAN, DoneAhead

Waits = tuple[int, PolledRecord]
"""The due moment of a record in milliseconds, and the record."""

_due: Callable[[tuple[int, ...]], int] = itemgetter(0)
_RECORD_OVERHEAD_BYTES = 1_000
"""Roughly what a message takes in Python and librdkafka besides its key, value and headers."""


class PartitionQueue:
    """The first waiting records of a partition, in order of their offsets, each once.

    Attributes:
        is_at_end: whether it was read to its end and is not paused, so that the next record behind it is a new one.
        start: where it continued at its assignment; None if the group had no offset, or if it is unknown.
        least_room: it may hold this many records, even if the setting is lower.
    """

    __slots__ = (
        *("__weakref__", "_clock", "_end", "_next", "_paused", "_records", "bytes", "delay_ms", "held_until_ms"),
        *("is_at_end", "partition", "start", "topic"),
    )

    least_room = 0

    def __init__(self, topic: str, partition: int, delay_ms: int, clock: Clock = now_ms) -> None:
        self.topic = topic
        self.partition = partition
        self.delay_ms = delay_ms
        self.is_at_end = False
        self.start: int | None = None
        self._clock = clock
        self._paused = False
        self.held_until_ms = 0.0
        self.bytes = 0
        self._next = 0
        self._end: int | None = None
        self._records: deque[Waits] = deque()

    def __len__(self) -> int:
        return len(self._records)

    @property
    def paused(self) -> bool:
        """Whether reading is paused."""
        return self._paused

    @paused.setter
    def paused(self, paused: bool) -> None:
        self._paused, self.is_at_end = paused, False

    def extend(self, messages: Sequence[PolledRecord]) -> None:
        """Add newly read records; around a rebalance librdkafka may return records again."""
        self.is_at_end = False
        first, last, delay_ms = offset_of(messages[0]), offset_of(messages[-1]), self.delay_ms
        # stored_ms() and due_ms(), inlined in a hot path
        waiting = [
            (timestamp_ms + delay_ms, message)
            for (kind, timestamp_ms), message in zip(map(timestamp_of, messages), messages, strict=True)
            if kind == LOG_APPEND_TIME
        ]
        # librdkafka 2.16 may return the first record of an assignment twice (see `StaleRecords`).
        is_copied = len(messages) > 1 and offset_of(messages[1]) == first
        if first < self._next or is_copied or len(waiting) < len(messages):
            for message in messages:
                self.append(message)
            return
        self._records.extend(waiting)
        self.bytes += _held_bytes(messages)
        self._next = last + 1

    def append(self, message: PolledRecord) -> None:
        """Add a newly read record, unless it was read before."""
        if self._is_known(message):
            return
        self._records.append((ceil(stored_ms(message, self._clock)) + self.delay_ms, message))
        self.bytes += _held_bytes([message])

    def _is_known(self, message: PolledRecord) -> bool:
        offset = message.offset() or 0
        if offset < self._next:
            return True
        self._next = offset + 1
        return False

    def reached_end(self, offset: int) -> None:
        """Note that everything before that offset was read; transaction markers are skipped."""
        self._end, self.is_at_end = offset, not self._paused

    def is_new(self, message: PolledRecord) -> bool:
        """Return whether a record was stored a moment ago; one before the end was held, or is read again."""
        return self.is_at_end and offset_of(message) >= (self._end or 0)

    def look(self, now_ms: float) -> PartitionHead:
        """Return the waiting records."""
        records = self._records
        head_due_ms = records[0][0] if records else None
        due = bisect_right(records, now_ms, key=_due)  # type: ignore[arg-type]  # no tuple of a fixed length
        where = self.topic, self.partition
        return PartitionHead(
            where, self.delay_ms, len(records), due, head_due_ms, self._read_to(), self.paused, self.start
        )

    def _read_to(self) -> int | None:
        """Return the later of the two: behind the last record, or the end."""
        return max(self._end or 0, self._next) if self._next or self._end is not None else None

    @property
    def blocked(self) -> bool:
        """Return whether reading on is useless, even with due records."""
        return False

    def learn(self, done: Iterable[int]) -> None:
        """Note, before the first record, what an earlier owner has delivered out of order: here nothing."""

    def after(self, records: list[Waits]) -> tuple[int, str]:
        """Return the offset to commit after the delivery of these records, and its metadata."""
        return offset_of(records[-1][1]) + 1, ""

    @property
    def next_due_ms(self) -> float | None:
        """Return when the head is due; None if nothing waits here."""
        return max(self._records[0][0], self.held_until_ms) if self._records else None

    def due(self, now_ms: float, limit: int) -> list[Waits]:
        """Return up to `limit` due records from the head, with their due times; they stay here."""
        if now_ms < self.held_until_ms:
            return []
        first = list(islice(self._records, limit))
        if max(map(_due, first), default=0) <= now_ms:  # type: ignore[arg-type]  # no tuple of a fixed length
            return first
        return list(takewhile(lambda record: record[0] <= now_ms, first))

    def drop(self, records: list[Waits]) -> None:
        """Remove the records that `due` returned last: they are delivered and committed."""
        count = len(records)
        # An estimate is enough, because the queue is emptied often.
        self.bytes -= self.bytes * count // len(self._records)
        popleft = self._records.popleft
        for _ in range(count):
            popleft()


class ParkedQueue(PartitionQueue):
    """The records of a group's parked topic: none is due while the group is paused, then all are.

    While the group is paused, only the records of one read are held in memory.

    Tests: tests/unit/bridge/scheduler/queues/test_parked_queue.py, tests/integration/groups/test_paused_groups.py.

    Args:
        topic: the parked topic.
        partition: its partition.
        is_paused: returns whether the group is paused now.
        clock: returns milliseconds.
    """

    __slots__ = ("_is_paused", "_lifted_ms")

    def __init__(self, topic: str, partition: int, is_paused: Callable[[], bool], clock: Clock = now_ms) -> None:
        super().__init__(topic, partition, 0, clock)
        self._is_paused = is_paused
        self._lifted_ms = inf

    def _waits(self) -> bool:
        """Return whether the group is paused; note the end of the pause, from which lateness counts."""
        if self._is_paused():
            self._lifted_ms = inf
            return True
        if self._lifted_ms == inf:
            self._lifted_ms = ceil(self._clock())
        return False

    def look(self, now_ms: float) -> PartitionHead:  # noqa: ARG002 - all or nothing is due
        """Describe the waiting records."""
        where, count, waits = (self.topic, self.partition), len(self), self._waits()
        if waits or not count:
            return PartitionHead(where, None if waits else 0, count, 0, None, self._read_to(), self.paused, self.start)
        head_due_ms = max(self._records[0][0], self._lifted_ms)
        return PartitionHead(where, 0, count, count, head_due_ms, self._read_to(), self.paused, self.start)

    @property
    def blocked(self) -> bool:
        """Return whether the group is paused and the first record, which shows the worker's start, was read."""
        return bool(self._records) and self._waits()

    @property
    def next_due_ms(self) -> float | None:
        """Return when the head is due; None while the group is paused."""
        due = super().next_due_ms
        return None if due is None or self._waits() else max(due, self._lifted_ms)

    def due(self, now_ms: float, limit: int) -> list[Waits]:
        """Return up to `limit` records from the head, due since the end of the pause; they stay here."""
        if self._waits():
            return []
        lifted_ms = int(self._lifted_ms)
        return [(max(due, lifted_ms), message) for due, message in super().due(now_ms, limit)]


class TimerQueue(PartitionQueue):
    """The records of a partition with their own due moments: the last stretch of delayed messages.

    They leave in the order of their due moments. Records that have left before the partition's first one are noted in
    the committed offset's metadata, so the next owner does not deliver them again.

    Guarantees: a record more than 16,000 offsets behind the first one waits until that has left, because metadata is
    limited. Until then reading stops, so memory is bounded, at the price of lateness.
    Tests: tests/unit/bridge/scheduler/queues/test_timer_queue.py, tests/integration/consumers/test_delay_producer.py.

    Args:
        topic: the lane `DELAY.0s`.
        partition: its partition.
        due_of: returns when a record is due, in milliseconds.
    """

    __slots__ = ("_behind", "_due_of", "_held", "_progress")

    least_room = LONGEST_SPAN

    def __init__(self, topic: str, partition: int, due_of: Callable[[PolledRecord], float]) -> None:
        super().__init__(topic, partition, 0)
        self._due_of = due_of
        self._progress = DoneAhead()
        self._held: list[tuple[int, int, PolledRecord]] = []
        self._behind: deque[PolledRecord] = deque()

    def __len__(self) -> int:
        return len(self._held) + len(self._behind)

    def extend(self, messages: Sequence[PolledRecord]) -> None:
        """Add newly read records, unless they are done already."""
        self.is_at_end = False
        for message in messages:
            self.append(message)

    def append(self, message: PolledRecord) -> None:
        """Add a newly read record, unless it is done already."""
        if self._is_known(message) or not self._progress.read(offset_of(message)):
            return
        self.bytes += _held_bytes([message])
        self._behind.append(message)
        self._hold()

    def learn(self, done: Iterable[int]) -> None:
        """Note, before the first record, what an earlier owner has delivered ahead."""
        self._progress = DoneAhead(done)

    def _hold(self) -> None:
        while self._behind and self._progress.in_reach(offset_of(self._behind[0])):
            message = self._behind.popleft()
            insort(self._held, (ceil(self._due_of(message)), offset_of(message), message))

    def look(self, now_ms: float) -> PartitionHead:
        """Return the waiting records; those out of reach count as not due."""
        head_due_ms = self._held[0][0] if self._held else None
        due = bisect_right(self._held, now_ms, key=_due)  # type: ignore[arg-type]  # no tuple of a fixed length
        where = self.topic, self.partition
        return PartitionHead(where, None, len(self), due, head_due_ms, self._read_to(), self.paused, self.start)

    @property
    def blocked(self) -> bool:
        """Return whether records are too far behind the first one, so that more would only take memory."""
        return bool(self._behind)

    @property
    def next_due_ms(self) -> float | None:
        """Return when the earliest is due; None if nothing waits here."""
        return max(self._held[0][0], self.held_until_ms) if self._held else None

    def due(self, now_ms: float, limit: int) -> list[Waits]:
        """Return up to `limit` due records, the earliest first; they stay here."""
        if now_ms < self.held_until_ms:
            return []
        first = islice(self._held, limit)
        return [(due, message) for due, _, message in takewhile(lambda record: record[0] <= now_ms, first)]

    def after(self, records: list[Waits]) -> tuple[int, str]:
        """Return the smallest unfinished offset after these, and what is done above it."""
        return self._progress.after(offset_of(message) for _, message in records)

    def drop(self, records: list[Waits]) -> None:
        """Remove the records that `due` returned last: they are delivered and committed."""
        self.bytes -= self.bytes * len(records) // len(self)
        offsets = [offset_of(message) for _, message in records]
        if [offset for _, offset, _ in self._held[: len(records)]] == offsets:
            del self._held[: len(records)]
        else:
            # Earlier ones were read meanwhile: the outcome of these took long.
            gone = set(offsets)
            self._held = [one for one in self._held if one[1] not in gone]
        self._progress.finish(offsets)
        self._hold()


def _held_bytes(messages: Sequence[PolledRecord]) -> int:
    """Return roughly how much memory records take.

    To decode headers takes a third of the time for a record, so those of the first one stand for all.
    """
    headers = sum(len(value or b"") for _, value in headers_of(messages[0]))
    keys = sum(map(len, filter(None, map(key_of, messages))))
    return bytes_of(messages) + keys + len(messages) * (headers + _RECORD_OVERHEAD_BYTES)
