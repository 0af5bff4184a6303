"""Writes a batch and commits its offsets, in one Kafka transaction."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import closing
from typing import Any, Final, Protocol

from confluent_kafka import TIMESTAMP_LOG_APPEND_TIME, KafkaError, KafkaException, Message, Producer

from reconsume.bridge.kafka.admin import Commit, Partition
from reconsume.bridge.kafka.client_settings import transactional_settings
from reconsume.bridge.kafka.clients import produce_patiently
from reconsume.bridge.kafka.errors import is_refusal, is_refusal_of_some, refusing_topic, translate
from reconsume.bridge.kafka.group_consumer import GroupConsumer
from reconsume.bridge.process.brokers_clock import BrokersClock, boot_ms, created_ms, monotonic_ms
from reconsume.bridge.process.safe_logger import SafeLogger
from reconsume.bridge.scheduler.delivery.due_batch import DueBatch
from reconsume.bridge.scheduler.delivery.positions import ONLY_PARTITION, PositionLog, PositionRecord
from reconsume.bridge.scheduler.delivery.trials import OF_TRIALS, Trials
from reconsume.bridge.scheduler.queues.partition_queues import PartitionQueue
from reconsume.bridge.scheduler.targets.record_size import MessageSets
from reconsume.bridge.scheduler.targets.routing import UNWRITTEN, Delivery
from reconsume.bridge.scheduler.targets.topics_seen import TopicsSeen
from reconsume.bridge.writing.transactions import (
    PATIENCE_SECONDS,
    SHUT_OUT,
    START_SECONDS,
    InDoubt,
    Produce,
    ShutOut,
    Transactions,
    Undone,
)
from reconsume.delay_levels.errors import KafkaNotReachable, KafkaRefused, ReconsumeError, WorkerFenced

logger = SafeLogger(__name__)

_ASK_AGAIN_MS: Final = 1_000.0
WRITING_POSITIONS: Final = "writing positions"
_REGISTERING: Final = "registering the transactional id"
_ASKING: Final = "asking for the brokers' time"
DELIVERING: Final = "delivering a batch"


class BatchAborted(Exception):
    """The batch was aborted; its records must be delivered again.

    Attributes:
        error: the cause.
        passing: True when the same batch may succeed later, False when one of its records was refused.
        topic: the Kafka topic that refused a request, empty where librdkafka does not name it.
        unanswered: the queues whose records are still in flight; empty where that concerns the whole batch.
    """

    def __init__(
        self,
        error: ReconsumeError,
        *,
        passing: bool,
        topic: str = "",
        unanswered: Collection[PartitionQueue] = (),
    ) -> None:
        super().__init__(str(error))
        self.error = error
        self.passing = passing
        self.topic = topic
        self.unanswered = unanswered


class BatchInDoubt(Exception):
    """The whole batch counts, or none of it. `recover` makes the brokers decide; then the committed offsets show it.

    Attributes:
        error: the reason for the doubt.
    """

    def __init__(self, error: ReconsumeError) -> None:
        super().__init__(str(error))
        self.error = error


class WriterBroken(Exception):
    """The producer is unusable; uncommitted records are read again by a new one.

    Attributes:
        error: the reason.
    """

    def __init__(self, error: ReconsumeError) -> None:
        super().__init__(str(error))
        self.error = error


class BatchWriter(Protocol):
    """Writes batches for one worker."""

    def start(self) -> None:
        """Prepare; raise `KafkaNotReachable` or `KafkaRefused`."""

    def serve(self) -> None:
        """Do periodic work, also while nothing is due; raise `WriterBroken` if nothing can be written any more."""

    def write(self, batch: DueBatch, consumer: GroupConsumer) -> None:
        """Write a batch, with the parts that are added meanwhile, and commit its offsets.

        Args:
            batch: the batch; its parts may be made in another thread.
            consumer: the consumer that read the records.

        Raises:
            BatchAborted, BatchInDoubt, WriterBroken: the batch was not committed, or whether it was is unknown.
        """

    def ask_time(self) -> None:
        """Get the brokers' time if possible; raise `KafkaNotReachable` or `WriterBroken`."""

    def recover(self) -> None:
        """After `BatchInDoubt`, make the brokers decide; raise `KafkaNotReachable` while they do not answer."""

    def close(self) -> None:
        """Close the connections."""


