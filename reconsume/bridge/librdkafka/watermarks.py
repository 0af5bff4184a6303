"""The first and the end offset of a partition, each by a request of its own.

`Consumer.get_watermark_offsets` (librdkafka 2.16, `rd_kafka_query_watermark_offsets`) sends two requests at once. If it
handles both answers in one turn, the success of the second clears the error of the first, and the missing offset takes
the value of the other one. A broker whose disk has just failed answers like that: with an error for the first offset,
without one for the end. A consumer that starts at this first offset skips the whole partition. Upstream issue: none was
found.
Test: tests/integration/bridge/librdkafka/test_watermarks.py.

Remove when: `get_watermark_offsets` raises if either request fails.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from confluent_kafka import KafkaError, KafkaException, TopicPartition

OffsetsForTimes = Callable[[list[TopicPartition], float], list[TopicPartition]]
"""`Consumer.offsets_for_times`."""
EARLIEST: Final = -2
"""Kafka's special timestamp for the first kept offset."""
LATEST: Final = -1
"""Kafka's special timestamp for the end offset, for a reader of committed records the last stable one."""


def watermark(ask: OffsetsForTimes, topic: str, partition: int, which: int, seconds: float) -> int:
    """Return the first kept offset of a partition, or its end.

    Args:
        ask: the consumer's method.
        topic: the topic.
        partition: the number of the partition.
        which: EARLIEST or LATEST.
        seconds: the longest wait.

    Raises:
        KafkaException: no broker answered, or with an error.
    """
    [found] = ask([TopicPartition(topic, partition, which)], seconds)
    if found.error is not None:
        raise KafkaException(found.error)
    if found.offset < 0:
        raise KafkaException(KafkaError(KafkaError._TIMED_OUT, "the answer has no offset"))
    return found.offset
