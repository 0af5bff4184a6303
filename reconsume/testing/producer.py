"""A `confluent_kafka.Producer` over the in-memory Kafka."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Mapping
from operator import index
from typing import Any, Final, NamedTuple, Self, cast

from confluent_kafka import KafkaError, KafkaException, Message, Producer, TopicPartition

from reconsume.bridge.kafka.admin import Commit, Partition
from reconsume.delay_levels.wire.properties import Header
from reconsume.testing.admin import InMemoryClient
from reconsume.testing.cluster import LONGEST_WAIT_SECONDS, InMemoryCluster, Unwritten

_Report = Callable[[KafkaError | None, Message], object]
_SLICE_SECONDS: Final = 0.05
_CLOSED: Final = "Producer has been closed"
"""The message of confluent-kafka."""


class GroupMetadata(NamedTuple):
    """The membership of a consumer, for transactions."""

    group: str
    generation: int


class InMemoryProducer(InMemoryClient, Producer):
    """Writes at once, or at the commit of a transaction. Delivery reports come in `poll` and `flush`."""

    def __init__(self, cluster: InMemoryCluster, settings: Mapping[str, Any]) -> None:
        # No super().__init__(): without a librdkafka handle, this class overrides every method that would use it.
        self._cluster = cluster
        self._id: str | None = settings.get("transactional.id")
        self._epoch = 0
        self._reports: deque[tuple[_Report, KafkaError | None, Message]] = deque()
        self._unreported = 0
        self._in_transaction = False
        self._transaction: list[tuple[Unwritten, _Report | None]] = []
        self._offsets: list[tuple[GroupMetadata, list[tuple[Partition, Commit]]]] = []
        self._refused: KafkaError | None = None
        self._closed = False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __len__(self) -> int:
        return self._unreported

    def __bool__(self) -> bool:
        return True

    def produce(
        self,
        topic: str,
        value: str | bytes | None = None,
        key: str | bytes | None = None,
        partition: int = -1,
        callback: _Report | None = None,
        on_delivery: _Report | None = None,
        timestamp: int = 0,
        headers: Any = None,
    ) -> None:
        """Write a record, or keep it until the transaction commits."""
        self._require_open()
        if not isinstance(topic, str):
            raise TypeError(f"argument 1 must be str, not {type(topic).__name__}")  # the message of confluent-kafka
        record = Unwritten(
            topic, index(partition), as_bytes(key), as_bytes(value), as_headers(headers), index(timestamp)
        )
        report = on_delivery or callback
        if self._id is not None and not self._in_transaction:
            raise KafkaException(KafkaError(KafkaError._STATE, "no transaction is open"))
        error = self._cluster.check(record)
        if error is not None:
            self._refused = error
            self._report(report, error, as_message(record))
        elif self._in_transaction:
            self._transaction.append((record, report))
        else:
            self._write(record, report)

    def _write(self, record: Unwritten, report: _Report | None) -> None:
        partition, stored = self._cluster.append(record)
        message = as_message(record, partition, stored.offset, stored.timestamp)
        self._report(report, None, message)

    def _report(self, report: _Report | None, error: KafkaError | None, message: Message) -> None:
        if report is not None:
            with self._cluster.changed:
                self._unreported += 1
                self._reports.append((report, error, message))
                self._cluster.changed.notify_all()

    def poll(self, timeout: float = -1) -> int:
        """Call the delivery callbacks; outside the test's thread, wait for something to report."""
        self._require_open()
        with self._cluster.changed:
            if not self._reports and self._cluster.driver != threading.get_ident():
                self._cluster.changed.wait(LONGEST_WAIT_SECONDS if timeout < 0 else min(timeout, LONGEST_WAIT_SECONDS))
        served = 0
        while (one := self._next_report()) is not None:
            report, error, message = one
            try:
                report(error, message)
            finally:
                with self._cluster.changed:
                    self._unreported -= 1
                    self._cluster.changed.notify_all()
            served += 1
        return served

    def _next_report(self) -> tuple[_Report, KafkaError | None, Message] | None:
        with self._cluster.changed:
            return self._reports.popleft() if self._reports else None

    def flush(self, timeout: float = -1) -> int:
        """Call all delivery callbacks; return how many are still being called by another thread."""
        end = time.monotonic() + timeout if timeout >= 0 else float("inf")
        while True:
            self.poll(0)
            with self._cluster.changed:
                if not self._unreported or time.monotonic() >= end:
                    return self._unreported
                self._cluster.changed.wait(_SLICE_SECONDS)

    def purge(self, in_queue: bool = True, in_flight: bool = True, blocking: bool = True) -> None:
        """Do nothing: every produced record is stored already."""
        del in_queue, in_flight, blocking
        self._require_open()

    def close(self) -> bool:
        """Call the remaining delivery callbacks; the producer refuses every further call."""
        if not self._closed:
            self.flush(0)
            self._closed = True
        return True

    def init_transactions(self, timeout: float = -1) -> None:  # noqa: ARG002
        """Take over the transactional id from its previous owner."""
        identity, ids = self._require_transactional(), self._cluster.transactional_ids
        with self._cluster.changed:
            self._epoch = ids[identity] = ids.get(identity, 0) + 1

    def begin_transaction(self) -> None:
        """Begin a transaction; its records are invisible until the commit."""
        self._require_latest()
        self._in_transaction = True
        self._refused = None

    def send_offsets_to_transaction(
        self,
        positions: list[TopicPartition],
        group_metadata: Any,
        timeout: float = -1,  # noqa: ARG002
    ) -> None:
        """Commit these offsets with the records."""
        self._require_transactional()
        offsets = [((one.topic, one.partition), Commit(one.offset, one.metadata or "")) for one in positions]
        self._offsets.append((group_metadata, offsets))

    def commit_transaction(self, timeout: float = -1) -> None:  # noqa: ARG002
        """Write all records and offsets of the transaction, or none."""
        self._require_latest()
        cluster = self._cluster
        with cluster.changed:
            if self._refused is not None:
                raise KafkaException(self._refused)
            for metadata, _ in self._offsets:
                if cluster.group(metadata.group).generation != metadata.generation:
                    raise KafkaException(KafkaError(KafkaError.ILLEGAL_GENERATION, "the group has rebalanced"))
            for record, report in self._transaction:
                self._write(record, report)
            for metadata, offsets in self._offsets:
                cluster.commit(metadata.group, offsets)
            self._end()

    def abort_transaction(self, timeout: float = -1) -> None:  # noqa: ARG002
        """Discard the transaction."""
        self._require_transactional()
        for record, report in self._transaction:
            self._report(report, KafkaError(KafkaError._PURGE_QUEUE, "the transaction was aborted"), as_message(record))
        self._end()

    def _end(self) -> None:
        self._transaction.clear()
        self._offsets.clear()
        self._in_transaction = False

    def _require_open(self) -> None:
        if self._closed:
            raise RuntimeError(_CLOSED)

    def _require_transactional(self) -> str:
        self._require_open()
        if self._id is None:
            code = KafkaError._NOT_CONFIGURED  # noqa: SLF001 - confluent-kafka names it so
            raise KafkaException(KafkaError(code, "transactions need a transactional.id"))
        return self._id

    def _require_latest(self) -> None:
        if self._cluster.transactional_ids.get(self._require_transactional()) != self._epoch:
            raise KafkaException(
                KafkaError(KafkaError._FENCED, "another producer has the transactional id", fatal=True)
            )

    def produce_batch(
        self,
        topic: str,
        messages: list[dict[str, Any]],
        partition: int = -1,
        callback: _Report | None = None,
        on_delivery: _Report | None = None,
    ) -> int:
        """Produce each message without its headers, as confluent-kafka does; return how many."""
        for one in messages:
            at, report = one.get("partition", partition), one.get("callback") or on_delivery or callback
            self.produce(topic, one.get("value"), one.get("key"), at, on_delivery=report)
        return len(messages)


