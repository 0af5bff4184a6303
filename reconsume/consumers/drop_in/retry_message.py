"""Retries as `confluent_kafka` messages, and functions on any polled message."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from typing import Any, Final, cast

from confluent_kafka import Message as KafkaMessage
from confluent_kafka import TopicPartition

from reconsume.bridge.librdkafka.undecodable import headers_of, mend_headers
from reconsume.consumers.listener import ConsumeConcurrentlyStatus, acknowledged_count
from reconsume.consumers.message import Message
from reconsume.delay_levels.errors import IllegalSetting
from reconsume.delay_levels.foreign_values import checked_headers, of_type, type_name
from reconsume.delay_levels.wire.send_back_copy import Position

_REMEMBERED: Final = 1_000

Positions = Callable[[list[TopicPartition]], list[TopicPartition]]
"""Returns the read positions of partitions."""


class RetryMessage(KafkaMessage):
    """A `confluent_kafka.Message` from the retry topic.

    `topic()` is the origin topic and `headers()` are the user's. `partition()` and `offset()` are those of the retry
    topic (RocketMQ: TN-02, TN-04); `polled_from` returns the retry topic with both.

    Guarantees: an offset that combines a retry's `topic()` with its `offset()` is wrong, and is refused where it would
    skip unread messages. Test: tests/integration/drop_in/test_consumer.py.
    A copied or pickled retry is the same retry. Test: tests/unit/consumers/drop_in/test_copied_messages.py.
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
            # confluent-kafka returns None if a record has no headers.
            headers=cast("Any", headers) if headers else None,
            timestamp=polled.timestamp(),
            latency=-1.0,
            leader_epoch=-1 if (epoch := polled.leader_epoch()) is None else epoch,
        )
        self.polled = polled
        self.message = message
        self._retry_topic = retry_topic

    # Those of confluent-kafka make an ordinary message of the origin topic.
    def __reduce__(self) -> tuple[Any, ...]:
        return RetryMessage, (self.polled, self._retry_topic), (self.key(), self.value(), self.headers())

    def __setstate__(self, replaceable: tuple[Any, Any, Any]) -> None:
        key, value, headers = replaceable
        self.set_key(key)
        self.set_value(value)
        self.set_headers(headers)


class GivenRetries:
    """Remembers the retries that a program has got, to recognise offsets made from them.

    Args:
        retry_topic: the group's.
    """

    def __init__(self, retry_topic: str) -> None:
        self._retry_topic = retry_topic
        self._offsets: dict[tuple[str | None, int | None], deque[int | None]] = {}

    def add(self, message: RetryMessage) -> None:
        """Remember one message; keeps the last 1,000 of each partition, and at most 1,000 partitions.

        Origin topics are what clients have written, and must not fill the memory.
        """
        where = message.topic(), message.partition()
        if where not in self._offsets and len(self._offsets) >= _REMEMBERED:
            del self._offsets[next(iter(self._offsets))]
        self._offsets.setdefault(where, deque(maxlen=_REMEMBERED)).append(message.offset())

    def check(self, offsets: Iterable[TopicPartition], position: Positions) -> None:
        """Refuse a retry's offset under its origin topic, where it would skip unread messages.

        Args:
            offsets: the offsets to commit or store.
            position: returns the read position of a partition.

        Raises:
            IllegalSetting: one of them is such an offset.
        """
        for one in offsets:
            if self._has(one, one.offset - 1) and one.offset > _at(one, position):
                raise self._mixed_up(one, "pass message=…, or offsets made with polled_from(message)")

    def check_seek(self, to: TopicPartition, position: Positions) -> None:
        """Refuse a retry's offset under its origin topic, where a seek would skip unread messages.

        Without a read position nothing is refused: a program then restores the offset that it has stored.

        Raises:
            IllegalSetting: it is such an offset.
        """
        if self._has(to, to.offset) and 0 <= _at(to, position) < to.offset:
            raise self._mixed_up(to, "seek to polled_from(message)")

    def check_record(self, where: TopicPartition, position: Positions) -> None:
        """Refuse a retry's offset under its origin topic, where it names an unread message.

        Raises:
            IllegalSetting: it is such an offset.
        """
        if self._has(where, where.offset) and where.offset >= _at(where, position):
            raise self._mixed_up(where, "pass the message, or polled_from(message)")

    def _has(self, where: TopicPartition, offset: int) -> bool:
        return offset in self._offsets.get((where.topic, where.partition), ())

    def _mixed_up(self, one: TopicPartition, way_out: str) -> IllegalSetting:
        return IllegalSetting(
            f"offset {one.offset} of {one.topic}-{one.partition} belongs to a retry, which is a record of "
            f"{self._retry_topic}; {way_out}"
        )


