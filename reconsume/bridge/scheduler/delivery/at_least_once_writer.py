"""Writes a batch without transactions, then commits its offsets."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from functools import partial
from typing import Any, Final
from weakref import WeakKeyDictionary

from confluent_kafka import TIMESTAMP_LOG_APPEND_TIME, KafkaError, KafkaException, Message

from reconsume.bridge.kafka.client_settings import FLUSHED_LINGER_MS, producer_settings
from reconsume.bridge.kafka.clients import discard_producer, make_producer, produce_patiently
from reconsume.bridge.kafka.errors import is_passing, translate
from reconsume.bridge.kafka.group_consumer import GroupConsumer
from reconsume.bridge.process.brokers_clock import BrokersClock, monotonic_ms
from reconsume.bridge.process.polled_records import offset_of
from reconsume.bridge.scheduler.delivery.due_batch import DueBatch
from reconsume.bridge.scheduler.delivery.positions import ONLY_PARTITION, PositionLog, PositionRecord
from reconsume.bridge.scheduler.delivery.writers import (
    DELIVERING,
    WRITING_POSITIONS,
    BatchAborted,
    WriterBroken,
)
from reconsume.bridge.scheduler.queues.partition_queues import PartitionQueue
from reconsume.bridge.scheduler.targets.routing import UNWRITTEN
from reconsume.bridge.scheduler.targets.topics_seen import TopicsSeen
from reconsume.delay_levels.errors import KafkaNotReachable

logger = logging.getLogger(__name__)

_SERVE_EVERY: Final = 500
"""Records between two polls for delivery reports, so that the report queue stays short."""
_LAST_SECONDS: Final = 10.0
"""Wait for records in flight at the end."""


class AtLeastOnceWriter:
    """For clusters without transactions: produce, wait for every acknowledgement, then commit.

    After a crash before the commit the batch is delivered again; readers recognise copies by their identity. Positions
    are written after the commit, so the last one may be missing after a crash.

    Guarantees: as long as the worker has its partition, an acknowledged record is not written again because another
    record of its batch or the commit failed.
    Test: tests/unit/bridge/scheduler/delivery/test_at_least_once_writer.py.
    """

    def __init__(
        self,
        base: Mapping[str, Any],
        client_id: str,
        time: BrokersClock | None = None,
        positions: PositionLog | None = None,
    ) -> None:
        self._time = time
        self._positions = positions
        self._sent = 0.0
        self._settings = producer_settings(base, client_id) | {"linger.ms": FLUSHED_LINGER_MS}
        self._producer = make_producer(self._settings)
        self._topics = TopicsSeen()
        # Without partitions that went to another worker: their queues are gone, and new ones start from the commit.
        self._stored: WeakKeyDictionary[PartitionQueue, set[int]] = WeakKeyDictionary()
        self._refused: list[KafkaError] = []

    def start(self) -> None:
        """Do nothing: there is no id to register."""

    def ask_time(self) -> None:
        """Do nothing: asking for the time would leave a record. The clock keeps the oldest time seen."""
        if self._time is not None:
            self._time.is_in_doubt = False

    def recover(self) -> None:
        """Do nothing: unacknowledged records are written again."""

    def write(self, batch: DueBatch, consumer: GroupConsumer) -> None:
        """Produce all records that are not stored yet, wait for the acknowledgements, and commit."""
        self._refused.clear()
        self._sent = monotonic_ms()
        try:
            self._produce(batch)
            self._producer.flush()
        except KafkaException as error:
            raise WriterBroken(translate(error, DELIVERING)) from error
        except SystemError as error:
            # See `fatal_errors`; delivery reports no longer count.
            raise WriterBroken(KafkaNotReachable(f"{DELIVERING}: {error.__cause__ or error}")) from error
        if self._refused:
            raise BatchAborted(translate(self._refused[0], DELIVERING), passing=is_passing(self._refused[0]))
        commits = batch.commits()
        if consumer.commit(commits, wait=True):
            raise BatchAborted(KafkaNotReachable("offsets of a batch were not committed"), passing=True)
        for run in batch.runs:
            if (stored := self._stored.get(run.queue)) is not None:
                stored.difference_update(offset_of(message) for _, message in run.records)
        if self._topics.are_too_many(batch.deliveries):
            discard_producer(self._producer)
            self._producer = make_producer(self._settings)
        if self._positions is not None:
            self._produce_positions(self._positions.records(commits))

    def _produce(self, batch: DueBatch) -> None:
        # There may be fewer deliveries than sources: a batch ends before a record that needs a lookup.
        for index, (one, (queue, offset)) in enumerate(zip(batch.all(), batch.sources(), strict=False)):
            if one.outcome not in UNWRITTEN and offset not in self._stored.get(queue, ()):
                record, note = (one.topic, one.value, one.key, one.partition), partial(self._note, queue, offset)
                produce_patiently(self._producer, *record, note, headers=list(one.headers))
            if index % _SERVE_EVERY == 0:
                self._producer.poll(0)

    def _produce_positions(self, records: Iterable[PositionRecord]) -> None:
        try:
            for one in records:
                self._producer.produce(one.topic, one.value, one.key, ONLY_PARTITION, on_delivery=_warn)
        except KafkaException as error:
            # The batch is committed; the next one gets the same error.
            logger.warning("%s", translate(error, WRITING_POSITIONS))

    def _note(self, queue: PartitionQueue, offset: int, error: KafkaError | None, message: Message) -> None:
        if error is None:
            self._stored.setdefault(queue, set()).add(offset)
            if self._time is not None and message.timestamp()[0] == TIMESTAMP_LOG_APPEND_TIME:
                self._time.heard(message.timestamp()[1], self._sent)
        else:
            self._refused.append(error)

    def close(self) -> None:
        """Wait for records in flight, then release the producer."""
        try:
            self._producer.flush(_LAST_SECONDS)
        except (KafkaException, SystemError) as error:
            logger.debug("the producer has failed before its end: %s", error)
        discard_producer(self._producer)


def _warn(error: KafkaError | None, _message: Message) -> None:
    if error is not None:
        logger.warning("%s", translate(error, WRITING_POSITIONS))
