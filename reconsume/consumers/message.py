"""A message as listeners see it. Properties that most listeners never read are computed on first use."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Generic, NamedTuple, Self, TypeVar, overload

from reconsume.bridge.librdkafka.undecodable import shared_headers_of
from reconsume.bridge.process.polled_records import PolledRecord
from reconsume.bridge.process.safe_logger import SafeLogger
from reconsume.delay_levels.errors import MalformedProperty
from reconsume.delay_levels.wire.properties import (
    BORN_TIMESTAMP,
    DELAY,
    KEYS,
    ORIGIN_MESSAGE_ID,
    REAL_TOPIC,
    RECONSUME_TIME,
    RETRY_TOPIC,
    TAGS,
    UNIQ_KEY,
    Header,
    Headers,
    count_property,
    integer_property,
    text_property,
    user_headers,
)
from reconsume.delay_levels.wire.send_back_copy import Position, Stored, topic_of

logger = SafeLogger(__name__)

T = TypeVar("T")


class lazy(Generic[T]):  # noqa: N801 - used as `property` is
    """A property that is computed once, without a lock; concurrent readers get equal values.

    `functools.cached_property` of Python 3.11 takes a lock that all objects of a class share, so listener threads wait
    for each other. Remove when Python 3.12 is the oldest that is supported: its `cached_property` has no lock.
    Test: tests/unit/consumers/test_lazy.py.
    """

    def __init__(self, compute: Callable[[Any], T]) -> None:
        self._compute = compute
        self._name = compute.__name__
        self.__doc__ = compute.__doc__

    @overload
    def __get__(self, instance: None, owner: type) -> Self: ...
    @overload
    def __get__(self, instance: object, owner: type) -> T: ...
    def __get__(self, instance: object | None, owner: type) -> Self | T:
        """Compute the value and store it in the object, which then answers by itself."""
        if instance is None:
            return self
        value = instance.__dict__[self._name] = self._compute(instance)
        return value


class MessageQueue(NamedTuple):
    """RocketMQ's name for a partition; `topic` is the RocketMQ name, `%RETRY%<group>` for a retry."""

    topic: str
    partition: int


class KafkaRecord(NamedTuple):
    """The place and time of the polled record; `timestamp` in milliseconds."""

    topic: str
    partition: int
    offset: int
    timestamp: int


