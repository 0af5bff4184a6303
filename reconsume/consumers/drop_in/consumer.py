"""A `confluent_kafka.Consumer` with RocketMQ's send-back, for programs with their own poll loop."""

from __future__ import annotations

import threading
import time
import weakref
from collections.abc import Callable, Collection, Sequence
from contextlib import ExitStack, suppress
from typing import Any, Final

from confluent_kafka import Consumer as KafkaConsumer
from confluent_kafka import KafkaError, KafkaException, TopicPartition
from confluent_kafka import Message as KafkaMessage

from reconsume.bridge.kafka.admin import Commit
from reconsume.bridge.kafka.clients import DerivedConsumer
from reconsume.bridge.librdkafka.callback_errors import catchable
from reconsume.bridge.librdkafka.membership import take_assignment
from reconsume.bridge.reading.record_reader import read_again
from reconsume.bridge.reading.stale_records import StaleRecords
from reconsume.consumers.drop_in.lost_brokers import LostBrokers
from reconsume.consumers.drop_in.ownership import Ownership
from reconsume.consumers.drop_in.retry_message import GivenRetries, RetryMessage, as_polled, listed, storable
from reconsume.consumers.drop_in.retry_start import RetryStarts
from reconsume.consumers.drop_in.send_back_client import SendBackClient, as_cause, failures_of
from reconsume.consumers.drop_in.settings import DropInSettings
from reconsume.consumers.listeners.dead_letter_on import DEAD_LETTER_LEVEL, is_listed
from reconsume.consumers.message import Message
from reconsume.delay_levels.errors import IllegalSetting, PartitionLost
from reconsume.delay_levels.foreign_values import of_type, whole_number
from reconsume.delay_levels.wire.send_back_copy import Position

_Callback = Callable[[KafkaConsumer, list[TopicPartition]], object]
_PREPARE_SECONDS: Final = 5.0
_NO_TOPIC: Final = (KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError._UNKNOWN_TOPIC)

_topic = KafkaMessage.topic


