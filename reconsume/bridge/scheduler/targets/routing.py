"""The record to write for a due one: its delivery, the copy of a send-back, or a quarantined record."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final, NamedTuple

from reconsume.bridge.groups.groups import Groups, SubscriptionGroupConfig
from reconsume.bridge.kafka.partitioning import choose_partition
from reconsume.bridge.librdkafka.undecodable import headers_of
from reconsume.bridge.process.polled_records import PolledRecord, place_of, stored_ms
from reconsume.bridge.scheduler.targets.targets import Target, Targets, Undeliverable
from reconsume.bridge.scheduler.targets.timers import Timers
from reconsume.bridge.writing.lane_partitions import ANY_PARTITION
from reconsume.delay_levels.errors import IllegalName, MalformedProperty, SubscriptionGroupNotExist
from reconsume.delay_levels.wire.inbox import inbox_request
from reconsume.delay_levels.wire.names import TopicNames, prefix_and_group
from reconsume.delay_levels.wire.properties import REAL_QID, REAL_TOPIC, UNIQ_KEY, Headers, text_property
from reconsume.delay_levels.wire.quarantine import quarantine_headers
from reconsume.delay_levels.wire.send_back_copy import Position, send_back_copy
from reconsume.delay_levels.wire.timer import delayed_copy, deliver_ms_of, is_delayed_message, is_resend, rolled
from reconsume.delay_levels.wire.withdrawals import withdrawal_id


class Delivery(NamedTuple):
    """One record to produce.

    Attributes:
        topic: the Kafka topic.
        partition: -1 lets the partitioner choose by key, as a Java client does.
        key: the key; for a withdrawn message, which is not written, the id of its withdrawal.
        headers: the headers to write.
        outcome: `delivered`, `dead_lettered`, `sent_back`, `rolled` (to the next lane), `parked`, `quarantined`, or one
            of `UNWRITTEN`: `dropped`, `cancelled`.
        group: the target consumer group; empty if there is none.
    """

    topic: str
    partition: int
    key: bytes | None
    value: bytes | None
    headers: Headers
    outcome: str
    group: str


UNWRITTEN: Final = frozenset({"dropped", "cancelled"})
"""Outcomes of records that end here: their offsets are committed and nothing is written."""
_new_tuple: Final = tuple.__new__
_OUTCOMES: Final = {"retry": "delivered", "topic": "delivered", "dlq": "dead_lettered"}


@dataclass(frozen=True, slots=True)
class Router:
    """Decides for each due record.

    Args:
        names: the installation's topics.
        targets: finds and creates target topics.
        groups: the groups as known now.
        timers: state of delayed messages.
    """

    names: TopicNames
    targets: Targets
    groups: Callable[[], Groups]
    timers: Timers

    def meet(self, messages: Callable[[], Iterable[PolledRecord]]) -> None:
        """Begin a batch: its unknown targets are looked up, and created, together."""
        self.targets.expect(lambda: (_aim(headers_of(message))[0] for message in messages()))

    def route(self, messages: Iterable[PolledRecord], batch: list[Delivery], topic: str) -> None:
        """Append the deliveries of due records to a batch; undeliverable records go to the quarantine.

        Records routed before an error stay in the batch.

        Args:
            messages: due records of the same topic.
            batch: the list to append to.
            topic: their topic.

        Raises:
            KafkaNotReachable: no broker answered the look-up of a target; nothing was decided.
            CancelsNotRead: the record is a delayed message that may be withdrawn.
        """
        # Records of a parked topic are not parked again: they would go behind later ones.
        decide = (
            self._take_in
            if topic == self.names.send_back
            else partial(self._deliver, known={} if self.names.is_parked(topic) else self.groups().by_name)
        )
        for message in messages:
            headers = headers_of(message)
            try:
                batch.append(decide(message, headers))
            except (Undeliverable, MalformedProperty, IllegalName, SubscriptionGroupNotExist) as error:
                batch.append(self.quarantine(message, str(error)))

    def route_plain(self, messages: Iterable[PolledRecord], topic: str) -> list[Delivery]:
        """Return the deliveries of the first records that need no look-up, no decision and no clock.

        These are records of a group that is not paused, for a known topic.

        Args:
            messages: due records of the same topic.
            topic: their topic.
        """
        batch: list[Delivery] = []
        if topic == self.names.send_back or self.names.is_parked(topic):
            return batch
        groups, known, add = self.groups().by_name, self.targets.known, batch.append
        last, target, outcome = None, None, ""
        for message in messages:
            headers = headers_of(message)
            # _aim(), inlined in a hot path
            for name, value in reversed(headers):
                if name == REAL_TOPIC:
                    real_topic = value
                    break
            else:
                break
            if real_topic != last or target is None:
                target = known(real_topic)
                if target is None or target.kind == "topic":
                    break
                group = groups.get(target.group)
                if target.kind == "retry" and group is not None and group.retry_paused:
                    break
                last, outcome = real_topic, _OUTCOMES[target.kind]
            key = message.key()
            partition = 0 if target.partitions == 1 else _partition(target, key, _aim(headers)[1])
            add(_new_tuple(Delivery, (target.topic, partition, key, message.value(), headers, outcome, target.group)))
        return batch

    def quarantine(self, message: PolledRecord, reason: str) -> Delivery:
        """Return the unchanged record with the reason, for the quarantine."""
        headers = headers_of(message)
        kept = quarantine_headers(headers, reason, _position(message), message.timestamp()[1])
        _, group = target_of(headers)
        return Delivery(
            self.names.quarantine, ANY_PARTITION, message.key(), message.value(), kept, "quarantined", group
        )

    def _deliver(
        self, message: PolledRecord, headers: Headers, known: Mapping[str, SubscriptionGroupConfig]
    ) -> Delivery:
        real_topic, real_qid = _aim(headers)
        if real_topic is None:
            raise Undeliverable("header REAL_TOPIC is missing, so the target of this record is unknown")
        target = self.targets.find(real_topic)
        key = message.key()
        if target.kind == "retry" and (group := known.get(target.group)) is not None and group.retry_paused:
            topic = self.targets.parked(target.group)
            return Delivery(topic, 0, key, message.value(), headers, "parked", target.group)
        partition = 0 if target.partitions == 1 else _partition(target, key, real_qid)
        if target.kind == "topic" and (other := self._not_yet(message, headers, target.topic)) is not None:
            return other
        # A named tuple's own constructor takes three times as long, and this runs for every record.
        return _new_tuple(
            Delivery, (target.topic, partition, key, message.value(), headers, _OUTCOMES[target.kind], target.group)
        )

    def _not_yet(self, message: PolledRecord, headers: Headers, topic: str) -> Delivery | None:
        """Return the delivery of a delayed message that does not leave now: withdrawn, or for the next lane."""
        now, cancels = self.timers.clock(), self.timers.cancels
        deliver_ms = deliver_ms_of(headers, now)
        waits = deliver_ms is not None and deliver_ms > now
        # A withdrawal that came too late must not drop the resend of its message's dead letter.
        uniq_key = None if is_resend(headers) else _uniq_key(headers)
        if uniq_key is not None:
            if not waits:
                cancels.require(now if deliver_ms is None else deliver_ms)
            if (withdrawal := withdrawal_id(uniq_key)) in cancels:
                return Delivery("", ANY_PARTITION, withdrawal, None, [], "cancelled", "")
        if deliver_ms is None or not waits:
            return None
        lane = self.timers.next_lane(deliver_ms, now)
        return self._to_lane(lane, topic, message, rolled(headers), "rolled")

    def _take_in(self, message: PolledRecord, headers: Headers) -> Delivery:
        """Handle a record of the inbox: a delayed message if REAL_TOPIC is an ordinary topic, else a send-back."""
        real_topic = text_property(headers, REAL_TOPIC)
        if real_topic is None or not is_delayed_message(real_topic):
            return self._send_back(message, headers)
        self.targets.find(real_topic.encode())  # forbidden targets are refused now, not in forty days
        position, stored, table = _position(message), int(stored_ms(message, self.timers.clock)), self.groups().table
        deliver_ms, lane, kept = delayed_copy(headers, position, stored, table, self.names)
        if deliver_ms is not None:
            lane = self.timers.next_lane(deliver_ms, self.timers.clock())
        return self._to_lane(lane, real_topic, message, kept, "rolled")

    def _to_lane(
        self, lane: str, target: str, message: PolledRecord, headers: Headers, outcome: str, group: str = ""
    ) -> Delivery:
        key = message.key()
        partition = self.targets.lane_partition(lane, target, key)
        return Delivery(lane, partition, key, message.value(), headers, outcome, group)

    def committed(self, batch: Sequence[Delivery]) -> None:
        """Note a committed batch: withdrawals of its dropped messages are done."""
        self.timers.cancels.met([one.key for one in batch if one.outcome == "cancelled" and one.key is not None])

    def forget(self) -> None:
        """Look up all topics again: a known one is gone."""
        self.targets.forget()
        self.timers.lanes.forget()

    def _send_back(self, message: PolledRecord, headers: Headers) -> Delivery:
        """Apply the send-back rule for a plain client; even a dead letter goes through DELAY.0s."""
        request = inbox_request(headers, _position(message), message.timestamp()[1])
        self.names.retry(request.group)  # a group without a legal topic is refused now, not after its delay
        groups = self.groups()
        config = groups.find(request.group)
        if config.retry_queue_nums <= 0:
            return Delivery("", ANY_PARTITION, None, None, [], "dropped", request.group)
        copy = send_back_copy(
            request,
            self.names,
            config.policy(groups.table),
            group_max_reconsume_times=config.retry_max_times,
            real_qid=choose_partition(message.key(), config.retry_queue_nums),
            failed_ms=message.timestamp()[1],
        )
        return self._to_lane(copy.topic, request.group, message, copy.headers, "sent_back", request.group)


def _aim(headers: Headers) -> tuple[bytes | None, bytes | None]:
    """Return REAL_TOPIC and REAL_QID. reconsume's headers are at the end, and of duplicates the last counts."""
    real_qid = None
    for name, value in reversed(headers):
        if name == REAL_TOPIC:
            return value, real_qid
        if name == REAL_QID and real_qid is None:
            real_qid = value
    return None, real_qid


def target_of(headers: Headers) -> tuple[str, str]:
    """Return REAL_TOPIC and the group that it names; empty if it is missing or malformed, or names no group."""
    try:
        real_topic = text_property(headers, REAL_TOPIC) or ""
    except MalformedProperty:
        return "", ""
    return real_topic, prefix_and_group(real_topic)[1]


def _uniq_key(headers: Headers) -> str | None:
    """Return the id for a withdrawal; None if it is not a text."""
    try:
        return text_property(headers, UNIQ_KEY)
    except MalformedProperty:
        return None


def _partition(target: Target, key: bytes | None, real_qid: bytes | None) -> int:
    """Return REAL_QID if the topic has that partition (RocketMQ's T-17); else choose by key."""
    if real_qid is not None and real_qid.isdigit() and len(real_qid) < 10 and int(real_qid) < target.partitions:  # noqa: PLR2004
        return int(real_qid)
    return choose_partition(key, target.partitions)


def _position(message: PolledRecord) -> Position:
    return Position(*place_of(message), message.offset() or 0)
