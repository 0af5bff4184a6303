"""Where the retry topic starts if the group has no committed offset there."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Final

from confluent_kafka import OFFSET_INVALID, OFFSET_STORED, KafkaException, TopicPartition

from reconsume.bridge.kafka.errors import is_passing, translate

logger = logging.getLogger(__name__)

_TIMEOUT: Final = 10.0


_Committed = Callable[[list[TopicPartition], float], list[TopicPartition]]
_Watermarks = Callable[[TopicPartition, float], tuple[int, int]]


def with_retry_starts(
    partitions: list[TopicPartition], retry_topic: str, committed: _Committed, watermarks: _Watermarks
) -> list[TopicPartition]:
    """Return the partitions, those of the retry topic without an offset with their start.

    librdkafka has one `auto.offset.reset` for all topics. Unless it is `earliest`, a group would lose the retries that
    were delivered before its first start (RocketMQ: TN-06, T-34). So partitions of the retry topic get an explicit
    offset. It is a number: a start at the logical beginning falls back on the policy after a momentary failure.
    Tests: tests/unit/consumers/drop_in/test_retry_start.py, tests/integration/drop_in/test_consumer.py.
    Remove when: librdkafka has a policy for each topic.

    Args:
        partitions: the new assignment.
        retry_topic: the group's.
        committed: the consumer's method `committed`.
        watermarks: the consumer's method for the first and the end offset of a partition.

    Raises:
        KafkaException: the cluster refuses to return the committed offsets.
    """
    silent = {
        one.partition
        for one in partitions
        if one.topic == retry_topic and one.offset in (OFFSET_INVALID, OFFSET_STORED)
    }
    if not silent:
        return partitions
    starts = _starts(retry_topic, sorted(silent), committed, watermarks)
    return [
        starts[one.partition] if one.topic == retry_topic and one.partition in silent else one for one in partitions
    ]


def _starts(
    topic: str, partitions: list[int], committed: _Committed, watermarks: _Watermarks
) -> dict[int, TopicPartition]:
    """Ask until the starts are known: a guess would lose retries or repeat them."""
    while True:
        try:
            found = committed([TopicPartition(topic, one) for one in partitions], _TIMEOUT)
            return {one.partition: _start(one, watermarks) for one in found}
        except KafkaException as error:
            if not is_passing(error.args[0]):
                raise
            logger.warning("%s; trying again", translate(error, f"looking where to start {topic}"))


def _start(committed: TopicPartition, watermarks: _Watermarks) -> TopicPartition:
    if committed.error is not None:
        raise KafkaException(committed.error)
    first, _ = watermarks(TopicPartition(committed.topic, committed.partition), _TIMEOUT)
    if committed.offset >= first:
        return TopicPartition(committed.topic, committed.partition)
    logger.info("%s-%d has no committed offset: starting at its beginning", committed.topic, committed.partition)
    return TopicPartition(committed.topic, committed.partition, first)
