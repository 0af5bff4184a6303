"""Answers of brokers that were asked for offsets.

1. `Consumer.get_watermark_offsets` (librdkafka 2.16, `rd_kafka_query_watermark_offsets`) sends two requests at once. If
   it handles both answers in one turn, the success of the second clears the error of the first, and the missing offset
   takes the value of the other one. A broker whose disk has just failed answers like that: with an error for the first
   offset, without one for the end. A consumer that starts at this first offset skips the whole partition. So each
   offset is a request of its own. Test: tests/integration/bridge/librdkafka/test_listed_offsets.py.
2. An answer to `list_offsets` has -1001 without an error for a partition whose broker stalls. Used as the end of a
   topic, it means that the topic is empty. Test: tests/unit/bridge/librdkafka/test_listed_offsets.py.
3. If no partition of a request has a leader, or a leader that is a known broker, `Consumer.offsets_for_times` raises
   _UNKNOWN_PARTITION (`rd_kafka_topic_partition_list_query_leaders`). That code says that the topic does not exist,
   for which it is raised too, but mostly one broker is away. So callers get LEADER_NOT_AVAILABLE, with a text that
   names both causes. Tests: tests/unit/bridge/librdkafka/test_listed_offsets.py,
   tests/integration/drop_in/test_leaderless.py.

Upstream issues: none were found.
Remove when: `get_watermark_offsets` raises if either request fails (1), librdkafka reports an error for each
partition without an answer (2), and `offsets_for_times` returns the partitions' own errors (3).
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Final

from confluent_kafka import KafkaError, KafkaException, TopicPartition

from reconsume.delay_levels.errors import KafkaNotReachable

OffsetsForTimes = Callable[[list[TopicPartition], float], list[TopicPartition]]
"""`Consumer.offsets_for_times`."""
OffsetLookUp = Callable[
    [OffsetsForTimes, Collection[tuple[str, int]], int, float], dict[tuple[str, int], int | KafkaError]
]
"""`watermarks` or `offsets_for`."""
EARLIEST: Final = -2
"""Kafka's special timestamp for the first kept offset."""
LATEST: Final = -1
"""Kafka's special timestamp for the end offset, for a reader of committed records the last stable one."""
_NOTHING_LATER: Final = -1
"""The brokers' answer if no record has that timestamp or a later one."""

_NO_LEADER: Final = (
    "no leader, or no such topic; start the brokers that have its replicas, or create it: `reconsume topics apply`"
)


def require_offset(offset: int, doing: str) -> int:
    """Return the offset.

    Raises:
        KafkaNotReachable: it is missing.
    """
    if offset < _NOTHING_LATER:
        raise KafkaNotReachable(f"{doing}: the answer has no offset; `reconsume doctor` examines the connection")
    return offset


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
    [found] = watermarks(ask, [(topic, partition)], which, seconds).values()
    if isinstance(found, KafkaError):
        raise KafkaException(found)
    return found


def watermarks(
    ask: OffsetsForTimes, partitions: Collection[tuple[str, int]], which: int, seconds: float
) -> dict[tuple[str, int], int | KafkaError]:
    """Return the first kept offset of each partition, or its end; or the error.

    Raises:
        KafkaException: no broker answered.
    """
    missing = KafkaError(KafkaError._TIMED_OUT, "the answer has no offset")
    found = offsets_for(ask, partitions, which, seconds)
    return {where: missing if isinstance(one, int) and one < 0 else one for where, one in found.items()}


def offsets_for(
    ask: OffsetsForTimes, partitions: Collection[tuple[str, int]], timestamp_ms: int, seconds: float
) -> dict[tuple[str, int], int | KafkaError]:
    """Return the first offset of each partition with that timestamp or a later one, -1 if none follows; or the error.

    One request for all: on the connection of a consumer that reads, each waits up to 0.5 s for a fetch.

    Raises:
        KafkaException: no broker answered.
    """
    try:
        found = ask([TopicPartition(*where, timestamp_ms) for where in partitions], seconds) if partitions else []
    except KafkaException as error:
        if error.args[0].code() != KafkaError._UNKNOWN_PARTITION:
            raise
        raise KafkaException(KafkaError(KafkaError.LEADER_NOT_AVAILABLE, _NO_LEADER)) from error
    return {(one.topic, one.partition): one.offset if one.error is None else one.error for one in found}
