"""A retry as a program for `confluent_kafka` sees it, and what can be asked of any message."""

from __future__ import annotations

from typing import Any, cast

from confluent_kafka import Message as KafkaMessage
from confluent_kafka import TopicPartition

from reconsume.consumers.message import Message
from reconsume.delay_levels.foreign_values import of_type
from reconsume.delay_levels.wire.send_back_copy import Position

__all__ = ["RetryMessage", "as_polled", "origin", "polled_from", "reconsume_times"]


class RetryMessage(KafkaMessage):
    """A `confluent_kafka.Message` from the retry topic.

    `topic()` is the origin topic and `headers()` are the user's. `partition()` and `offset()` are those of the retry
    topic, as in RocketMQ (RocketMQ: TN-02, TN-04); `polled_from` has all three of them.
    """

    def __init__(self, polled: KafkaMessage, retry_topic: str) -> None:
        message = Message(polled, retry_topic)
        headers = message.headers
        super().__init__(
            topic=message.topic,
            partition=message.kafka.partition,
            offset=message.kafka.offset,
            key=message.key,
            value=message.body,
            # confluent-kafka has None where a record has no headers.
            headers=cast("Any", headers) if headers else None,
            timestamp=polled.timestamp(),
            latency=-1.0,
            leader_epoch=-1 if (epoch := polled.leader_epoch()) is None else epoch,
        )
        self.polled = polled
        self.message = message


def as_polled(message: KafkaMessage) -> KafkaMessage:
    """The message as it came from Kafka; librdkafka's client accepts no other."""
    return message.polled if isinstance(message, RetryMessage) else message


def reconsume_times(message: KafkaMessage) -> int:
    """How often the message was sent back; 0 for one that is no retry."""
    of_type(message, "message", KafkaMessage)
    return message.message.reconsume_times if isinstance(message, RetryMessage) else 0


def polled_from(message: KafkaMessage) -> TopicPartition:
    """Topic, partition and offset of this copy; of a retry, those in the retry topic."""
    polled = as_polled(of_type(message, "message", KafkaMessage))
    return TopicPartition(polled.topic() or "", cast("int", polled.partition()), cast("int", polled.offset()))


def origin(message: KafkaMessage) -> Position:
    """Topic, partition and offset of the first copy, the same over all retries."""
    if isinstance(message, RetryMessage):
        return message.message.origin
    where = polled_from(message)
    return Position(where.topic, where.partition, where.offset)