def _at(where: TopicPartition, position: Positions) -> int:
    return position([TopicPartition(where.topic, where.partition)])[0].offset


def as_polled(message: KafkaMessage) -> KafkaMessage:
    """Return the message as it came from Kafka.

    confluent-kafka (2.16) refuses subclasses of its message in `commit` and `store_offsets`.
    Test: tests/integration/drop_in/test_consumer.py. Remove when: it accepts them.
    """
    return message.polled if isinstance(message, RetryMessage) else message


def storable(message: KafkaMessage) -> KafkaMessage:
    """Return the message as it came from Kafka, if a producer takes its parts.

    Raises:
        IllegalSetting: a program has replaced its key, value or headers by something else, or has made the message.
    """
    polled, where = as_polled(message), polled_from(message)
    at = f"{where.topic}-{where.partition}@{where.offset}"
    way_out = "pass polled_from(message), so that the record is read again from Kafka"
    for name, part in (("key", polled.key()), ("value", polled.value())):
        if part is not None and not isinstance(part, bytes):
            raise IllegalSetting(f"{at}: set_{name} has replaced its {name}; {way_out}")
    mend_headers(polled)
    try:
        checked_headers(headers_of(polled))
    except IllegalSetting as error:
        raise IllegalSetting(f"{at}: set_headers has replaced its headers: {error}; {way_out}") from None
    return polled


def listed(given: Any, ack_index: int | None) -> tuple[list[Any], int]:
    """Return the given message or messages as a list, and how many of its first ones succeeded.

    Raises:
        IllegalSetting: it is no message and no list, or `ack_index` does not fit.
    """
    if isinstance(given, KafkaMessage | TopicPartition):
        if ack_index is not None:
            raise IllegalSetting("ack_index applies to a list of messages; leave it out for a single message")
        return [given], 0
    if isinstance(given, str | bytes) or not isinstance(given, Iterable):
        raise IllegalSetting(f"message must be a Message from poll(), or a list of them, got {type_name(type(given))}")
    messages, success = [*given], ConsumeConcurrentlyStatus.CONSUME_SUCCESS
    return messages, acknowledged_count(success, -1 if ack_index is None else ack_index, len(messages))


def reconsume_times(message: KafkaMessage) -> int:
    """Return how often the message was sent back; 0 if it is not a retry."""
    of_type(message, "message", KafkaMessage)
    return message.message.reconsume_times if isinstance(message, RetryMessage) else 0


def polled_from(message: KafkaMessage) -> TopicPartition:
    """Return topic, partition and offset of this copy; for a retry, those in the retry topic.

    Raises:
        IllegalSetting: the message was not polled; it is an error, or was made by a program.
    """
    polled = as_polled(of_type(message, "message", KafkaMessage))
    topic, partition, offset = polled.topic(), polled.partition(), polled.offset()
    if topic is None or partition is None or offset is None or offset < 0:
        raise IllegalSetting("message must be a record from poll(), got one without topic, partition and offset")
    return TopicPartition(topic, partition, offset)


def origin(message: KafkaMessage) -> Position:
    """Return topic, partition and offset of the first copy, the same over all retries."""
    if isinstance(message, RetryMessage):
        return message.message.origin
    where = polled_from(message)
    return Position(where.topic, where.partition, where.offset)
