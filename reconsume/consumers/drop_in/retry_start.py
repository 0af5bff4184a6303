"""Where the retry topic starts if the group has no committed offset there."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Final

from confluent_kafka import OFFSET_INVALID, OFFSET_STORED, KafkaException, TopicPartition

from reconsume.bridge.kafka.errors import is_passing, translate
from reconsume.bridge.librdkafka.listed_offsets import EARLIEST, OffsetsForTimes, watermark
from reconsume.bridge.process.safe_logger import SafeLogger

logger = SafeLogger(__name__)

_TIMEOUT: Final = 10.0
_AGAIN_SECONDS: Final = 0.5

_Committed = Callable[[list[TopicPartition], float], list[TopicPartition]]


def with_retry_starts(
    partitions: list[TopicPartition],
    retry_topic: str,
    committed: _Committed,
    offsets_for_times: OffsetsForTimes,
    closing: threading.Event,
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
        offsets_for_times: the consumer's method of this name.
        closing: set when the consumer closes. It reads nothing more, and its group may answer nothing, so no start is
            looked up.

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
    starts = _starts(retry_topic, sorted(silent), committed, offsets_for_times, closing)
    return [starts.get(one.partition, one) if one.topic == retry_topic else one for one in partitions]


def _starts(
    topic: str,
    partitions: list[int],
    committed: _Committed,
    offsets_for_times: OffsetsForTimes,
    closing: threading.Event,
) -> dict[int, TopicPartition]:
    """Ask until the starts are known: a guess would lose retries or repeat them."""
    while not closing.is_set():
        try:
            found = committed([TopicPartition(topic, one) for one in partitions], _TIMEOUT)
            return {one.partition: _start(one, offsets_for_times) for one in found}
        except KafkaException as error:
            if closing.is_set():
                break
            if not is_passing(error.args[0]):
                raise
            logger.warning("%s; trying again", translate(error, f"looking where to start {topic}"))
            closing.wait(_AGAIN_SECONDS)
    return {}


def _start(committed: TopicPartition, offsets_for_times: OffsetsForTimes) -> TopicPartition:
    if committed.error is not None:
        raise KafkaException(committed.error)
    first = watermark(offsets_for_times, committed.topic, committed.partition, EARLIEST, _TIMEOUT)
    if committed.offset >= first:
        return TopicPartition(committed.topic, committed.partition)
    logger.info("%s-%d has no committed offset: starting at its beginning", committed.topic, committed.partition)
    return TopicPartition(committed.topic, committed.partition, first)
