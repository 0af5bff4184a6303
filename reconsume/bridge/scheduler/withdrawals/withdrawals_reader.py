"""Read the requests to withdraw messages: first what other workers have read of them, then the rest."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Iterable, Mapping
from typing import Any, Final

from confluent_kafka import OFFSET_BEGINNING, KafkaError, Message, TopicPartition

from reconsume.bridge.kafka.admin import KafkaAdmin, Partition
from reconsume.bridge.kafka.client_settings import consumer_settings
from reconsume.bridge.kafka.clients import make_consumer
from reconsume.bridge.kafka.errors import translate
from reconsume.bridge.librdkafka.connections import Connections
from reconsume.bridge.librdkafka.undecodable import headers_of
from reconsume.bridge.process.brokers_clock import monotonic_ms
from reconsume.bridge.process.clock import Clock
from reconsume.bridge.scheduler.withdrawals.withdrawn_topic import WithdrawnTopicWriter
from reconsume.delay_levels.errors import KafkaNotReachable, MalformedProperty, ReconsumeError, TopicNotReady
from reconsume.delay_levels.wire.names import TopicNames
from reconsume.delay_levels.wire.timer import CANCELS_KEPT_MS, LONGEST_DELAY_MS
from reconsume.delay_levels.wire.withdrawals import ID_BYTES, PositionInCancel, Withdrawals, requested_withdrawal

__all__ = ["WithdrawalsReader"]

logger = logging.getLogger(__name__)

_POLL_SECONDS: Final = 0.05
_AT_ONCE: Final = 1_000
_SILENT_SECONDS: Final = 30.0
_WITHOUT_SECONDS: Final = 600.0
_REPORT_EVERY_SECONDS: Final = 10.0


class WithdrawalsReader:
    """Reads WITHDRAWN to its end, CANCEL from the position that stands there, and then follows both.

    CANCEL is the truth. WITHDRAWN only saves time at the start: where it is missing or unreadable, CANCEL is read from
    its beginning, and `is_over` says some minutes later that it is time to look again.

    Guarantees: beside CANCEL only tombstones and positions of WITHDRAWN are followed. An id that came back from there
    would undo that its message was met. Test: tests/integration/test_withdrawals.py.

    Args:
        base: librdkafka's settings for any client.
        names: the installation's topics.
        withdrawals: what is known; one thread reads into it.
        clock: the time in milliseconds.
    """

    def __init__(self, base: Mapping[str, Any], names: TopicNames, withdrawals: Withdrawals, clock: Clock) -> None:
        self._base = base
        self._names = names
        self._withdrawals = withdrawals
        self._clock = clock
        self._reached: dict[int, int] = {}
        self._positions: dict[int, int] = {}
        self._topic_id = ""
        self._writer: WithdrawnTopicWriter | None = None
        self._over_at = float("inf")
        self._report_at = 0.0
        self._unreported = 0
        # They join no group; but librdkafka asks for the coordinator, and that needs a right to a name. What it fetches
        # ahead is bounded, for clients choose how large their requests are.
        settings = {
            "group.id": names.cancel,
            "enable.partition.eof": True,
            "fetch.wait.max.ms": 100,
            "queued.max.messages.kbytes": 4_096,
        }
        self._connections = Connections(consumer_settings(base, "reconsume-cancels") | settings)
        self._consumer = make_consumer(self._connections.settings)

    @property
    def is_over(self) -> bool:
        """Whether another reader should take its place, because this one works without WITHDRAWN."""
        return time.monotonic() >= self._over_at

    def start(self, admin: KafkaAdmin, stop: threading.Event) -> None:
        """Read WITHDRAWN to its end, and begin to read CANCEL.

        Raises:
            ReconsumeError: CANCEL cannot be read.
        """
        cancel, withdrawn = self._names.cancel, self._names.withdrawn
        partitions, ids = _partitions(admin, cancel), admin.topic_ids([cancel])
        self._topic_id = ids.get(cancel, "")
        try:
            self._load(_partitions(admin, withdrawn), stop)
            self._writer = WithdrawnTopicWriter(self._base, withdrawn, self._topic_id, monotonic_ms)
        except ReconsumeError as error:
            self._positions.clear()
            self._do_without(error)
        self._reached = dict.fromkeys(range(partitions), -1)
        begin = [TopicPartition(cancel, one, self._positions.get(one, OFFSET_BEGINNING)) for one in self._reached]
        self._consumer.incremental_assign(begin)

    def _load(self, partitions: int, stop: threading.Event) -> None:
        topic, unread = self._names.withdrawn, set(range(partitions))
        self._consumer.incremental_assign([TopicPartition(topic, one, OFFSET_BEGINNING) for one in unread])
        silent_at = time.monotonic() + _SILENT_SECONDS
        while unread and not stop.is_set():
            for message in self._polled():
                silent_at = time.monotonic() + _SILENT_SECONDS
                if _is_end(message):
                    unread.discard(message.partition() or 0)
                else:
                    self._take_known(message)
            if time.monotonic() > silent_at:
                raise KafkaNotReachable(f"reading topic {topic}: no answer for {_SILENT_SECONDS:.0f} s")

    def read(self) -> None:
        """Read what is there; waits for a moment if nothing is.

        Raises:
            ReconsumeError: CANCEL cannot be read.
        """
        if self._writer is not None and self._writer.is_full:
            time.sleep(_POLL_SECONDS)
        else:
            for message in self._polled():
                if message.topic() == self._names.withdrawn:
                    self._follow_known(message)
                else:
                    self._take_request(message)
        if self._writer is not None:
            try:
                self._writer.turn(self._reached)
            except ReconsumeError as error:
                self._do_without(error)

    @property
    def partitions(self) -> list[Partition]:
        """Those of CANCEL."""
        return [(self._names.cancel, one) for one in self._reached]

    def has_reached(self, ends: Mapping[Partition, int]) -> bool:
        """Whether everything before these offsets of CANCEL was read."""
        return all(self._reached[partition] >= end for (_, partition), end in ends.items())

    def done(self, withdrawals: Iterable[bytes]) -> None:
        """Let other workers forget withdrawals whose messages were met."""
        if self._writer is not None:
            self._writer.done(withdrawals)

    def close(self) -> None:
        """Let go of the connections."""
        if self._writer is not None:
            self._writer.close()
        self._consumer.close()

    def _polled(self) -> list[Message]:
        self._connections.check()
        first = self._consumer.poll(_POLL_SECONDS)
        return [] if first is None else [first, *self._consumer.consume(_AT_ONCE, 0)]

    def _follow_known(self, message: Message) -> None:
        try:
            if not _is_end(message):
                self._take_known(message)
        except ReconsumeError as error:
            self._do_without(error)

    def _take_known(self, message: Message) -> None:
        """A record of WITHDRAWN: an id with its due moment, its tombstone, or a position."""
        if (error := message.error()) is not None:
            raise translate(error, f"reading topic {self._names.withdrawn}")
        key, value, now = message.key() or b"", message.value(), self._clock()
        if len(key) != ID_BYTES:
            position = PositionInCancel.decode(key, value or b"")
            if position is not None and position.topic_id == self._topic_id:
                self._positions[position.partition] = position.offset
                if self._writer is not None:
                    self._writer.saw(position)
        elif value is None:
            self._withdrawals.discard(key)
        elif not self._reached and value.isdigit():  # later on CANCEL itself is followed
            self._add(key, min(int(value), int(now) + LONGEST_DELAY_MS), now)

    def _take_request(self, message: Message) -> None:
        """A record of CANCEL, or the end of one of its partitions."""
        partition, offset = message.partition() or 0, message.offset() or 0
        if _is_end(message):
            self._reached[partition] = offset
            return
        if (error := message.error()) is not None:
            raise translate(error, f"reading topic {self._names.cancel}")
        self._reached[partition] = offset + 1
        try:
            withdrawal, due_ms = requested_withdrawal(headers_of(message), message.timestamp()[1])
        except MalformedProperty as malformed:
            self._report(f"{self._names.cancel}-{partition}@{offset} is ignored: {malformed}")
            return
        now = self._clock()
        self._add(withdrawal, due_ms, now)
        if self._writer is not None and due_ms + CANCELS_KEPT_MS > now:
            self._writer.learned(partition, offset, withdrawal, due_ms)

    def _add(self, withdrawal: bytes, due_ms: int, now: float) -> None:
        if not self._withdrawals.add(withdrawal, due_ms, now):
            self._report(f"memory holds {len(self._withdrawals):,} withdrawals; this one is not obeyed")

    def _report(self, what: str) -> None:
        """Warn at most every 10 s: clients decide how many such records there are."""
        self._unreported += 1
        if time.monotonic() >= self._report_at:
            logger.warning("%s (%d like it since the last such line)", what, self._unreported - 1)
            self._unreported, self._report_at = 0, time.monotonic() + _REPORT_EVERY_SECONDS

    def _do_without(self, error: ReconsumeError) -> None:
        logger.warning("the next start reads all of %s again: %s", self._names.cancel, error)
        if self._over_at == float("inf"):
            self._over_at = time.monotonic() + _WITHOUT_SECONDS
        if self._writer is not None:
            self._writer.close()
            self._writer = None
        assigned = [one for one in self._consumer.assignment() if one.topic == self._names.withdrawn]
        self._consumer.incremental_unassign(assigned)


def _partitions(admin: KafkaAdmin, topic: str) -> int:
    count = admin.partitions([topic]).get(topic)
    if count is None:
        raise TopicNotReady(f"topic {topic} does not exist; `reconsume topics apply` makes what is missing")
    return count


def _is_end(message: Message) -> bool:
    error = message.error()
    return error is not None and error.code() == KafkaError._PARTITION_EOF
