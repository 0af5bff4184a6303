"""DelayProducer: sends messages for later delivery, or at once."""

from __future__ import annotations

import secrets
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from types import NoneType
from typing import Any, Final, Self

from reconsume.bridge.groups.groups import Groups
from reconsume.bridge.groups.groups_follower import GroupsFollower
from reconsume.bridge.kafka.admin import KafkaAdmin
from reconsume.bridge.kafka.client_settings import producer_settings
from reconsume.bridge.kafka.clients import clock_of
from reconsume.bridge.process.user_callbacks import with_guarded
from reconsume.bridge.topics.existing_topics import ExistingTopics
from reconsume.bridge.writing.lane_partitions import ANY_PARTITION, LanePartitions
from reconsume.consumers.delayed.acknowledged_producer import AcknowledgedProducer
from reconsume.consumers.delayed.delay_wish import DelayWish
from reconsume.consumers.group_settings import client_conf
from reconsume.consumers.message import MessageQueue
from reconsume.delay_levels.errors import IllegalSetting, KafkaNotReachable, ReconsumeError, TopicNotReady
from reconsume.delay_levels.foreign_values import (
    check_range,
    check_types,
    checked_headers,
    of_type,
    type_name,
)
from reconsume.delay_levels.rules.levels import DelayLevels
from reconsume.delay_levels.wire.allowed_topics import require_allowed
from reconsume.delay_levels.wire.names import TopicNames
from reconsume.delay_levels.wire.properties import (
    BORN_TIMESTAMP,
    DELAY,
    KEYS,
    REAL_QID,
    REAL_TOPIC,
    TAGS,
    TIMER_DEL_UNIQKEY,
    TIMER_DELAY_MS,
    TIMER_DELIVER_MS,
    UNIQ_KEY,
    Header,
    is_ours,
)
from reconsume.delay_levels.wire.send_back_copy import Position
from reconsume.delay_levels.wire.timer import is_delayed_message
from reconsume.delay_levels.wire.withdrawals import RANDOM_BYTES, check_remembered, make_uniq_key, withdrawable_until_ms

MessageQueueSelector = Callable[[Sequence[MessageQueue], Any], MessageQueue]
"""Chooses one of a topic's partitions for an argument, such as an order number."""

_Given = list[tuple[str, str | bytes | None]]
_LOADED_SECONDS: Final = 15.0
_MAX_RETRIES: Final = 100
_LONGEST_MS: Final = 2**31 - 1


@dataclass(frozen=True, slots=True)
class SendResult:
    """The place where a message was stored.

    Attributes:
        msg_id: the message's UNIQ_KEY; `cancel` takes it, and consumers see it as `msg_id`.
        topic: the topic where consumers read the message.
        stored: its current place, in `topic` or on a delay topic.
    """

    msg_id: str
    topic: str
    stored: Position


