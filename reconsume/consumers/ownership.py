"""Whether what was polled is still this member's, for send-backs in transactions."""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import Any, Final

from confluent_kafka import Consumer, KafkaException, TopicPartition
from confluent_kafka import Message as KafkaMessage

from reconsume.bridge.kafka import translate
from reconsume.delay_levels.errors import KafkaNotReachable, PartitionLost

__all__ = ["Ownership"]

logger = logging.getLogger(__name__)

_TIMEOUT: Final = 10.0
_Partition = tuple[str, int]


class Ownership:
    """Remembers assignments; partitions are given with the smallest offset that is worked on.

    Attributes:
        suspects: partitions that have come back and of which nothing was polled since.
    """

    def __init__(self) -> None:
        self._times_assigned: dict[_Partition, int] = defaultdict(int)
        self.suspects: set[_Partition] = set()

    def assigned(self, partitions: Iterable[TopicPartition], *, at_committed: bool) -> None:
        """Note an assignment, and whether it starts at the committed offsets."""
        for one in partitions:
            where = (one.topic, one.partition)
            self._times_assigned[where] += 1
            if at_committed and self._times_assigned[where] > 1:
                self.suspects.add(where)
            else:
                self.suspects.discard(where)

    def is_left_over(self, consumer: Consumer, polled: KafkaMessage) -> bool:
        """Whether this record was fetched for an earlier assignment, and finished by somebody else since.

        librdkafka 2.16 goes on fetching a partition that was taken away while it asked for an offset there, and gives
        one record of that when the partition comes back.
        """
        where = (polled.topic() or "", polled.partition() or 0)
        if where not in self.suspects or polled.error() is not None:
            return False
        try:
            moved = _committed(consumer, [TopicPartition(*where)])
        except KafkaNotReachable as error:
            logger.warning("%s; taking %s-%d as it comes", error, *where)
            return False
        if moved[where] > (polled.offset() or 0):
            return True
        self.suspects.discard(where)
        return False

    def metadata(self, consumer: Consumer, partitions: Mapping[_Partition, int]) -> Any:
        """The group metadata, if these partitions are still ours; taken first, so that a later loss fences it.

        Raises:
            PartitionLost: one of them is another member's, or was meanwhile and has gone on from there.
            KafkaNotReachable: nobody says what is committed.
        """
        metadata = consumer.consumer_group_metadata()
        assigned = {(one.topic, one.partition) for one in consumer.assignment()}
        # Away and back: another member may have gone on from where we stood.
        again = [TopicPartition(*where) for where in partitions if self._times_assigned[where] > 1]
        moved = _committed(consumer, again)
        for where, offset in partitions.items():
            if where not in assigned or moved.get(where, -1) > offset:
                raise PartitionLost(
                    f"{where[0]}-{where[1]}@{offset} was taken over by another member of the group; nothing was sent"
                )
        return metadata

    def come_again(self, consumer: Consumer, partitions: Mapping[_Partition, int]) -> None:
        """What was fenced and is still ours is read again, or it would be passed over."""
        assigned = [one for one in consumer.assignment() if (one.topic, one.partition) in partitions]
        try:
            moved = _committed(consumer, assigned)
        except KafkaNotReachable:
            moved = {}
        for one in assigned:
            where = (one.topic, one.partition)
            if moved.get(where, -1) <= partitions[where]:
                consumer.seek(TopicPartition(*where, partitions[where]))


def _committed(consumer: Consumer, partitions: list[TopicPartition]) -> dict[_Partition, int]:
    if not partitions:
        return {}
    try:
        found = consumer.committed(partitions, _TIMEOUT)
    except KafkaException as error:
        raise KafkaNotReachable(str(translate(error, "asking what is committed"))) from error
    return {(one.topic, one.partition): one.offset for one in found}
