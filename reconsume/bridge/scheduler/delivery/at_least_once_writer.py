"""Writes a batch without transactions, then commits its offsets."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from itertools import islice
from typing import Any, Final, cast
from weakref import WeakKeyDictionary, WeakSet

from confluent_kafka import TIMESTAMP_LOG_APPEND_TIME, KafkaError, KafkaException, Message, Producer

from reconsume.bridge.kafka.client_settings import FLUSHED_LINGER_MS, producer_settings
from reconsume.bridge.kafka.clients import discard_producer, make_producer
from reconsume.bridge.kafka.errors import is_refusal, is_refusal_of_some, translate
from reconsume.bridge.kafka.group_consumer import GroupConsumer
from reconsume.bridge.librdkafka.connections import Connections
from reconsume.bridge.process.brokers_clock import BrokersClock, boot_ms, created_ms
from reconsume.bridge.process.polled_records import offset_of
from reconsume.bridge.process.safe_logger import SafeLogger
from reconsume.bridge.scheduler.delivery.due_batch import DueBatch
from reconsume.bridge.scheduler.delivery.positions import ONLY_PARTITION, PositionLog, PositionRecord
from reconsume.bridge.scheduler.delivery.writers import (
    DELIVERING,
    WRITING_POSITIONS,
    BatchAborted,
    WriterBroken,
)
from reconsume.bridge.scheduler.queues.partition_queues import PartitionQueue
from reconsume.bridge.scheduler.targets.routing import UNWRITTEN, Delivery
from reconsume.bridge.scheduler.targets.topics_seen import TopicsSeen
from reconsume.bridge.writing.transactions import PATIENCE_SECONDS
from reconsume.delay_levels.errors import KafkaNotReachable

logger = SafeLogger(__name__)

_Source = tuple[PartitionQueue, int]
"""The queue and the offset of a waiting record."""

_SERVE_EVERY: Final = 500
"""Records between two polls for delivery reports, so that the report queue stays short."""
_FLUSHES: Final = 100
"""The wait for acknowledgements is cut into this many parts, because a flush waits for all records in flight."""
_LAST_SECONDS: Final = 10.0
"""Wait for records in flight at the end."""


class AtLeastOnceWriter:
    """For clusters without transactions: produce, wait for every acknowledgement, then commit.

    After a crash before the commit the batch is delivered again; readers recognise copies by their identity. Positions
    are written after the commit, so the last one may be missing after a crash.

    Guarantees: as long as the worker has its partition, an acknowledged record is not written again because another
    record of its batch or the commit failed, nor is a record that has no answer yet. No write waits without a limit: a
    record is waited for once, 5 s; then its partition is held until the answer, and the others continue.
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
        self._settings = producer_settings(base, client_id) | {"linger.ms": FLUSHED_LINGER_MS}
        self._connections, self._producer = self._made()
        self._topics = TopicsSeen()
        self._saw_too_many = False
        # Without partitions that went to another worker: their queues are gone, and new ones start from the commit.
        self._stored: WeakKeyDictionary[PartitionQueue, set[int]] = WeakKeyDictionary()
        self._unanswered: WeakKeyDictionary[PartitionQueue, set[int]] = WeakKeyDictionary()
        self._held: WeakSet[PartitionQueue] = WeakSet()
        self._refused: dict[tuple[PartitionQueue, int], KafkaError] = {}

    def _made(self) -> tuple[Connections, Producer]:
        connections = Connections(self._settings)
        return connections, make_producer(connections.settings)

    def start(self) -> None:
        """Do nothing: there is no id to register."""

    def ask_time(self) -> None:
        """Do nothing: asking for the time would leave a record. The clock keeps the oldest time seen."""
        if self._time is not None:
            self._time.is_in_doubt = False

    def recover(self) -> None:
        """Do nothing: unacknowledged records are written again."""

    def serve(self) -> None:
        """Take librdkafka's reports; without polls they would pile up. Check that it still looks for brokers.

        The records of a producer that is left alone never get an answer; the next worker writes them again.
        """
        try:
            with _breaking():
                self._producer.poll(0)
            self._connections.check()
        except KafkaNotReachable as error:
            raise WriterBroken(error) from error

    def write(self, batch: DueBatch, consumer: GroupConsumer) -> None:
        """Produce all records that are not stored yet, wait for the acknowledgements, and commit."""
        with _breaking():
            self._producer.poll(0)
            # Records of an earlier batch are not waited for again: that would cost all groups another 5 s.
            if any(self._unanswered.values()):
                self._require_answers(batch.sources())
            self._produce(batch)
            self._wait_for_answers(batch)
        self._require_stored(batch)
        commits = batch.commits()
        if consumer.commit(commits, wait=True):
            # Of several partitions, one alone may be refused: the worker finds it by halves.
            why = KafkaNotReachable("offsets of a batch were not committed")
            raise BatchAborted(why, passing=len(commits) == 1)
        for run in batch.runs:
            if (stored := self._stored.get(run.queue)) is not None:
                stored.difference_update(offset_of(message) for _, message in run.records)
        self._saw_too_many |= self._topics.are_too_many(batch.deliveries)
        # A record that is purged without an answer may be stored all the same, and would be written again.
        if self._saw_too_many and not len(self._producer):
            self._saw_too_many = False
            discard_producer(self._producer)
            self._connections, self._producer = self._made()
        if self._positions is not None:
            self._produce_positions(self._positions.records(commits))

    def _wait_for_answers(self, batch: DueBatch) -> None:
        """Wait for the batch's records; others without an answer, for example for lack of a leader, stay in flight."""
        for _ in range(_FLUSHES):
            self._producer.flush(PATIENCE_SECONDS / _FLUSHES)
            if not (len(self._producer) and self._missing(islice(batch.sources(), len(batch.deliveries)))):
                return

    def _missing(self, sources: Iterable[_Source]) -> Counter[PartitionQueue]:
        """Return how many of these records have no answer yet."""
        return Counter(queue for queue, offset in sources if offset in self._unanswered.get(queue, ()))

    def _require_answers(self, sources: Iterable[_Source]) -> None:
        """Raise `BatchAborted` for records without an answer: they stay in the producer."""
        if missing := self._missing(sources):
            self._held.update(missing)
            error = _no_answer(f"{missing.total()} records are not acknowledged")
            raise BatchAborted(error, passing=True, unanswered=missing.keys())

    def _require_stored(self, batch: DueBatch) -> None:
        """Raise `BatchAborted` for a record that was refused, or that has no answer."""
        refusals, self._refused = self._refused, {}
        if not (refusals or len(self._producer)):
            return
        sources = list(islice(batch.sources(), len(batch.deliveries)))
        if (refused := next(filter(None, map(refusals.get, sources)), None)) is not None:
            raise BatchAborted(translate(refused, DELIVERING), passing=not is_refusal_of_some(refused))
        self._require_answers(sources)

    def _produce(self, batch: DueBatch) -> None:
        now = created_ms(self._time)
        # There may be fewer deliveries than sources: a batch ends before a record that needs a lookup.
        for index, (one, (queue, offset)) in enumerate(zip(batch.all(), batch.sources(), strict=False)):
            is_in_hand = offset in self._stored.get(queue, ()) or offset in self._unanswered.get(queue, ())
            if one.outcome not in UNWRITTEN and not is_in_hand:
                self._refused.pop((queue, offset), None)
                try:
                    self._produce_one(one, now, partial(self._note, queue, offset, boot_ms()))
                except KafkaException as error:
                    if not is_refusal(error.args[0]):
                        raise
                    # Such as a partition that the producer does not know yet. Other records of the batch are stored.
                    self._refused[queue, offset] = error.args[0]
                else:
                    self._unanswered.setdefault(queue, set()).add(offset)
            if index % _SERVE_EVERY == 0:
                self._producer.poll(0)

    def _produce_one(self, one: Delivery, now: int, note: Callable[[KafkaError | None, Message], None]) -> None:
        record, headers = (one.topic, one.value, one.key, one.partition), cast("Any", one.headers)
        try:
            self._producer.produce(*record, on_delivery=note, timestamp=now, headers=headers)
        except BufferError:
            self._producer.flush(PATIENCE_SECONDS)
            try:
                self._producer.produce(*record, on_delivery=note, timestamp=now, headers=headers)
            except BufferError:
                raise BatchAborted(_no_answer("the producer's queue is full"), passing=True) from None

    def _produce_positions(self, records: Iterable[PositionRecord]) -> None:
        try:
            for one in records:
                self._producer.produce(one.topic, one.value, one.key, ONLY_PARTITION, on_delivery=_warn)
        except BufferError:
            logger.warning("%s", KafkaNotReachable(f"{WRITING_POSITIONS}: the producer's queue is full"))
        except KafkaException as error:
            # The batch is committed; the next one gets the same error.
            logger.warning("%s", translate(error, WRITING_POSITIONS))

    def _note(
        self, queue: PartitionQueue, offset: int, sent: float, error: KafkaError | None, message: Message
    ) -> None:
        unanswered = self._unanswered.get(queue, set())
        unanswered.discard(offset)
        if not unanswered and queue in self._held:
            self._held.discard(queue)
            queue.held_until_ms = 0.0
        if error is None:
            self._stored.setdefault(queue, set()).add(offset)
            if self._time is not None and message.timestamp()[0] == TIMESTAMP_LOG_APPEND_TIME:
                self._time.heard(message.timestamp()[1], sent)
        else:
            self._refused[queue, offset] = error

    def close(self) -> None:
        """Wait for records in flight, then release the producer."""
        try:
            self._producer.flush(_LAST_SECONDS)
        except (KafkaException, SystemError) as error:
            logger.debug("the producer has failed before its end: %s", error)
        discard_producer(self._producer)


@contextmanager
def _breaking() -> Iterator[None]:
    """Raise `WriterBroken` after an error of the producer itself."""
    try:
        yield
    except KafkaException as error:
        raise WriterBroken(translate(error, DELIVERING)) from error
    except SystemError as error:
        # See `fatal_errors`; delivery reports no longer count.
        raise WriterBroken(KafkaNotReachable(f"{DELIVERING}: {error.__cause__ or error}")) from error


def _no_answer(what: str) -> KafkaNotReachable:
    return KafkaNotReachable(f"{DELIVERING}: no answer from Kafka within {PATIENCE_SECONDS:g} s, {what}")


def _warn(error: KafkaError | None, _message: Message) -> None:
    if error is not None:
        logger.warning("%s", translate(error, WRITING_POSITIONS))