def as_bytes(text: str | bytes | None) -> bytes | None:
    """Encode text as UTF-8, as confluent-kafka does.

    Raises:
        TypeError: neither text nor bytes, with confluent-kafka's words.
    """
    if not isinstance(text, str | bytes | None):
        raise TypeError(f"a bytes-like object is required, not '{type(text).__name__}'")
    return text.encode() if isinstance(text, str) else text


def as_headers(headers: dict[str, Any] | list[tuple[str, Any]] | None) -> tuple[Header, ...]:
    """Check headers like confluent-kafka: a list of pairs or a dictionary, with values of text, bytes or None.

    Raises:
        TypeError: something else, with confluent-kafka's words.
    """
    if not isinstance(headers, dict | list | None):
        kind = type(headers).__name__
        raise TypeError(f"expected headers to be dict or list of (key, value) tuples, not {kind}")
    pairs = list(headers.items()) if isinstance(headers, dict) else headers or []
    for pair in pairs:
        if not isinstance(pair, tuple) or len(pair) != len(("key", "value")):
            raise TypeError("Headers are expected to be a list of (key, value) tuples")
        if not isinstance(pair[1], bytes | str | None):
            kind = type(pair[1]).__name__
            raise TypeError(f"expected header value to be None, binary, or unicode string, not {kind}")
    return tuple((name, as_bytes(value)) for name, value in pairs)


def as_message(
    record: Unwritten, partition: int = -1, offset: int = -1001, timestamp: tuple[int, int] = (0, -1)
) -> Message:
    """Return a record as confluent-kafka would show it."""
    return Message(
        topic=record.topic,
        partition=partition,
        offset=offset,
        key=record.key,
        value=record.value,
        headers=cast("Any", list(record.headers) or None),
        timestamp=timestamp,
    )
