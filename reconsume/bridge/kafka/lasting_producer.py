"""A producer that is replaced when it becomes unusable."""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any, Final

from confluent_kafka import KafkaError, KafkaException, Message, Producer

from reconsume.bridge.kafka.clients import close_producer, make_producer
from reconsume.bridge.kafka.errors import translate
from reconsume.bridge.librdkafka.connections import Connections
from reconsume.bridge.librdkafka.fatal_errors import fatal_error, wait_for_reports
from reconsume.bridge.process.safe_logger import SafeLogger
from reconsume.delay_levels.errors import KafkaNotReachable, ReconsumeError
from reconsume.delay_levels.wire.properties import Header

logger = SafeLogger(__name__)

_LAST_REPORTS_SECONDS: Final = 1.0


class ProducedRecord(ABC):
    """A record in flight; its outcome is reported once, possibly in another thread."""

    __slots__ = ()

    @property
    @abstractmethod
    def doing(self) -> str:
        """Return the beginning of error messages."""

    @abstractmethod
    def written(self, partition: int, offset: int, stored_ms: int) -> None:
        """Note the acknowledgement."""

    @abstractmethod
    def refused(self, error: ReconsumeError) -> None:
        """Note that the record is not stored, or that this is unknown."""

    def report(self, error: KafkaError | None, message: Message) -> None:
        """Handle the producer's delivery report."""
        if error is None:
            self.written(message.partition() or 0, message.offset() or 0, message.timestamp()[1])
        else:
            self.refused(translate(error, self.doing))


class LastingProducer:
    """Any thread may produce without waiting; one thread serves the producer and replaces it.

    A producer is unusable after a fatal error, or if librdkafka has stopped looking for brokers (see `Connections`).
    Unacknowledged records then get an error, although the brokers may have stored them: writing them again makes
    second copies.

    Args:
        settings: librdkafka settings for a producer without transactions.
    """

    def __init__(self, settings: Mapping[str, Any]) -> None:
        self._settings = dict(settings)
        self._broken: str | None = None
        self._given_up: list[Producer] = []
        self._lock = threading.Lock()
        self._connections, self._producer = self._made()

    def __len__(self) -> int:
        """Return the number of unacknowledged records, including those of replaced producers."""
        with self._lock:
            return len(self._producer) + sum(map(len, self._given_up))

    def write(
        self,
        delivery: ProducedRecord,
        topic: str,
        value: bytes | None,
        key: bytes | None,
        partition: int,
        headers: Sequence[tuple[str, str | bytes | None]] | Sequence[Header],
    ) -> None:
        """Produce a record.

        Raises:
            BufferError: as `produce` does.
            ReconsumeError: the record cannot be sent, for example because it is too large for any producer.
        """
        try:
            self.produce(topic, value, key, partition, on_delivery=delivery.report, headers=headers)
        except KafkaException as error:
            raise translate(error, delivery.doing) from error

    def produce(self, *args: Any, **kwargs: Any) -> None:
        """Produce as `confluent_kafka.Producer.produce` does.

        Raises:
            BufferError: the queue is full or the producer is about to be replaced; the same call may succeed later.
        """
        producer = self._producer
        try:
            producer.produce(*args, **kwargs)
        except KafkaException as error:
            if error.args[0].code() != KafkaError._FATAL:
                raise
            with self._lock:
                if producer is self._producer:
                    self._broken = self._broken or error.args[0].str()
            raise BufferError("the producer is about to be replaced") from error
        if producer is not self._producer:
            # The producer was replaced meanwhile, and may have been purged before it took this record.
            with self._lock:
                self._let_go(producer)

    def serve(self, seconds: float) -> None:
        """Serve delivery reports for this time; only one thread may call this."""
        try:
            self._producer.poll(seconds)
            self._connections.check()
        except KafkaException as error:
            self._broken = fatal_error(error)
        except KafkaNotReachable as error:
            self._broken = str(error)
        if self._broken is not None:
            self._replace(self._broken)

    def flush(self, seconds: float) -> int:
        """Wait for all acknowledgements; return how many are missing."""
        producer = self._producer
        try:
            wait_for_reports(producer, seconds)
        except KafkaException as error:
            with self._lock:
                if producer is self._producer:
                    self._broken = fatal_error(error)
        return len(self)

    def close(self) -> None:
        """Give up unacknowledged records; call it when no thread produces or serves."""
        try:
            _give_up(self._producer)
        finally:
            close_producer(self._producer)

    def _made(self) -> tuple[Connections, Producer]:
        connections = Connections(self._settings)
        return connections, make_producer(connections.settings)

    def _replace(self, why: str) -> None:
        with self._lock:
            old, new = self._producer, self._made()
            (self._connections, self._producer), self._broken = new, None
            records = len(old)
            self._let_go(old)
        logger.error("producer replaced, retrying %d records: %s", records, why)

    def _let_go(self, producer: Producer) -> None:
        """Give a replaced producer up, once; the caller holds the lock.

        In a thread that nobody waits for: releasing a broken client may take long. It is not closed, because another
        thread may be in its `flush`.
        """
        if producer in self._given_up:
            return
        self._given_up.append(producer)
        threading.Thread(
            target=self._report_all, args=(producer,), name="reconsume-broken-producer", daemon=True
        ).start()

    def _report_all(self, producer: Producer) -> None:
        """Keep the producer until its last report: those that are missing at its end never come."""
        while True:
            try:
                _give_up(producer)
            except KafkaException as error:  # a further fatal error, with reports still to come
                logger.debug("giving up a producer: %s", error)
            with self._lock:
                if not len(producer):
                    self._given_up.remove(producer)
                    return


def _give_up(producer: Producer) -> None:
    """Report to the callers that their records were given up, for a while.

    `purge` of confluent-kafka (2.16) does not wait, so brokers' threads report records in flight later.
    """
    producer.purge()
    try:
        wait_for_reports(producer, _LAST_REPORTS_SECONDS)
    except KafkaException as error:
        logger.debug("giving up a producer with a fatal error: %s", fatal_error(error))
        wait_for_reports(producer, _LAST_REPORTS_SECONDS)
