"""Records that librdkafka returns although the group has passed them, or without the records before them."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaException, Message, TopicPartition

from reconsume.bridge.kafka.admin import Partition
from reconsume.bridge.kafka.errors import translate
from reconsume.bridge.process.safe_logger import SafeLogger
from reconsume.delay_levels.errors import KafkaNotReachable

logger = SafeLogger(__name__)

_TIMEOUT: Final = 10.0
_BRIEFLY_SECONDS: Final = 2.0
"""Limit of a request within a poll; the next poll repeats it."""
_LOOK_EVERY_SECONDS: Final = 1.0


@dataclass(slots=True)
class _UncheckedPartition:
    """A partition whose first record has not arrived, or may arrive twice.

    Attributes:
        committed: the group's committed offset at the first record; None before.
        first: the first accepted record.
        sought: whether the consumer was sent back to the committed offset.
    """

    committed: int | None = None
    first: int | None = None
    sought: bool = False


class StaleRecords:
    """Compares the first records after an assignment with the group's committed offsets.

    With offsets in transactions, librdkafka 2.16 sometimes starts elsewhere:

    * It continues to fetch a partition that was revoked during its first offset request, and returns one of those
      records when the partition is assigned again, before those of the new assignment.
    * It applies `auto.offset.reset` if a dead member's transaction holds the committed offset back and the assignment
      changes meanwhile: `rd_kafka_assignment_apply_offsets` forgets to ask again.

    So records below the committed offset are dropped, and the second copy of the first other record, which may be from
    an earlier assignment. If records may have been skipped, because reading began at the end or nothing arrives,
    reading goes back once. Scheduler workers (`Assignment`, `PartitionQueue.extend`) and `PushConsumer`
    (`ProcessQueue.begin`) also drop records below the committed offset, and copies.

    Tests: tests/unit/bridge/reading/test_stale_records.py, tests/integration/drop_in/test_exactly_once.py,
    tests/unit/consumers/drop_in/test_stale_batches.py, tests/unit/consumers/partitions/test_process_queue.py,
    tests/unit/consumers/partitions/test_batch.py, tests/unit/bridge/scheduler/queues/test_read_ahead.py, tests/chaos.
    Remove when: librdkafka starts at the committed offset in both cases.

    Args:
        seek: the consumer's method.
        from_end: whether librdkafka falls back on the end of a partition instead of its beginning.

    Attributes:
        unchecked: partitions to check; callers skip all checks while it is empty.
    """

    def __init__(self, seek: Callable[[TopicPartition], None], *, from_end: bool = False) -> None:
        self.unchecked: dict[Partition, _UncheckedPartition] = {}
        self._seek = seek
        self._from_end = from_end
        self._looked = 0.0
        self._read_again: set[Partition] = set()
        self._left_out: set[Partition] = set()
        self._begun: set[Partition] = set()

    def begun(self, partitions: list[TopicPartition]) -> list[TopicPartition]:
        """Return the partitions, before they are assigned; note those that start at an explicit offset.

        Their committed offset may have been deleted: a seek back to it would lead to the end.
        """
        explicit = [one for one in partitions if one.offset >= 0 or one.offset == OFFSET_BEGINNING]
        self._begun = {(one.topic, one.partition) for one in explicit}
        return partitions

    def assigned(self, partitions: Iterable[TopicPartition]) -> None:
        """Note partitions that start at their committed offsets, or as `begun` was told."""
        for one in partitions:
            where = one.topic, one.partition
            self.unchecked[where] = _UncheckedPartition(sought=where in self._begun)

    def trust(self, partitions: Iterable[TopicPartition]) -> None:
        """Accept all records of these partitions: their start was explicit."""
        for one in partitions:
            self.unchecked.pop((one.topic, one.partition), None)

    @contextmanager
    def trusted_if_sought(self, one: TopicPartition) -> Iterator[None]:
        """Accept all records of a partition, unless its seek in the block is refused.

        It is trusted before the seek: otherwise a thread that polls meanwhile drops a repeated record as a copy.
        """
        where = one.topic, one.partition
        self._left_out.add(where)
        state = self.unchecked.pop(where, None)
        try:
            yield
        except KafkaException:
            if state is not None:
                self.unchecked.setdefault(where, state)
            raise

    def without_stale(self, consumer: Consumer, batch: Iterable[Message]) -> list[Message]:
        """Return what the program may see of one batch: after a seek, the rest of its partition is read again too."""
        again = self._read_again
        again.clear()
        return [one for one in batch if not ((again and self._is_read_again(one)) or self.is_stale(consumer, one))]

    def _is_read_again(self, polled: Message) -> bool:
        return polled.error() is None and (polled.topic(), polled.partition()) in self._read_again

    def is_stale(self, consumer: Consumer, polled: Message) -> bool:
        """Return whether the program must not see this record: it is stale, or will be read again."""
        where, offset = (polled.topic() or "", polled.partition() or 0), polled.offset() or 0
        state = self.unchecked.get(where)
        if state is None or polled.error() is not None or not self._is_stale(consumer, where, offset, state):
            return False
        self._left_out.add(where)
        return True

    def _is_stale(self, consumer: Consumer, where: Partition, offset: int, state: _UncheckedPartition) -> bool:
        if state.first is not None:
            if offset >= state.first:
                self.unchecked.pop(where, None)
            return offset == state.first
        if state.committed is None:
            try:
                state.committed = committed_offsets(consumer, [TopicPartition(*where)], _BRIEFLY_SECONDS)[where]
            except KafkaNotReachable as error:
                logger.warning("%s; reading %s-%d@%d again", error, *where, offset)
                return self._go_back(where, offset)
        if offset < state.committed:
            return True
        if self._from_end and offset > state.committed >= 0 and not state.sought:
            state.sought = True
            return self._go_back(where, state.committed)
        state.first = offset
        return False

    def nothing_comes(self, consumer: Consumer) -> None:
        """Go back to the committed offset if no record has arrived and reading may have begun at the end.

        Partitions that were revoked meanwhile are forgotten.
        """
        if time.monotonic() < self._looked + _LOOK_EVERY_SECONDS:
            return
        self._looked = time.monotonic()
        for where in self.unchecked.keys() - {(one.topic, one.partition) for one in consumer.assignment()}:
            self.unchecked.pop(where, None)
        if not self._from_end:
            return
        silent = [where for where, one in list(self.unchecked.items()) if one.first is None and not one.sought]
        try:
            committed = committed_offsets(consumer, [TopicPartition(*where) for where in silent], _BRIEFLY_SECONDS)
        except KafkaNotReachable as error:
            logger.debug("%s", error)
            return
        for where, offset in committed.items():
            if (state := self.unchecked.get(where)) is not None:
                state.committed, state.sought = offset, offset < 0 or self._go_back(where, offset)

    def committable(self, consumer: Consumer) -> list[TopicPartition] | None:
        """Return the offsets for a commit without arguments; None if librdkafka's stored offsets are right.

        librdkafka 2.16 stores the offset of each record that it returns, also of those left out here, and a seek does
        not reset it. The read position is invalid from a seek to the next record.
        """
        if not self._left_out:
            return None
        unseen = {where for where, state in list(self.unchecked.items()) if state.first is None}
        positions = {(one.topic, one.partition): one for one in consumer.position(consumer.assignment())}
        seen = {where: one for where, one in positions.items() if one.offset >= 0 and where not in unseen}
        return list(seen.values()) if self._left_out & (positions.keys() - seen.keys()) else None

    def _go_back(self, where: Partition, offset: int) -> bool:
        """Read again from an offset; False if librdkafka has not started to read the partition."""
        try:
            self._seek(TopicPartition(*where, offset))
        except KafkaException as error:
            logger.warning("%s", translate(error, f"reading {where[0]}-{where[1]} again from {offset}"))
            return False
        self._read_again.add(where)
        return True


def committed_offsets(
    consumer: Consumer, partitions: list[TopicPartition], timeout: float = _TIMEOUT
) -> dict[Partition, int]:
    """Return the committed offsets of the consumer's group, negative without one.

    Raises:
        KafkaNotReachable: no answer within `seconds`.
    """
    if not partitions:
        return {}
    try:
        found = consumer.committed(partitions, timeout)
    except KafkaException as error:
        raise KafkaNotReachable(str(translate(error, "asking what is committed"))) from error
    for one in found:
        if one.error is not None:
            # For example an offset that an open transaction holds back: the partition seems to have no commit.
            doing = f"asking what is committed of {one.topic}-{one.partition}"
            raise KafkaNotReachable(str(translate(one.error, doing)))
    return {(one.topic, one.partition): one.offset for one in found}
