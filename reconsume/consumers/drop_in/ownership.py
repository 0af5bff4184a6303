"""Whether this member still owns the partitions of polled messages, for send-backs in transactions."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from confluent_kafka import Consumer, KafkaException, TopicPartition

from reconsume.bridge.kafka.admin import Partition
from reconsume.bridge.kafka.errors import translate
from reconsume.bridge.process.safe_logger import SafeLogger
from reconsume.bridge.reading.stale_records import committed_offsets
from reconsume.delay_levels.errors import KafkaNotReachable, PartitionLost

logger = SafeLogger(__name__)


class Ownership:
    """Tracks assignments.

    Guarantees: losing a partition after the check fences the transaction. If a partition was lost and returned, another
    member may have processed it, so the committed offset decides. Test: tests/integration/drop_in/test_exactly_once.py.
    """

    def __init__(self) -> None:
        self._times_assigned: dict[Partition, int] = defaultdict(int)

    def assigned(self, partitions: Iterable[TopicPartition]) -> None:
        """Note an assignment."""
        for one in partitions:
            self._times_assigned[one.topic, one.partition] += 1

    def metadata(self, consumer: Consumer, partitions: Mapping[Partition, int]) -> Any:
        """Return the group metadata if we own these partitions; taken first, so that a later loss fences it.

        Args:
            consumer: the member.
            partitions: each partition with its smallest unfinished offset.

        Raises:
            PartitionLost: another member owns one of them, or the group has committed beyond the offset meanwhile.
            KafkaNotReachable: the committed offsets are unavailable.
        """
        metadata = consumer.consumer_group_metadata()
        assigned = {(one.topic, one.partition) for one in consumer.assignment()}
        # The partition left and returned: another member may have continued from our position.
        again = [TopicPartition(*where) for where in partitions if self._times_assigned[where] > 1]
        moved = committed_offsets(consumer, again)
        for where, offset in partitions.items():
            if where not in assigned or moved.get(where, -1) > offset:
                raise PartitionLost(
                    f"{where[0]}-{where[1]}@{offset}: another member of the group has the partition, or this member "
                    "has committed beyond it; nothing was sent, go on with poll()"
                )
        return metadata

    def come_again(
        self, consumer: Consumer, partitions: Mapping[Partition, int], seek: Callable[[TopicPartition], None]
    ) -> None:
        """Seek back to fenced messages of our partitions; otherwise they would be skipped.

        A partition that has just come back refuses that, and begins at its committed offset.

        Args:
            consumer: the member.
            partitions: each partition with the smallest offset of the messages; reading begins at the committed offset
                if that is larger, because messages behind it may be fenced too.
            seek: seeks to a record of Kafka; the member's own method refuses what may be the offset of a retry.
        """
        assigned = [one for one in consumer.assignment() if (one.topic, one.partition) in partitions]
        try:
            moved = committed_offsets(consumer, assigned)
        except KafkaNotReachable:
            moved = {}
        for one in assigned:
            where = (one.topic, one.partition)
            offset = max(partitions[where], moved.get(where, -1))
            try:
                seek(TopicPartition(*where, offset))
            except KafkaException as error:
                logger.warning("%s", translate(error, f"reading {where[0]}-{where[1]} again from {offset}"))
