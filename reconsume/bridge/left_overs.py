"""Records that were fetched for an earlier assignment of their partition."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from confluent_kafka import Consumer, KafkaException, Message, TopicPartition

from reconsume.bridge.admin import Partition
from reconsume.bridge.kafka import translate
from reconsume.delay_levels.errors import KafkaNotReachable

__all__ = ["LeftOvers", "committed_offsets"]

_TIMEOUT: Final = 10.0


class LeftOvers:
    """Tells what somebody else has finished since it was fetched here.

    librdkafka 2.16 goes on fetching a partition that was taken away while it asked for a first offset there, and gives
    one record of that when the partition comes back, before those of the new assignment. So a partition that was here
    before is a suspect: what is below the committed offset is left over, and of the first record that is not, which may
    be either, the second copy.

    Attributes:
        suspects: nothing has to be asked while it is empty.
    """

    def __init__(self) -> None:
        self.suspects: set[Partition] = set()
        self._known: set[Partition] = set()
        self._first: dict[Partition, int] = {}

    def assigned(self, partitions: Iterable[TopicPartition], *, at_committed: bool = True) -> None:
        """Take note of partitions, and whether they start at their committed offsets."""
        for one in partitions:
            where = (one.topic, one.partition)
            self._first.pop(where, None)
            if at_committed and where in self._known:
                self.suspects.add(where)
            else:
                self.suspects.discard(where)
            self._known.add(where)

    def is_one(self, consumer: Consumer, polled: Message) -> bool:
        """Whether this record is left over.

        Raises:
            KafkaNotReachable: nobody says what is committed.
        """
        where = (polled.topic() or "", polled.partition() or 0)
        if where not in self.suspects or polled.error() is not None:
            return False
        offset = polled.offset() or 0
        first = self._first.get(where)
        if first is None:
            if committed_offsets(consumer, [TopicPartition(*where)])[where] > offset:
                return True
            self._first[where] = offset
            return False
        if offset >= first:
            self.suspects.discard(where)
        return offset == first


def committed_offsets(consumer: Consumer, partitions: list[TopicPartition]) -> dict[Partition, int]:
    """What the consumer's group has committed, negative where that is nothing.

    Raises:
        KafkaNotReachable: nobody says.
    """
    if not partitions:
        return {}
    try:
        found = consumer.committed(partitions, _TIMEOUT)
    except KafkaException as error:
        raise KafkaNotReachable(str(translate(error, "asking what is committed"))) from error
    return {(one.topic, one.partition): one.offset for one in found}