class Consumer(DerivedConsumer):
    """A `confluent_kafka.Consumer` that can send failed messages back and gets them again later.

    Construct and use it like confluent-kafka's. `subscribe` adds the group's retry topic. A retry shows its origin
    topic as `topic()`, and `reconsume_times(message)` returns how often it was sent back. In assignments, rebalance
    callbacks and offsets the retry topic appears under its own name, as one more topic of the group.

    Args:
        max_reconsume_times: how often a message may be sent back; None takes the group's `retryMaxTimes` (16).
        delay_levels: a level table for this process alone, such as `"1s 5s 10s"`, whose delay topics `subscribe`
            creates; None uses the cluster's.
        topic_prefix: the prefix of the installation's topics.
        exactly_once: `send_message_back` commits the message's offset too, both in one transaction.
        dead_letter_on: exceptions that are not worth a retry, such as `(ValueError,)`. If the cause is one of them, or
            was raised `from` one, the message is a dead letter at once. Subclasses count. A requested level wins.

    Raises:
        IllegalSetting: an invalid argument or setting; the message names it and the allowed values.
    """

    # The cost per message limits the rate of a poll loop: these aliases are cheaper than `super()`. Ordinary messages
    # stay untouched: looking at each in Python, not in one pass of C, costs a tenth (benchmarks/consumers.py).
    _kafka_poll = KafkaConsumer.poll
    _kafka_consume = KafkaConsumer.consume

    def __init__(
        self,
        *args: Any,
        max_reconsume_times: int | None = None,
        delay_levels: str | None = None,
        topic_prefix: str = "reconsume.",
        exactly_once: bool = False,
        dead_letter_on: Collection[type[BaseException]] = (),
        **kwargs: Any,
    ) -> None:
        settings = DropInSettings.of(args, kwargs, locals())
        self._closing = threading.Event()
        super().__init__(LostBrokers(settings.conf, self._closing).settings)
        self._settings = settings
        self._retry_topic = settings.retry_topic
        self._client = SendBackClient(settings)
        # confluent-kafka's consumer ends with its last reference, and so must ours.
        self._at_last = weakref.finalize(self, self._client.close_in_a_thread)
        self._at_last.atexit = False
        self._changed_assignment = False
        self._ownership = Ownership()
        self._stale_records = StaleRecords(super().seek, from_end=not settings.starts_at_beginning)
        self._unchecked = self._stale_records.unchecked
        self._retries = GivenRetries(self._retry_topic)
        look_ups = super().committed, super().offsets_for_times, super().seek
        self._retry_starts = RetryStarts(self._retry_topic, *look_ups, self._closing)
        self._refusals, self._unconfirmed = self._retry_starts.refusals, self._retry_starts.unconfirmed

    @property
    def retry_topic(self) -> str:
        """Return the Kafka topic of `%RETRY%<group>`."""
        return self._retry_topic

    def subscribe(
        self,
        topics: list[str],
        on_assign: _Callback | None = None,
        on_revoke: _Callback | None = None,
        on_lost: _Callback | None = None,
    ) -> None:
        """Subscribe as in `confluent_kafka`, and to the retry topic (RocketMQ: TN-01).

        A missing retry topic is created if this client has the right. This takes up to 5 s if no broker answers, and
        continues in the background.

        Raises:
            IllegalSetting: one of reconsume's own topics, such as a delay topic.
            KafkaRefused: the group's `consumeEnable` is false.
            SubscriptionGroupNotExist: the group must be registered first.
            TopicNotReady: the delay topics of `delay_levels` do not exist and this client may not create them.
        """
        callbacks = {"on_assign": on_assign, "on_revoke": on_revoke, "on_lost": on_lost}
        if isinstance(topics, list) and topics:
            for topic in topics:
                if of_type(topic, "each of topics", str) != self._retry_topic:
                    self._settings.names.check_consumable(topic)
            self._client.prepare(_PREPARE_SECONDS)
            if self._retry_topic not in topics:
                topics = [*topics, self._retry_topic]
            callbacks["on_assign"] = self._on_assign(on_assign)
        given: Any = {name: catchable(one) for name, one in callbacks.items() if one is not None}
        super().subscribe(topics, **given)

    def poll(self, timeout: float = -1) -> KafkaMessage | None:
        """Poll as in `confluent_kafka`; a retry is a `RetryMessage`.

        Raises:
            KafkaNotReachable: librdkafka has given up looking for brokers (see `LostBrokers`); make another consumer.
        """
        if self._refusals:
            raise self._refusals.pop()
        message = self._kafka_poll(timeout)
        if message is None:
            if self._unchecked:
                self._stale_records.nothing_comes(self)
            return None
        if message.topic() != self._retry_topic and not self._unchecked:
            return message
        deadline = None if timeout is None or timeout < 0 else time.monotonic() + timeout
        while message is not None:
            is_stale = self._unchecked and self._stale_records.is_stale(self, message)
            if not is_stale and (shown := self._show(message)) is not None:
                return shown
            message = self._kafka_poll(-1 if deadline is None else max(0.0, deadline - time.monotonic()))
        return None

    def consume(self, num_messages: int = 1, timeout: float = -1) -> list[KafkaMessage]:
        """Consume as in `confluent_kafka`; retries are `RetryMessage`s.

        If a callback of the program raises, confluent-kafka (2.16, `Consumer_consume`) drops the messages of this
        call, and counts them as returned. In `poll`, no message is lost.
        """
        if self._refusals:
            raise self._refusals.pop()
        messages = self._kafka_consume(num_messages, timeout)
        if not messages and self._unchecked:
            self._stale_records.nothing_comes(self)
        if self._unchecked:
            messages = self._stale_records.without_stale(self, messages)
        if self._retry_topic not in map(_topic, messages):
            return messages
        return [shown for one in messages if (shown := self._show(one)) is not None]

    def _show(self, polled: KafkaMessage) -> KafkaMessage | None:
        """Return a retry under its origin topic; None for the error of a missing retry topic (RocketMQ: TN-09)."""
        if polled.topic() != self._retry_topic:
            return polled
        if (error := polled.error()) is not None:
            self._retry_starts.failed(polled.partition(), error)
            return None if error.code() in _NO_TOPIC else polled
        if self._unconfirmed:
            self._unconfirmed.discard(polled.partition())
        message = RetryMessage(polled, self._retry_topic)
        self._retries.add(message)
        return message

    def send_message_back(
        self,
        message: KafkaMessage | TopicPartition | Sequence[KafkaMessage],
        delay_level: int = 0,
        cause: object = None,
        *,
        ack_index: int | None = None,
    ) -> None:
        """Send a message back; return when the brokers have stored it. Then store or commit its offset as usual.

        This blocks while no broker answers: to keep the partitions meanwhile, raise `max.poll.interval.ms`. With
        `exactly_once` the same transaction commits the offset after the message, so all messages before it in its
        partition must be done.

        Args:
            message: a polled message, or its position, to be read again (RocketMQ: SB-16, BR-09), or a list.
            delay_level: 0 lets the group's levels decide, a higher one is taken as it is, a negative one asks for
                the dead-letter topic.
            cause: the exception, or a text; dead letters show it. Without a level, an exception of `dead_letter_on`
                makes a dead letter.
            ack_index: of a list, the last message that succeeded: those after it are sent back. -1 and None send
                back all (RocketMQ: CC-06, CC-07, CC-08). With `exactly_once` the whole list is committed.

        Raises:
            IllegalSetting: an invalid argument, or the record does not exist.
            SendBackFailed: delay topic and inbox refused it; of a list, `failed` has the indexes of these messages.
            PartitionLost: only with `exactly_once`: the group has rebalanced, and perhaps committed beyond the message;
                nothing was sent, and uncommitted messages are read again.
        """
        given, acknowledged = listed(message, ack_index)
        messages = [self._as_message(one) for one in given]
        why, level = as_cause(cause), whole_number(delay_level, "delay_level")
        if level == 0 and is_listed(cause, self._settings.dead_letter_on):
            level = DEAD_LETTER_LEVEL
        with failures_of(range(acknowledged, len(messages))):
            if self._settings.exactly_once:
                self._send_back_exactly_once(messages, acknowledged, level, why)
            elif failed := messages[acknowledged:]:
                self._client.send_back(failed, level, why)

    def _as_message(self, given: KafkaMessage | TopicPartition) -> Message:
        if isinstance(given, TopicPartition):
            self._retries.check_record(given, super().position)
            position, settings = Position(given.topic, given.partition, given.offset), self._settings
            again = read_again(settings.base, position, settings.group, settings.client_id)
            return Message(again, self._retry_topic)
        of_type(given, "message", KafkaMessage, TopicPartition)
        if (error := given.error()) is not None:
            raise IllegalSetting(
                f"message is an error event and cannot be sent back: {error.str()}; check message.error() first"
            )
        return Message(storable(given), self._retry_topic)

    def _send_back_exactly_once(self, messages: list[Message], acknowledged: int, delay_level: int, why: Any) -> None:
        if not messages:
            return
        polled = [(message.kafka[:2], message.offset) for message in messages]
        ends = {where: offset + 1 for where, offset in sorted(polled)}
        # The program may have committed the successful ones itself.
        unfinished = ends | dict(sorted(polled[acknowledged:], reverse=True))
        offsets = {where: Commit(end, "") for where, end in ends.items()}
        try:
            self._client.send_back_exactly_once(
                messages[acknowledged:], delay_level, why, offsets, lambda: self._ownership.metadata(self, unfinished)
            )
        except PartitionLost:
            self._ownership.come_again(self, dict(sorted(polled, reverse=True)), self._seek)
            raise
        if not self._settings.stores_offsets:
            with suppress(KafkaException):  # another member has the partition now, and knows the commit
                super().store_offsets(offsets=[TopicPartition(*where, end) for where, end in ends.items()])

    def commit(  # type: ignore[override]  # the stub has one overload for each combination
        self,
        message: KafkaMessage | None = None,
        offsets: list[TopicPartition] | None = None,
        asynchronous: bool = True,
    ) -> list[TopicPartition] | None:
        """Commit as in `confluent_kafka`; a retry is committed in the retry topic.

        Raises:
            IllegalSetting: an offset combines a retry's `topic()` with its `offset()`.
        """
        given, settings = self._given(message, offsets), self._settings
        if not given and settings.exactly_once and settings.stores_offsets:
            given["offsets"] = self._stale_records.committable(self)
        return super().commit(**given, asynchronous=asynchronous)  # type: ignore[no-any-return, call-overload]

    def store_offsets(self, message: KafkaMessage | None = None, offsets: list[TopicPartition] | None = None) -> None:
        """Store offsets as in `confluent_kafka`; a retry's offset is stored for the retry topic.

        Raises:
            IllegalSetting: an offset combines a retry's `topic()` with its `offset()`.
        """
        super().store_offsets(**self._given(message, offsets))

    def _given(self, message: KafkaMessage | None, offsets: list[TopicPartition] | None) -> dict[str, Any]:
        given: dict[str, Any] = {} if message is None else {"message": as_polled(message)}
        if offsets is not None:
            self._retries.check(offsets, super().position)
            given["offsets"] = offsets
        return given

    def seek(self, partition: TopicPartition) -> None:
        """Seek as in `confluent_kafka`; to read a retry again, seek to `polled_from(message)`.

        Raises:
            IllegalSetting: it combines a retry's `topic()` with its `offset()`.
        """
        self._retries.check_seek(partition, super().position)
        self._seek(partition)

    def _seek(self, partition: TopicPartition) -> None:
        with self._stale_records.trusted_if_sought(partition):
            super().seek(partition)

    def assign(self, partitions: list[TopicPartition]) -> None:
        """Assign as in `confluent_kafka`; a retry topic without a committed offset starts at its beginning."""
        super().assign(self._started(partitions))
        self._changed_assignment = True

    def incremental_assign(self, partitions: list[TopicPartition]) -> None:
        """Assign more as in `confluent_kafka`; a retry topic without a committed offset starts at its beginning."""
        super().incremental_assign(self._started(partitions))
        self._changed_assignment = True

    def unassign(self) -> None:
        """Unassign as in `confluent_kafka`."""
        super().unassign()
        self._changed_assignment = True

    def incremental_unassign(self, partitions: list[TopicPartition]) -> None:
        """Unassign some as in `confluent_kafka`."""
        super().incremental_unassign(partitions)
        self._changed_assignment = True

    def _started(self, partitions: list[TopicPartition]) -> list[TopicPartition]:
        if self._settings.starts_at_beginning:
            return partitions
        return self._stale_records.begun(self._retry_starts.started(partitions))

    def _on_assign(self, of_user: _Callback | None) -> _Callback:
        def on_assign(consumer: KafkaConsumer, partitions: list[TopicPartition]) -> None:
            wanted = [TopicPartition(one.topic, one.partition) for one in partitions]
            self._changed_assignment = False
            try:
                if of_user is not None:
                    of_user(consumer, partitions)
            finally:
                if not (by_user := self._changed_assignment):
                    (self.incremental_assign if self._settings.cooperative else self.assign)(wanted)
                self._ownership.assigned(wanted)
                if self._closing.is_set():
                    self.pause(wanted)  # nobody gets a message that would come now, and its offset would count
                records, is_checked = self._stale_records, self._settings.exactly_once and not by_user
                (records.assigned if is_checked else records.trust)(wanted)

        return on_assign

    def close(self) -> None:
        """Leave the group and stop, also if a callback of the program raises meanwhile."""
        self._closing.set()
        with ExitStack() as ending:
            for end in (self._client.close, self._at_last.detach, super().close):
                ending.callback(end)
            take_assignment(self, self._kafka_poll)

    def __exit__(self, *_: object) -> None:
        self.close()