class TransactionalWriter:
    """Makes deliveries and offsets visible together or not at all.

    Guarantees: offsets may be refused too, if the right to read the lane was revoked. So a record that is alone in a
    transaction is blamed only if its own delivery report has an error.
    Tests: tests/integration/cli/test_missing_rights.py, tests/unit/bridge/scheduler/test_worker.py.

    Args:
        base: librdkafka settings that every client uses.
        transactional_id: the worker's stable id.
        transaction_timeout_ms: the brokers' timeout of a transaction.
        time: the clock that learns from append times of written records.
        asked: a topic to get the time from: by a record in an aborted transaction, invisible to readers of committed
            records.
        positions: makes the records of the POSITIONS topic for a batch.
    """

    def __init__(
        self,
        base: Mapping[str, Any],
        transactional_id: str,
        transaction_timeout_ms: int,
        time: BrokersClock | None = None,
        asked: str = "",
        positions: PositionLog | None = None,
    ) -> None:
        self._time = time
        self._positions = positions
        self._position_refusal: KafkaError | None = None
        self._asked = asked
        self._transactional_id = transactional_id
        self._ask_at = float("-inf")
        self._first_refusal: KafkaError | None = None
        settings = transactional_settings(base, transactional_id, transaction_timeout_ms)
        self._transactions = Transactions(settings)
        of_trials = transactional_settings(base, transactional_id + OF_TRIALS, transaction_timeout_ms)
        self._trials = Trials(of_trials | {"linger.ms": 0}, time)
        self._sets = MessageSets()
        self._topics = TopicsSeen()

    def start(self) -> None:
        """Register the transactional id, which ends open transactions of a dead predecessor; end its trials too."""
        self._register(START_SECONDS)
        self._trials.start()
        self.ask_time()
        if self._positions is not None:
            self._try_positions(self._positions)

    def recover(self) -> None:
        """After `BatchInDoubt`, make the brokers end open transactions; raise `WriterBroken` if they refuse."""
        try:
            self._register(PATIENCE_SECONDS)
        except (KafkaRefused, WorkerFenced) as error:
            raise WriterBroken(error) from error

    def _register(self, seconds: float) -> None:
        try:
            self._transactions.register(seconds)
        except KafkaException as error:
            raise self._explain(error.args[0], _REGISTERING) from error

    def serve(self) -> None:
        """Do nothing: `Transactions` replaces a producer without answers itself."""

    def ask_time(self) -> None:
        """Ask at most once a second: brokers with different clocks contradict each other constantly.

        Without the right to write there, earlier acknowledgements count, or else the machine's own clock.
        """
        if self._time is None or monotonic_ms() < self._ask_at:
            return
        cause = self._try_out(lambda producer: producer.produce(self._asked, on_delivery=self._on_stored()), _ASKING)
        if cause is not None:
            why = translate(cause, _ASKING)
            if not is_refusal(cause):
                raise KafkaNotReachable(str(why))
            logger.warning("brokers' time unknown until the next delivery: %s", why)
            self._time.is_in_doubt = False
        self._ask_at = monotonic_ms() + _ASK_AGAIN_MS

    def _try_positions(self, positions: PositionLog) -> None:
        """Check the right to write positions, which every batch needs; raise `KafkaRefused` with the remedy."""
        self._position_refusal = None
        trial = [positions.trial]
        cause = self._try_out(lambda producer: self._produce_positions(producer, trial), WRITING_POSITIONS)
        if cause is not None:
            why = translate(self._position_refusal or cause, WRITING_POSITIONS)
            raise KafkaNotReachable(str(why)) if self._position_refusal is None else why

    def _try_out(self, produce: Produce, doing: str) -> KafkaError | None:
        """Write records in an aborted transaction; return the error if that failed."""
        try:
            self._transactions.try_out(produce)
        except Undone as error:
            return error.cause
        except ShutOut as error:
            raise WriterBroken(self._explain(error.cause, doing)) from error
        except KafkaException as error:
            raise self._explain(error.args[0], _REGISTERING) from error
        return None

    def _produce_positions(self, producer: Producer, records: Iterable[PositionRecord]) -> None:
        def told(error: KafkaError | None, _message: Message) -> None:
            if error is not None and is_refusal(error):
                self._position_refusal = error

        for one in records:
            producer.produce(one.topic, one.value, one.key, ONLY_PARTITION, on_delivery=told)

    def _on_stored(self) -> Callable[[KafkaError | None, Message], None]:
        """Return a delivery callback that learns the append time of a record, or its refusal."""
        time, sent = self._time, boot_ms()

        def stored(error: KafkaError | None, message: Message) -> None:
            kind, append_ms = message.timestamp()
            if error is not None:
                self._first_refusal = error if is_refusal(error) else None
            elif time is not None and kind == TIMESTAMP_LOG_APPEND_TIME:
                time.heard(append_ms, sent)

        return stored

    def write(self, batch: DueBatch, consumer: GroupConsumer) -> None:
        """Begin a transaction, produce all records, send the offsets with the current group metadata, commit."""
        commits: dict[Partition, Commit] = {}
        metadata = consumer.group_metadata()
        self._first_refusal = self._position_refusal = None
        # Prepared first, so that librdkafka adds the partitions of both to the transaction in one request.
        first, size = self._place(batch, commits), len(batch.deliveries)

        def produce(producer: Producer) -> None:
            positions = first
            self._produce(producer, batch.all())
            if len(batch.deliveries) > size:
                positions = self._place(batch, commits)
            self._produce_positions(producer, positions)

        try:
            self._transactions.write(produce, commits, metadata, lambda: self._first_refusal, grows=batch.may_grow)
        except Undone as error:
            if self._position_refusal is not None:
                # No record of the batch is to blame.
                raise BatchAborted(translate(self._position_refusal, WRITING_POSITIONS), passing=True) from error
            several = sum(one.outcome not in UNWRITTEN for one in batch.deliveries) > 1
            refused = is_refusal_of_some(error.cause) and (several or self._first_refusal is not None)
            topic = refusing_topic(error.cause) if refused else ""
            raise BatchAborted(translate(error.cause, DELIVERING), passing=not refused, topic=topic) from error
        except InDoubt as error:
            raise BatchInDoubt(translate(error.cause, DELIVERING)) from error
        except ShutOut as error:
            raise WriterBroken(self._explain(error.cause, DELIVERING)) from error
        except KafkaException as error:
            why = self._explain(error.args[0], _REGISTERING)
            if isinstance(why, KafkaNotReachable):
                raise BatchAborted(why, passing=True) from error
            raise WriterBroken(why) from error
        if self._topics.are_too_many(batch.deliveries):
            self._transactions.renew()

    def _place(self, batch: DueBatch, commits: dict[Partition, Commit]) -> Sequence[PositionRecord]:
        """Set the offsets to commit, and return the positions to write with them."""
        commits.update(batch.commits())
        return [] if self._positions is None else self._positions.records(commits)

    def try_alone(self, delivery: Delivery) -> ReconsumeError | None:
        """Return why the brokers refuse the record; raise `KafkaNotReachable` without a verdict."""
        return self._trials.try_alone(delivery)

    def limit_sets(self, topic: str, max_bytes: int | None) -> None:
        """Limit requests for a partition of the topic to this size; None removes the limit."""
        self._sets.limit(topic, max_bytes)

    def _produce(self, producer: Producer, records: Iterable[Delivery]) -> None:
        """Produce the records, with a callback only for the first: the commit reports any record that fails."""
        produce, sets = producer.produce, self._sets or None
        now = created_ms(self._time)
        self._sets.begin()
        told: Callable[[KafkaError | None, Message], None] | None = self._on_stored()
        for one in records:
            topic, partition, key, value, headers, outcome, _ = one
            if outcome in UNWRITTEN:
                continue
            if sets is not None and not sets.has_room(one):
                producer.flush(PATIENCE_SECONDS)
            try:
                produce(topic, value, key, partition, on_delivery=told, timestamp=now, headers=headers)  # type: ignore[arg-type]
            except BufferError:
                produce_patiently(producer, topic, value, key, partition, told, timestamp=now, headers=headers)
            except KafkaException as error:
                self._first_refusal = error.args[0] if is_refusal(error.args[0]) else None
                raise
            told = None

    def _explain(self, error: KafkaError, doing: str) -> ReconsumeError:
        if error.code() in SHUT_OUT:
            return WorkerFenced(
                f"{doing}: another worker took over the transactional id {self._transactional_id}; "
                "give each worker its own --instance-id"
            )
        return translate(error, doing)

    def close(self) -> None:
        """Release the producer at once; an open transaction was aborted before."""
        with closing(self._trials):
            self._transactions.close()
