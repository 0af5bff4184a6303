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
    KafkaException,
    TopicPartition,
)

from reconsume.bridge.kafka.errors import is_passing, translate
from reconsume.consumers.partitions.consume_from import ConsumeFrom, ConsumeFromWhere
from reconsume.consumers.partitions.kept_progress import Committed
from reconsume.delay_levels.errors import ReconsumeError

__all__ = ["OffsetReset", "Start", "first_offset"]

logger = logging.getLogger(__name__)

_SECONDS: Final = 10.0
_FROM_BEGINNING: Final = ConsumeFrom(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET)


OffsetsForTimes = Callable[[list[TopicPartition], float], list[TopicPartition]]
"""The method of a `confluent_kafka.Consumer`."""


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
        committed: tells what can be believed.
    """

    def __init__(
        self,
        consumer: Consumer,
        retry_topic: str,
        consume_from: ConsumeFrom,
        committed: Committed,
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
        committed = self._committed(topic, partition)
        if committed is None:
            # librdkafka asks again until it is told, and comes back if there is none. To take it for none could skip
            # what nobody has consumed.
            return Start(TopicPartition(topic, partition, OFFSET_STORED))
        was_there = self._consume_from.was_there(topic, partition)
        from_beginning = topic == self._retry_topic or committed >= 0 or not was_there
        consume_from = _FROM_BEGINNING if from_beginning else self._consume_from
        where = first_offset(topic, partition, consume_from, self._consumer.offsets_for_times)
        known = self._first_and_end(topic, partition)
        if known is None:
            return Start(where)
        first, end = known
        if had_none and first <= committed <= end:
            return Start(TopicPartition(topic, partition, committed))
        where.offset = {OFFSET_BEGINNING: first, OFFSET_END: end}.get(where.offset, where.offset)
        made_again = committed > end
        if made_again:
            logger.warning(
                "%s-%d ends at %d, before the committed offset %d: it was deleted and made again",
                *(topic, partition, end, committed),
            )
        return Start(where, made_again)

    def _committed(self, topic: str, partition: int) -> int | None:
        """Negative if there is none; None if nobody says."""
        answer = self._ask([(topic, partition)], _SECONDS)[topic, partition]
        if isinstance(answer, ReconsumeError):
            logger.warning("%s", answer)
            return None
        return answer.offset

    def _first_and_end(self, topic: str, partition: int) -> tuple[int, int] | None:
        """As numbers: librdkafka 2.16 would ask by itself, and read on if the partition is lost before the answer."""
        try:
            return self._consumer.get_watermark_offsets(TopicPartition(topic, partition), _SECONDS)
        except KafkaException as error:
            logger.warning("%s", translate(error, f"asking where {topic}-{partition} begins and ends"))
            return None


def first_offset(
    topic: str, partition: int, consume_from: ConsumeFrom, offsets_for_times: OffsetsForTimes
) -> TopicPartition:
    """Where to start a partition that has no offset to go on from.

    A moment that cannot be looked up now gives the committed offset, which is not there; so the question comes again.

    Raises:
        KafkaRefused: the cluster refuses to tell.
    """
    if consume_from.where is ConsumeFromWhere.CONSUME_FROM_TIMESTAMP:
        wanted = TopicPartition(topic, partition, consume_from.timestamp_ms)
        try:
            [found] = offsets_for_times([wanted], _SECONDS)
            offset, error = found.offset, found.error
        except KafkaException as raised:
            offset, error = OFFSET_STORED, raised.args[0]
        if error is not None:
            refusal = translate(error, f"looking where {topic}-{partition} was at the moment to start from")
            if not is_passing(error):
                raise refusal
            logger.warning("%s; trying again", refusal)
            return TopicPartition(topic, partition, OFFSET_STORED)
    elif consume_from.where is ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET:
        offset = OFFSET_BEGINNING
    else:
        offset = OFFSET_END
    shown = {OFFSET_BEGINNING: "its beginning", OFFSET_END: "its end"}.get(offset, f"offset {offset}")
    logger.info("%s-%d has no offset to go on from: starting at %s", topic, partition, shown)
    return TopicPartition(topic, partition, offset)
