"""Write a batch and commit where it came from: in one Kafka transaction, or at least once."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, Final, Protocol

from confluent_kafka import (
    TIMESTAMP_LOG_APPEND_TIME,
    Consumer,
    KafkaError,
    KafkaException,
    Message,
    Producer,
    TopicPartition,
)

from reconsume.bridge.bounded_calls import BoundedCalls
from reconsume.bridge.brokers_clock import BrokersClock, monotonic_ms
from reconsume.bridge.clients import close_producer, make_producer
from reconsume.bridge.kafka import (
    FLUSHED_LINGER_MS,
    error_of_callback,
    is_passing,
    is_rebalance,
    is_refusal,
    producer_settings,
    transactional_settings,
    translate,
    why_failed,
)
from reconsume.bridge.scheduler.routing import UNWRITTEN, Delivery
from reconsume.delay_levels.errors import KafkaNotReachable, ReconsumeError, WorkerFenced

__all__ = ["AtLeastOnceWriter", "BatchAborted", "BatchWriter", "TransactionalWriter", "WriterBroken"]

logger = logging.getLogger(__name__)

_SERVE_EVERY: Final = 500
"""Records between two looks at the delivery reports, so that the queue of reports stays short."""
_PATIENCE_SECONDS: Final = 5.0
"""For each step of a transaction."""
_LONGER_THAN_A_RECORD_SECONDS: Final = 15.0
"""Than any record waits for its answer; the whole transaction is bounded besides."""
_GRACE_SECONDS: Final = 2.0
_PROMPT_MS: Final = 500.0
"""A transaction that took longer may have left requests behind."""
_FENCED: Final = frozenset({KafkaError._FENCED, KafkaError.INVALID_PRODUCER_EPOCH, KafkaError.PRODUCER_FENCED})


class BatchAborted(Exception):
    """Nothing of the batch counts; its records are still to be delivered.

    Attributes:
        error: why.
        passing: True when the same batch may succeed later, False when one of its records was refused.
        written: indices of records that are stored all the same (never in a transaction).
    """

    def __init__(self, error: ReconsumeError, *, passing: bool, written: frozenset[int] = frozenset()) -> None:
        super().__init__(str(error))
        self.error = error
        self.passing = passing
        self.written = written


class WriterBroken(Exception):
    """The producer is of no use any more; what was not committed is read again by a new one.

    Attributes:
        error: why.
    """

    def __init__(self, error: ReconsumeError) -> None:
        super().__init__(str(error))
        self.error = error


class BatchWriter(Protocol):
    """Writes batches for one worker."""

    def start(self) -> None:
        """Get ready; raises `KafkaNotReachable` or `KafkaRefused`."""

    def write(
        self, batch: Sequence[Delivery], offsets: Callable[[], Sequence[TopicPartition]], consumer: Consumer
    ) -> None:
        """Write all of `batch` and commit the offsets; raises `BatchAborted` or `WriterBroken`."""

    def close(self) -> None:
        """Let go of the connection."""


class TransactionalWriter:
    """Deliveries and offsets become visible together or not at all.

    Args:
        base: librdkafka's settings for any client.
        transactional_id: stable per worker.
        transaction_timeout_ms: of the brokers.
        time: is told the append times of what is written, so that it knows the brokers' clock.
        asked: a topic whose append time is asked for at the start: by a record in a transaction that is aborted, which
            no reader of committed records sees.
    """

    def __init__(
        self,
        base: Mapping[str, Any],
        transactional_id: str,
        transaction_timeout_ms: int,
        time: BrokersClock | None = None,
        asked: str = "",
    ) -> None:
        self._time = time
        self._asked = asked
        self._transactional_id = transactional_id
        # By then the brokers have aborted it, so there is nothing left to wait for.
        self._longest_seconds = transaction_timeout_ms / 1000 + _GRACE_SECONDS
        self._bounded = BoundedCalls()
        self._broken = False
        self._is_first_refused = False
        self._settings = transactional_settings(base, transactional_id, transaction_timeout_ms)
        self._producer = make_producer(self._settings)

    def start(self) -> None:
        """Register the transactional id; this ends what a dead predecessor with it left open."""
        self._register()
        if self._time is not None:
            self._ask_once()

    def _register(self) -> None:
        try:
            self._producer.init_transactions(30)
        except KafkaException as error:
            self._broken = True
            raise self._explain(error, "registering the transactional id") from error

    def _ask_once(self) -> None:
        """Before anything is delivered; without the right to ask, the machine's own clock holds until then."""
        try:
            self._bound(self._ask_for_time)
        except BatchAborted as error:
            if error.passing:
                raise KafkaNotReachable(f"asking for the brokers' time: {error}") from error
            logger.warning("due times go by this machine's clock until the first delivery: %s", error)

    def _ask_for_time(self) -> None:
        producer, began = self._producer, monotonic_ms()
        try:
            producer.begin_transaction()
            producer.produce(self._asked, on_delivery=self._on_stored())
            producer.flush(_PATIENCE_SECONDS)
            producer.abort_transaction(_PATIENCE_SECONDS)
        except KafkaException as error:
            cause = self._undo(error, began)
            raise BatchAborted(translate(cause, "asking for the time"), passing=not is_refusal(cause)) from error

    def _on_stored(self) -> Callable[[KafkaError | None, Message], None]:
        """Hears the append time of the record that it is given to, or that it was refused."""
        time, sent = self._time, monotonic_ms()

        def stored(error: KafkaError | None, message: Message) -> None:
            kind, append_ms = message.timestamp()
            if error is not None:
                self._is_first_refused = is_refusal(error)
            elif time is not None and kind == TIMESTAMP_LOG_APPEND_TIME:
                time.heard(append_ms, sent)

        return stored

    def write(
        self, batch: Sequence[Delivery], offsets: Callable[[], Sequence[TopicPartition]], consumer: Consumer
    ) -> None:
        """Begin, produce all, send the offsets with fresh group metadata, commit."""
        positions, metadata = list(offsets()), consumer.consumer_group_metadata()
        self._bound(lambda: self._transaction(batch, positions, metadata))

    def _bound(self, call: Callable[[], None]) -> None:
        try:
            self._bounded.run(call, self._longest_seconds)
        except TimeoutError:
            self._broken = True
            raise WriterBroken(
                KafkaNotReachable(f"a transaction has not ended within {self._longest_seconds:.0f} s")
            ) from None
        except SystemError as error:
            fatal = error_of_callback(error)
            self._broken = True
            raise WriterBroken(self._explain(fatal, "committing a batch")) from error

    def _transaction(self, batch: Sequence[Delivery], positions: list[TopicPartition], metadata: Any) -> None:
        producer, began = self._producer, monotonic_ms()
        self._is_first_refused = False
        try:
            producer.begin_transaction()
            self._produce(batch)
            producer.send_offsets_to_transaction(positions, metadata, _PATIENCE_SECONDS)
            _commit(producer)
        except KafkaException as error:
            cause = self._undo(why_failed(producer, error), began)
            # Offsets are refused as records are, where the right to read their partition was taken: no record is to
            # blame for that, so of one alone it must be known that it was refused itself.
            several = sum(one.outcome not in UNWRITTEN for one in batch) > 1
            refused = is_refusal(cause) and (several or self._is_first_refused)
            raise BatchAborted(translate(cause, "delivering a batch"), passing=not refused) from error
        if monotonic_ms() - began > _PROMPT_MS:
            self._renew()

    def _produce(self, batch: Sequence[Delivery]) -> None:
        """With a callback for the first record alone: the commit fails if one of them does, and says why."""
        produce = self._producer.produce
        on_delivery: Callable[[KafkaError | None, Message], None] | None = self._on_stored()
        for count, (topic, partition, key, value, headers, outcome, _) in enumerate(batch):
            if outcome in UNWRITTEN:
                continue
            try:
                produce(topic, value, key, partition, on_delivery=on_delivery, headers=headers)  # type: ignore[arg-type]
            except BufferError:
                _produce_patiently(self._producer, batch[count], on_delivery)
            except KafkaException as error:
                self._is_first_refused = is_refusal(error.args[0])
                raise
            on_delivery = None

    def _undo(self, error: KafkaException, began: float) -> KafkaError:
        """Abort the transaction and give the reason; a fenced or broken producer is of no use any more."""
        cause: KafkaError = error.args[0]
        if cause.code() in _FENCED or cause.fatal():
            self._broken = True
            raise WriterBroken(self._explain(error, "committing a batch")) from error
        try:
            self._producer.abort_transaction(_PATIENCE_SECONDS)
        except KafkaException as worse:
            if not is_refusal(cause):
                self._broken = True
                raise WriterBroken(self._explain(worse, "aborting a batch")) from worse
            # With other records on their way librdkafka may not abort what it must (`_CONFLICT`). It was not committed,
            # and the start of the next producer undoes it; closing this one may hang.
            self._begin_anew()
            return cause
        # Every request of one that the group has refused was answered, if that took no longer than usual.
        if not is_rebalance(cause) or monotonic_ms() - began > _PROMPT_MS:
            self._renew()
        return cause

    def _renew(self) -> None:
        """Go on with a new producer, whose epoch shuts out what the old one may have left behind.

        That is requests that come late, as `ExactlyOnceWriter` has it, and a gap in the sequence numbers after a
        refused record.
        """
        close_producer(self._producer)
        self._begin_anew()

    def _begin_anew(self) -> None:
        self._producer = make_producer(self._settings)
        try:
            self._register()
        except ReconsumeError as error:
            raise WriterBroken(error) from error

    def _explain(self, error: KafkaException, doing: str) -> ReconsumeError:
        if error.args[0].code() in _FENCED:
            return WorkerFenced(
                f"{doing}: another worker took over the transactional id {self._transactional_id}; "
                "give each worker its own --instance-id"
            )
        return translate(error, doing)

    def close(self) -> None:
        """Let go at once; an open transaction was aborted before.

        One that is broken is left as it is: `Producer.close` hangs or fails on it (SystemError in confluent-kafka
        2.16), and the next `start` with the same transactional id ends what it has left open.
        """
        self._bounded.close()
        if not self._broken:
            self._producer.purge()
            close_producer(self._producer)


