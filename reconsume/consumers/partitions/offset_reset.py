"""Where a partition starts that has no offset to go on from."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Final, NamedTuple

from confluent_kafka import (
    OFFSET_BEGINNING,
    OFFSET_END,
    OFFSET_STORED,
    Consumer,
    KafkaError,
    KafkaException,
    TopicPartition,
)

from reconsume.bridge.kafka.errors import translate
from reconsume.consumers.partitions.consume_from import ConsumeFrom, ConsumeFromWhere, first_offset

__all__ = ["OffsetReset", "Start"]

logger = logging.getLogger(__name__)

_SECONDS: Final = 10.0
_FROM_BEGINNING: Final = ConsumeFrom(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET)


class Start(NamedTuple):
    """Where to start.

    Attributes:
        where: the offset, with its partition.
        is_made_again: the topic was deleted and made again since the group committed its offset.
    """

    where: TopicPartition
    is_made_again: bool = False


class OffsetReset:
    """librdkafka has one `auto.offset.reset` for all topics; ours is `error`, and each topic starts where it should.

    A seek does not work in that state; unassign and assign does. Test: tests/integration/test_push_consumer_offsets.py.

    With `latest` a group would lose the retries that were delivered before its first start (RocketMQ: TN-06, T-34). A
    group that fell behind goes on with the oldest record that there is.

    Args:
        consumer: asks.
        retry_topic: starts at its beginning.
        consume_from: for the other topics of a new group.
        committed: as `Consumer.committed`, of what can be believed.
    """

    def __init__(
        self,
        consumer: Consumer,
        retry_topic: str,
        consume_from: ConsumeFrom,
        committed: Callable[[list[TopicPartition], float], list[TopicPartition]],
    ) -> None:
        self._consumer = consumer
        self._ask = committed
        self._retry_topic = retry_topic
        self._consume_from = consume_from

    def start_of(self, topic: str, partition: int, *, had_none: bool) -> Start:
        """For a partition without a committed offset, or with one that is no longer kept.

        Args:
            topic: its topic.
            partition: its number.
            had_none: whether there was no committed offset. If there is one now, the coordinator had lost it.

        Raises:
            KafkaRefused: the cluster refuses to tell.
        """
        answer = self._committed(topic, partition)
        if answer is None:
            # librdkafka asks again until it is told, and comes back if there is none. To take it for none could skip
            # what nobody has consumed.
            return Start(TopicPartition(topic, partition, OFFSET_STORED))
        committed = answer if answer >= 0 else None
        was_there = self._consume_from.was_there(topic, partition)
        from_beginning = topic == self._retry_topic or committed is not None or not was_there
        consume_from = _FROM_BEGINNING if from_beginning else self._consume_from
        where = first_offset(topic, partition, consume_from, self._consumer.offsets_for_times)
        known = self._first_and_end(topic, partition)
        if known is None:
            return Start(where)
        first, end = known
        if had_none and committed is not None and first <= committed <= end:
            return Start(TopicPartition(topic, partition, committed))
        where.offset = {OFFSET_BEGINNING: first, OFFSET_END: end}.get(where.offset, where.offset)
        made_again = committed is not None and committed > end
        if made_again:
            logger.warning(
                "%s-%d ends at %d, before the committed offset %d: it was deleted and made again",
                *(topic, partition, end, committed),
            )
        return Start(where, made_again)

    def _committed(self, topic: str, partition: int) -> int | None:
        """Negative if there is none; None if nobody says."""
        refusal: KafkaError | KafkaException | None = None
        try:
            found = self._ask([TopicPartition(topic, partition)], _SECONDS)[0]
            refusal = found.error
        except KafkaException as error:
            refusal = error
        if refusal is None:
            return found.offset
        logger.warning("%s", translate(refusal, f"asking for the committed offset of {topic}-{partition}"))
        return None

    def _first_and_end(self, topic: str, partition: int) -> tuple[int, int] | None:
        """As numbers: librdkafka 2.16 would ask by itself, and read on if the partition is lost before the answer."""
        try:
            return self._consumer.get_watermark_offsets(TopicPartition(topic, partition), _SECONDS)
        except KafkaException as error:
            logger.warning("%s", translate(error, f"asking where {topic}-{partition} begins and ends"))
            return None
