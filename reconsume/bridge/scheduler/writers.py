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

from reconsume.bridge.brokers_clock import BrokersClock, monotonic_ms
from reconsume.bridge.clients import discard_producer, make_producer
from reconsume.bridge.kafka import (
    FLUSHED_LINGER_MS,
    is_passing,
    is_refusal,
    producer_settings,
    transactional_settings,
    translate,
)
from reconsume.bridge.scheduler.routing import UNWRITTEN, Delivery
from reconsume.bridge.transactions import (
    PATIENCE_SECONDS,
    SHUT_OUT,
    START_SECONDS,
    InDoubt,
    ShutOut,
    Transactions,
    Undone,
)
from reconsume.delay_levels.errors import KafkaNotReachable, KafkaRefused, ReconsumeError, WorkerFenced

__all__ = ["AtLeastOnceWriter", "BatchAborted", "BatchInDoubt", "BatchWriter", "TransactionalWriter", "WriterBroken"]

logger = logging.getLogger(__name__)

_SERVE_EVERY: Final = 500
"""Records between two looks at the delivery reports, so that the queue of reports stays short."""
_LAST_SECONDS: Final = 10.0
"""For what is on its way at the end."""
_REGISTERING: Final = "registering the transactional id"
_DELIVERING: Final = "delivering a batch"


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


class BatchInDoubt(Exception):
    """All of the batch counts, or nothing; `recover` has the brokers decide it, then the committed offsets tell.

    Attributes:
        error: why nobody knows.
    """

    def __init__(self, error: ReconsumeError) -> None:
        super().__init__(str(error))
        self.error = error


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
        """Write all of `batch` and commit the offsets; raises `BatchAborted`, `BatchInDoubt` or `WriterBroken`."""

    def recover(self) -> None:
        """After `BatchInDoubt`: have the brokers decide; raises `KafkaNotReachable` while they do not answer."""

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
        self._is_first_refused = False
        settings = transactional_settings(base, transactional_id, transaction_timeout_ms)
        self._transactions = Transactions(settings)

    def start(self) -> None:
        """Register the transactional id; this ends what a dead predecessor with it left open."""
        self._register(START_SECONDS)
        if self._time is not None:
            self._ask_once()

    def recover(self) -> None:
        """After `BatchInDoubt`: the brokers end what is open; raises `WriterBroken` if they refuse to."""
        try:
            self._register(PATIENCE_SECONDS)
        except (KafkaRefused, WorkerFenced) as error:
            raise WriterBroken(error) from error

    def _register(self, seconds: float) -> None:
        try:
            self._transactions.register(seconds)
        except KafkaException as error:
            raise self._explain(error.args[0], _REGISTERING) from error

    def _ask_once(self) -> None:
        """Before anything is delivered; without the right to ask, the machine's own clock holds until then."""
        try:
            self._transactions.try_out(lambda producer: producer.produce(self._asked, on_delivery=self._on_stored()))
        except Undone as error:
            why = translate(error.cause, "asking for the brokers' time")
            if not is_refusal(error.cause):
                raise KafkaNotReachable(str(why)) from error
            logger.warning("due times go by this machine's clock until the first delivery: %s", why)
        except ShutOut as error:
            raise WriterBroken(self._explain(error.cause, "asking for the brokers' time")) from error
        except KafkaException as error:
            raise self._explain(error.args[0], _REGISTERING) from error

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
        positions, metadata = offsets(), consumer.consumer_group_metadata()
        self._is_first_refused = False
        try:
            self._transactions.write(lambda producer: self._produce(producer, batch), positions, metadata)
        except Undone as error:
            # Offsets are refused as records are, where the right to read their partition was taken: no record is to
            # blame for that, so of one alone it must be known that it was refused itself.
            several = sum(one.outcome not in UNWRITTEN for one in batch) > 1
            refused = is_refusal(error.cause) and (several or self._is_first_refused)
            raise BatchAborted(translate(error.cause, _DELIVERING), passing=not refused) from error
        except InDoubt as error:
            raise BatchInDoubt(translate(error.cause, _DELIVERING)) from error
        except ShutOut as error:
            raise WriterBroken(self._explain(error.cause, _DELIVERING)) from error
        except KafkaException as error:
            why = self._explain(error.args[0], _REGISTERING)
            if isinstance(why, KafkaNotReachable):
                raise BatchAborted(why, passing=True) from error
            raise WriterBroken(why) from error

    def _produce(self, producer: Producer, batch: Sequence[Delivery]) -> None:
        """With a callback for the first record alone: the commit fails if one of them does, and says why."""
        produce = producer.produce
        on_delivery: Callable[[KafkaError | None, Message], None] | None = self._on_stored()
        for count, (topic, partition, key, value, headers, outcome, _) in enumerate(batch):
            if outcome in UNWRITTEN:
                continue
            try:
                produce(topic, value, key, partition, on_delivery=on_delivery, headers=headers)  # type: ignore[arg-type]
            except BufferError:
                _produce_patiently(producer, batch[count], on_delivery)
            except KafkaException as error:
                self._is_first_refused = is_refusal(error.args[0])
                raise
            on_delivery = None

    def _explain(self, error: KafkaError, doing: str) -> ReconsumeError:
        if error.code() in SHUT_OUT:
            return WorkerFenced(
                f"{doing}: another worker took over the transactional id {self._transactional_id}; "
                "give each worker its own --instance-id"
            )
        return translate(error, doing)

    def close(self) -> None:
        """Let go at once; an open transaction was aborted before."""
        self._transactions.close()


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

    def recover(self) -> None:
        """Nothing is in doubt here: what is not acknowledged is written again."""

    def write(
        self, batch: Sequence[Delivery], offsets: Callable[[], Sequence[TopicPartition]], consumer: Consumer
    ) -> None:
        """Produce all, wait, commit."""
        self._stored.clear()
        self._refused.clear()
        self._sent = monotonic_ms()
        try:
            for index, one in enumerate(batch):
                if one.outcome not in UNWRITTEN:
                    _produce_patiently(self._producer, one, partial(self._note, index))
                if index % _SERVE_EVERY == 0:
                    self._producer.poll(0)
            self._producer.flush()
        except KafkaException as error:
            raise WriterBroken(translate(error, _DELIVERING)) from error
        except SystemError as error:
            # As `fatal_errors` says; no report counts any more.
            raise WriterBroken(KafkaNotReachable(f"{_DELIVERING}: {error.__cause__ or error}")) from error
        if self._refused:
            why = translate(self._refused[0], _DELIVERING)
            raise BatchAborted(why, passing=is_passing(self._refused[0]), written=frozenset(self._stored))
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
        try:
            self._producer.flush(_LAST_SECONDS)
        except (KafkaException, SystemError) as error:
            logger.debug("the producer has failed before its end: %s", error)
        discard_producer(self._producer)


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