class AtLeastOnceWriter:
    """For clusters without transactions: produce, wait for every acknowledgement, then commit.

    A crash between the two delivers the batch again; readers recognise copies by their identity.
    """

    def __init__(self, base: Mapping[str, Any], client_id: str, time: BrokersClock | None = None) -> None:
        self._time = time
        self._sent = 0.0
        self._producer = make_producer(producer_settings(base, client_id) | {"linger.ms": FLUSHED_LINGER_MS})
        self._stored: set[int] = set()
        self._refused: list[KafkaError] = []

    def start(self) -> None:
        """Nothing to register."""

    def write(
        self, batch: Sequence[Delivery], offsets: Callable[[], Sequence[TopicPartition]], consumer: Consumer
    ) -> None:
        """Produce all, wait, commit."""
        self._stored.clear()
        self._refused.clear()
        self._sent = monotonic_ms()
        for index, one in enumerate(batch):
            if one.outcome not in UNWRITTEN:
                _produce_patiently(self._producer, one, partial(self._note, index))
            if index % _SERVE_EVERY == 0:
                self._producer.poll(0)
        self._producer.flush()
        if self._refused:
            error = translate(self._refused[0], "delivering a batch")
            raise BatchAborted(error, passing=is_passing(self._refused[0]), written=frozenset(self._stored))
        try:
            consumer.commit(offsets=list(offsets()), asynchronous=False)
        except KafkaException as error:
            aborted = translate(error, "committing a batch")
            raise BatchAborted(aborted, passing=True, written=frozenset(self._stored)) from error

    def _note(self, index: int, error: KafkaError | None, message: Message) -> None:
        if error is None:
            self._stored.add(index)
            if self._time is not None and message.timestamp()[0] == TIMESTAMP_LOG_APPEND_TIME:
                self._time.heard(message.timestamp()[1], self._sent)
        else:
            self._refused.append(error)

    def close(self) -> None:
        """Wait for what is on its way, then let go."""
        self._producer.flush(10)
        self._producer.close()


def _produce_patiently(producer: Producer, one: Delivery, on_delivery: Any) -> None:
    """Hand a record to librdkafka; while its queue is full, serve delivery reports and try again."""
    while True:
        try:
            producer.produce(
                one.topic, one.value, one.key, one.partition, headers=list(one.headers), on_delivery=on_delivery
            )
        except BufferError:
            producer.poll(0.05)
        else:
            return


def _commit(producer: Producer) -> None:
    """A commit that got no answer in time is gone on with once: librdkafka may know more then.

    Where one record was refused the others stay unanswered until their own time is over; only then it says why.
    """
    try:
        producer.commit_transaction(_PATIENCE_SECONDS)
    except KafkaException as error:
        if error.args[0].code() != KafkaError._TIMED_OUT:
            raise
        producer.commit_transaction(_LONGER_THAN_A_RECORD_SECONDS)