class DelayProducer:
    """Sends messages for later delivery; `send` returns when the brokers have acknowledged the message.

    The schedulers deliver delayed messages, and only to topics that match their setting `allowed_real_topics`, which is
    empty by default. They publish it when they start, and this producer refuses a delayed message for any other topic.
    Safe to use from several threads. Create one in each process, after a fork.

    Args:
        bootstrap_servers: `host:port`, comma-separated.
        conf: librdkafka settings, passed through.
        send_msg_timeout: timeout of one try (RocketMQ: `sendMsgTimeout`).
        retry_times_when_send_failed: maximum of further tries. They never store a message twice.
        delay_levels: a level table for this process alone, such as `"1s 5s 10s"`; None uses the cluster's.
        topic_prefix: the prefix of the installation's topics.

    Raises:
        IllegalSetting: an invalid argument; the message names it and the allowed values.
    """

    def __init__(
        self,
        *,
        bootstrap_servers: str = "localhost:9092",
        conf: Mapping[str, Any] | None = None,
        send_msg_timeout: timedelta = timedelta(seconds=3),
        retry_times_when_send_failed: int = 2,
        delay_levels: str | None = None,
        topic_prefix: str = "reconsume.",
    ) -> None:
        check_types(locals(), bootstrap_servers=str, conf=(Mapping, NoneType), send_msg_timeout=timedelta)
        retries = check_range("retry_times_when_send_failed", retry_times_when_send_failed, 0, _MAX_RETRIES)
        if send_msg_timeout < timedelta(milliseconds=100):
            raise IllegalSetting(f"send_msg_timeout must be at least 100 ms, not {send_msg_timeout}")
        # One produce call with the timeout of all tries: librdkafka repeats it under the same sequence number, so
        # brokers recognise a copy. A second produce call would get a new number.
        patience = int(send_msg_timeout / timedelta(milliseconds=1)) * (1 + retries)
        if patience > _LONGEST_MS:
            raise IllegalSetting(f"send_msg_timeout {send_msg_timeout}: all tries must take 24 days or less")
        self._names = TopicNames(topic_prefix)
        self._own_table = None if delay_levels is None else DelayLevels.parse(delay_levels)
        self._base = with_guarded(client_conf(conf, bootstrap_servers), ("error_cb", "stats_cb", "throttle_cb"))
        self._clock = clock_of(self._base)
        self._client_id = str(self._base.get("client.id", "reconsume-delay-producer"))
        self._existing = ExistingTopics(KafkaAdmin(self._base, self._client_id))
        # A missing topic is told before the message times out, which it may also do after it was stored.
        base = {"topic.metadata.propagation.max.ms": patience // 2} | self._base
        settings = producer_settings(base, self._client_id) | {"message.timeout.ms": patience, "linger.ms": 0}
        self._producer = AcknowledgedProducer(settings, patience / 1000)
        self._follower: GroupsFollower | None = None
        self._lanes = LanePartitions(lambda: Groups() if self._follower is None else self._follower.groups)
        self._lock = threading.Lock()

    def send(
        self,
        topic: str,
        body: bytes | None,
        *,
        key: bytes | None = None,
        headers: Sequence[Header] = (),
        tags: str | None = None,
        keys: str | None = None,
        delay_level: int | None = None,
        deliver_at: datetime | int | None = None,
        delay: timedelta | None = None,
        selector: MessageQueueSelector | None = None,
        arg: Any = None,
    ) -> SendResult:
        """Send one message; without a delay it goes to its topic at once.

        Args:
            topic: the topic where consumers read the message.
            body: the value; None is a tombstone.
            key: decides on the partition of `topic`, as with a Java producer, unless a selector does.
            headers: consumers get them unchanged.
            tags: RocketMQ's tag, for consumers that filter.
            keys: RocketMQ's keys, separated by spaces.
            delay_level: wait on this level; beyond the table the highest (RocketMQ: DP-01).
            deliver_at: wait until a moment with a time zone, or milliseconds since the epoch; at most 40 days. A moment
                in the past means at once.
            delay: wait for this time after the brokers have stored it; at most 40 days.
            selector: called with all partitions of `topic` and with `arg`; returns the one to send to.
            arg: passed to the selector. Messages in a partition that are not delayed keep the order of their sending.

        Raises:
            IllegalSetting: an invalid argument, such as a topic of reconsume.
            TopicNotAllowed: the message is delayed, and the schedulers do not deliver to this topic.
            TopicNotReady: the topic, or a topic of reconsume, does not exist.
            KafkaNotReachable: no acknowledgement in time; the message may have been stored.
            KafkaRefused: the cluster refused.
        """
        check_types(
            locals(),
            body=(bytes, str, NoneType),
            key=(bytes, str, NoneType),
            tags=(str, NoneType),
            keys=(str, NoneType),
        )
        self._producer.require_open()
        now = self._clock()
        wish = DelayWish.of(delay_level, deliver_at, delay, now)
        self._check_target(topic)
        properties = {name: value for name, value in ((TAGS, tags), (KEYS, keys)) if value is not None}
        own = _checked_headers(headers, properties)
        partition = ANY_PARTITION if selector is None else self._select(topic, selector, arg)
        first, due_ms = topic, int(now)
        if wish.waits:
            first, count, due_ms, asking = self._lane(wish, topic, partition, due_ms)
            encoded = key.encode() if isinstance(key, str) else key
            partition = ANY_PARTITION if wish.level is None else self._lanes.choose(first, count, topic, encoded)
            properties |= asking
        msg_id = make_uniq_key(due_ms, secrets.token_bytes(RANDOM_BYTES))
        stored = self._produce(first, partition, key, body, [*own, *properties.items(), (UNIQ_KEY, msg_id)])
        return SendResult(msg_id, topic, stored)

    def cancel(self, msg_id: str) -> None:
        """Withdraw a waiting message by the id that `send` returned; any process may do this.

        If this returns at least a second before the message is due, the message is not delivered. After that it may
        be. Unknown ids are accepted too (RocketMQ: TM-15).

        Raises:
            IllegalSetting: not an id of `send`, the message was due already (RocketMQ: TM-14), or it is due in over
                40 days.
            TopicNotReady: the CANCEL topic is missing.
            KafkaNotReachable: no acknowledgement in time; try again, because the message may not be withdrawn.
            KafkaRefused: the cluster refused.
        """
        due_ms = withdrawable_until_ms(of_type(msg_id, "msg_id", str))
        if due_ms <= self._clock():
            raise IllegalSetting(f"message {msg_id} was due already, so it cannot be withdrawn")
        self._producer.require_open()
        check_remembered(f"message {msg_id}", due_ms, self._clock())
        topic = self._names.cancel
        self._require(topic, "create it: reconsume topics apply")
        asking: _Given = [(TIMER_DEL_UNIQKEY, msg_id), (TIMER_DELIVER_MS, str(due_ms))]
        self._produce(topic, ANY_PARTITION, msg_id.encode(), None, asking)

    def close(self) -> None:
        """Close the connections; every `send` has returned before. In a forked child it does nothing.

        Raises:
            IllegalSetting: called from a callback of `conf`.
        """
        if self._producer.is_parents:
            return
        self._producer.stop()
        with self._lock:
            if self._follower is not None:
                self._follower.close()
        self._producer.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _lane(self, wish: DelayWish, topic: str, partition: int, now: int) -> tuple[str, int, int, dict[str, str]]:
        """Return the message's first topic, its number of partitions, the due moment, and the headers.

        Messages for a moment go through the inbox, which reveals a forbidden target at once, not after the first lane.
        """
        remedy = f"{self._names.remedy_if_missing(topic)}, and let it match allowed_real_topics"
        self._require(topic, f"the target of a delayed message must exist: {remedy}")
        groups = self._groups()
        require_allowed(topic, groups.allowed_real_topics)
        asking = {REAL_TOPIC: topic, BORN_TIMESTAMP: str(now)}
        if partition >= 0:
            asking[REAL_QID] = str(partition)
        if wish.level is not None:
            table = self._own_table or groups.table
            level = table.capped(wish.level)
            lane, due_ms = self._names.delay(table.delay_ms(level)), now + table.delay_ms(level)
            asking[DELAY] = str(level)
        elif wish.delay_ms is not None:
            lane, due_ms = self._names.send_back, now + wish.delay_ms
            asking[TIMER_DELAY_MS] = str(wish.delay_ms)
        else:
            lane, due_ms = self._names.send_back, wish.deliver_ms or 0
            asking[TIMER_DELIVER_MS] = str(due_ms)
        own = "" if self._own_table is None else f"RECONSUME_MESSAGE_DELAY_LEVEL='{self._own_table}' "
        return lane, self._require(lane, f"run: {own}reconsume topics apply"), due_ms, asking

    def _groups(self) -> Groups:
        """Return the contents of GROUPS; the first delayed message starts to follow the topic."""
        with self._lock:
            self._producer.require_open()  # nobody would close a follower that starts now
            if self._follower is None:
                self._follower = GroupsFollower(self._base, self._names.groups, Groups())
                self._follower.start()
        if not self._follower.wait_until_loaded(self._producer.stopping, _LOADED_SECONDS):
            why = f": {self._follower.trouble}" if self._follower.trouble else ""
            raise KafkaNotReachable(f"topic {self._names.groups} was not read within 15 s{why}")
        return self._follower.groups

    def _check_target(self, topic: str) -> None:
        if self._names.kafka_topic(topic) != topic or not is_delayed_message(topic):
            raise IllegalSetting(f"topic {topic!r}: only schedulers write to retry and dead-letter topics")
        if topic.startswith(self._names.prefix):
            raise IllegalSetting(f"topic {topic!r} is one of reconsume's own; send to a topic of yours")

    def _select(self, topic: str, selector: MessageQueueSelector, arg: Any) -> int:
        remedy = self._names.remedy_if_missing(topic)
        count = self._require(topic, f"a selector needs its partitions: {remedy}")
        queues = tuple(MessageQueue(topic, partition) for partition in range(count))
        if not callable(selector):
            raise IllegalSetting(f"selector must be a function, got {type_name(type(selector))}")
        chosen = selector(queues, arg)
        if not isinstance(chosen, MessageQueue) or chosen not in queues:
            raise IllegalSetting(
                f"the selector returned {chosen!r}; it must return one of the {count} queues of {topic}"
            )
        return queues.index(chosen)

    def _require(self, topic: str, why: str) -> int:
        """Return the topic's number of partitions; a missing topic is looked up again for the next message."""
        try:
            return self._existing.require(topic)
        except TopicNotReady:
            self._existing.forget(topic)
            raise TopicNotReady(f"topic {topic} does not exist ({why})") from None

    def _produce(self, topic: str, partition: int, key: bytes | None, value: bytes | None, headers: _Given) -> Position:
        try:
            or_any = topic.startswith(self._names.prefix)  # only the partitions of users' topics have a meaning
            return self._producer.store(topic, partition, key, value, headers, or_any=or_any)
        except ReconsumeError:
            self._existing.forget(topic)
            raise


def _checked_headers(headers: Sequence[Header], properties: Mapping[str, str]) -> _Given:
    checked = checked_headers(headers)
    for name, _ in checked:
        if is_ours(name) or name == UNIQ_KEY or name in properties:
            raise IllegalSetting(f"header {name!r} is written by the producer itself; leave it out of headers")
    return checked
