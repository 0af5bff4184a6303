"""Records that librdkafka gives though the group has gone beyond them, or without those before them."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Final

from confluent_kafka import Consumer, KafkaException, Message, TopicPartition

from reconsume.bridge.kafka.admin import Partition
from reconsume.bridge.kafka.errors import translate
from reconsume.delay_levels.errors import KafkaNotReachable

logger = logging.getLogger(__name__)

_TIMEOUT: Final = 10.0
_BRIEFLY_SECONDS: Final = 2.0
"""For a question within a poll: it is asked again in the next one."""
_LOOK_EVERY_SECONDS: Final = 1.0


@dataclass(slots=True)
class _UncheckedPartition:
    """A partition whose first record has not come, or may come twice.

    Attributes:
        committed: by the group when the first record came; None before that.
        first: the first record that was taken.
        sought: whether reading was sent back to what is committed.
    """

    committed: int | None = None
    first: int | None = None
    sought: bool = False


class StaleRecords:
    """Holds what comes first after an assignment against what the group has committed.

    librdkafka 2.16 begins elsewhere at times, when offsets are committed in transactions:

    * It goes on fetching a partition that was taken away while it asked for a first offset there, and gives one record
      of that when the partition comes back, before those of the new assignment.
    * It takes `auto.offset.reset` where a dead member's transaction holds the committed offset back and the assignment
      changes meanwhile: `rd_kafka_assignment_apply_offsets` forgets that it has to ask once more.

    So what is below the committed offset is left out, of the first record that is not, which may be of an earlier
    assignment, the second copy too; and where records may have been passed over, because it began at the end or nothing
    comes, reading goes back once. Scheduler workers (`Assignment`) and `PushConsumer` (`ProcessQueue.begin`) leave out
    what is below the committed offset too.

    Tests: tests/unit/bridge/reading/test_stale_records.py, tests/integration/test_drop_in_exactly_once.py,
    tests/unit/consumers/partitions/test_process_queue.py, tests/chaos.
    Remove when: librdkafka begins at the committed offset in both cases.

    Args:
        seek: the consumer's own.
        from_end: whether librdkafka falls back on the end of a partition, not on its beginning.

    Attributes:
        unchecked: nothing has to be asked while it is empty.
    """

    def __init__(self, seek: Callable[[TopicPartition], None], *, from_end: bool = False) -> None:
        self.unchecked: dict[Partition, _UncheckedPartition] = {}
        self._seek = seek
        self._from_end = from_end
        self._looked = 0.0

    def assigned(self, partitions: Iterable[TopicPartition]) -> None:
        """Take note of partitions that start at their committed offsets."""
        self.unchecked.update({(one.topic, one.partition): _UncheckedPartition() for one in partitions})

    def trust(self, partitions: Iterable[TopicPartition]) -> None:
        """Accept all records of these: their start was chosen."""
        for one in partitions:
            self.unchecked.pop((one.topic, one.partition), None)

    def is_stale(self, consumer: Consumer, polled: Message) -> bool:
        """Whether this record is not for the program: it is left over, or will be read again."""
        where, offset = (polled.topic() or "", polled.partition() or 0), polled.offset() or 0
        state = self.unchecked.get(where)
        if state is None or polled.error() is not None:
            return False
        if state.first is not None:
            if offset >= state.first:
                del self.unchecked[where]
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
        """Go back to what is committed where no record has come yet, if it may have begun at the end."""
        silent = [where for where, one in self.unchecked.items() if one.first is None and not one.sought]
        if not (self._from_end and silent) or time.monotonic() < self._looked + _LOOK_EVERY_SECONDS:
            return
        self._looked = time.monotonic()
        try:
            committed = committed_offsets(consumer, [TopicPartition(*where) for where in silent], _BRIEFLY_SECONDS)
        except KafkaNotReachable as error:
            logger.debug("%s", error)
            return
        for where, offset in committed.items():
            state = self.unchecked[where]
            state.committed, state.sought = offset, offset < 0 or self._go_back(where, offset)

    def _go_back(self, where: Partition, offset: int) -> bool:
        """Read again from there; False if librdkafka has not begun to read the partition."""
        try:
            self._seek(TopicPartition(*where, offset))
        except KafkaException as error:
            logger.warning("%s", translate(error, f"reading {where[0]}-{where[1]} again from {offset}"))
            return False
        return True


def committed_offsets(
    consumer: Consumer, partitions: list[TopicPartition], timeout: float = _TIMEOUT
) -> dict[Partition, int]:
    """Return the committed offsets of the consumer's group, negative where there is none.

    Raises:
        KafkaNotReachable: no answer within so many seconds.
    """
    if not partitions:
        return {}
    try:
        found = consumer.committed(partitions, timeout)
    except KafkaException as error:
        raise KafkaNotReachable(str(translate(error, "asking what is committed"))) from error
    for one in found:
        if one.error is not None:
            # Such as an offset that an open transaction holds back: its partition looks as if nothing were committed.
            doing = f"asking what is committed of {one.topic}-{one.partition}"
            raise KafkaNotReachable(str(translate(one.error, doing)))
    return {(one.topic, one.partition): one.offset for one in found}