class Message:
    """One message.

    Attributes:
        key: the key as bytes, or None.
        body: the value as bytes; None is a tombstone.
        kafka: the place and time of this copy.
        topic: the origin topic, also on a retry (RocketMQ: TN-02).
        reconsume_times: how often the message was sent back.
    """

    def __init__(
        self, polled: PolledRecord, retry_topic: str, locally_failed: int = 0, namespace_prefix: str = ""
    ) -> None:
        self._polled = polled
        self._retry_topic = retry_topic
        self._locally_failed = locally_failed
        self._namespace_prefix = namespace_prefix
        self._offset = polled.offset() or 0
        self._size = len(polled)

    @property
    def offset(self) -> int:
        """The offset of this copy. Read-only, because it decides what is committed."""
        return self._offset

    @property
    def size(self) -> int:
        """The size of the body, in bytes."""
        return self._size

    @property
    def key(self) -> bytes | None:
        """The key, as it was produced."""
        return self._polled.key()

    @property
    def body(self) -> bytes | None:
        """The body, as it was produced."""
        return self._polled.value()

    @lazy
    def kafka(self) -> KafkaRecord:
        """The place and time of this copy."""
        polled = self._polled
        return KafkaRecord(polled.topic() or "", polled.partition() or 0, self.offset, polled.timestamp()[1])

    @property
    def is_retry(self) -> bool:
        """Whether the message came from this group's own retry topic."""
        return self.kafka.topic == self._retry_topic

    @property
    def all_headers(self) -> list[Header]:
        """The record's headers as polled, including reconsume's; a new list each time."""
        return list(self._headers)

    @lazy
    def _headers(self) -> list[Header]:
        return shared_headers_of(self._polled)

    @lazy
    def headers(self) -> list[Header]:
        """The user's headers, with order, duplicates and None values as produced."""
        return user_headers(self._headers)

    @lazy
    def properties(self) -> dict[str, str]:
        """All text headers by name, including RocketMQ's; the last one of duplicates."""
        found = {}
        for name, value in self._headers:
            if value is not None:
                found[name] = value.decode(errors="replace")
        return found

    @lazy
    def stored(self) -> Stored:
        """The history in the record's headers; a malformed count is taken as 0 and logged."""
        position = Position(*self.kafka[:3])
        if not self.is_retry:
            return Stored.first_copy(position, self.kafka.timestamp)
        return history_of_retry(self._headers, position, self.kafka.timestamp)

    @property
    def topic(self) -> str:
        """The origin topic, without its namespace (RocketMQ: TN-10).

        A retry without an origin shows the name of the topic that it was polled from (RocketMQ: TN-03).
        """
        topic = self.kafka.topic if not self.is_retry else self.stored.origin_topic or self.kafka.topic
        return topic.removeprefix(self._namespace_prefix)

    @property
    def origin(self) -> Position:
        """Topic, partition and offset of the first copy; of this one if the origin is unknown."""
        try:
            return Position.parse(self.stored.origin_message_id)
        except MalformedProperty:
            return Position(*self.kafka[:3])

    @property
    def reconsume_times(self) -> int:
        """How often the message was sent back, including failed send-backs (RocketMQ: CC-11)."""
        return (self.stored.reconsume_times if self.is_retry else 0) + self._locally_failed

    @property
    def delay_time_level(self) -> int:
        """The level that the message waited on; 0 without one.

        A record of an ordinary topic waited only if it was sent with a delay (RocketMQ: SC-06), which the target in
        its headers shows; otherwise its `DELAY` is the remainder of a copied record.
        """
        if not self.is_retry and self._text(REAL_TOPIC) != self.kafka.topic:
            return 0
        try:
            return integer_property(self._headers, DELAY) or 0
        except MalformedProperty:
            return 0

    @property
    def msg_id(self) -> str:
        """The id, the same over all retries: the producer's UNIQ_KEY, else the origin message id (RocketMQ: SB-12)."""
        return self._text(UNIQ_KEY) or self.stored.origin_message_id

    @property
    def tags(self) -> str | None:
        """The producer's tag."""
        return self._text(TAGS)

    @property
    def keys(self) -> str | None:
        """The producer's keys, separated by spaces."""
        return self._text(KEYS)

    @property
    def born_timestamp(self) -> int:
        """When the first copy was published, in milliseconds."""
        return self.stored.born_ms if self.is_retry else self.kafka.timestamp

    def failed_again_locally(self, times: int = 1) -> Message:
        """Return the same message for another local try; its stored count stays (RocketMQ: BR-18, CC-11)."""
        return Message(self._polled, self._retry_topic, self._locally_failed + times, self._namespace_prefix)

    def _text(self, name: str) -> str | None:
        return _text(self._headers, name)

    def __repr__(self) -> str:
        return f"<Message {self.kafka.topic}-{self.kafka.partition}@{self.kafka.offset}>"


def history_of_retry(headers: Headers, position: Position, timestamp_ms: int) -> Stored:
    """Return the history of a record of a retry topic.

    A malformed header is logged and taken as missing, so that a record of another program stops no consumer.
    """
    try:
        return Stored.of_retry(headers, position, timestamp_ms)
    except MalformedProperty as error:
        logger.warning("%s: %s; taken as missing", position, error)
        identity = _text(headers, ORIGIN_MESSAGE_ID) or str(position)
        return Stored(
            _text(headers, RETRY_TOPIC) or topic_of(identity) or position.topic,
            identity,
            _count(headers, RECONSUME_TIME, 0),
            _count(headers, BORN_TIMESTAMP, max(0, timestamp_ms)),
        )


def _text(headers: Headers, name: str) -> str | None:
    try:
        return text_property(headers, name)
    except MalformedProperty:
        return None


def _count(headers: Headers, name: str, otherwise: int) -> int:
    try:
        count = count_property(headers, name)
    except MalformedProperty:
        return otherwise
    return otherwise if count is None else count
