"""Transactions of records that a person has chosen, with one writer for an id at a time."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Collection, Iterable, Sequence
from types import TracebackType
from typing import Any, Final, NamedTuple, Self

from reconsume.bridge.kafka.admin import Partition
from reconsume.bridge.kafka.client_settings import transactional_settings
from reconsume.bridge.kafka.clients import produce_patiently, store
from reconsume.bridge.kafka.cluster import Cluster
from reconsume.bridge.kafka.errors import not_wanted, translate, translated
from reconsume.bridge.kafka.group_consumer import names_of
from reconsume.bridge.process.brokers_clock import monotonic_ms
from reconsume.bridge.process.safe_logger import SafeLogger
from reconsume.bridge.writing.new_record import NewRecord
from reconsume.bridge.writing.transactions import (
    SHUT_OUT,
    START_SECONDS,
    InDoubt,
    Produce,
    ShutOut,
    Transactions,
    Undone,
)
from reconsume.delay_levels.errors import ReconsumeError, WriterReplaced
from reconsume.delay_levels.wire.send_back_copy import Position

logger = SafeLogger(__name__)

_TRIES: Final = 10
_SHOWN_SECONDS: Final = 5.0
_LOOK_EVERY_SECONDS: Final = 0.02
_AGAIN: Final = "Run it again: it leaves out sent records"
TRANSACTION_SECONDS: Final = 15.0
"""Brokers abort a transaction after this time."""


class Acknowledged(NamedTuple):
    """The acknowledged records of an open transaction.

    Attributes:
        places: the place of each record, in order.
        until_ms: by the brokers' clock, a moment after all were stored and acknowledged.
    """

    places: list[Position]
    until_ms: float


class ExclusiveWriter:
    """Fences every other writer of the same id; use it as a context manager. All calls have a time limit.

    Args:
        cluster: the target cluster.
        transactional_id: the same in all processes that do this work.
        doing: the beginning of error messages.
    """

    def __init__(self, cluster: Cluster, transactional_id: str, doing: str) -> None:
        self._doing = doing
        settings = transactional_settings(cluster.base, transactional_id, int(TRANSACTION_SECONDS * 1_000))
        self._transactions = Transactions(settings)
        self._registration = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._transactions.close()

    def take_over(self, seconds: float = START_SECONDS) -> None:
        """Fence the others: what they have committed by now is final.

        Args:
            seconds: the time limit.

        Raises:
            KafkaNotReachable: no answer.
            KafkaRefused: the right to the transactional id is missing.
        """
        with translated(f"{self._doing}: registering the transactional id"):
            self._transactions.register(seconds)
        self._registration = self._transactions.registrations

    @property
    def is_alone(self) -> bool:
        """Return whether no other writer can have committed anything since `take_over`.

        Guarantees: a slow transaction replaces the producer. The new registration fences a writer that came in between,
        which may have committed before: take over again and read what was written. So may one while the new producer
        is not registered yet. Tests: tests/unit/bridge/writing/test_exclusive_writer.py,
        tests/integration/operations/test_dlq.py.
        """
        return self._transactions.is_registered and self._registration == self._transactions.registrations

    def write_records(self, records: Iterable[NewRecord]) -> None:
        """Commit these records atomically; errors as those of `write`."""
        self._commit(lambda: self._transactions.write_records(records, seconds=TRANSACTION_SECONDS))

    def write_after(self, first: Sequence[NewRecord], then: Callable[[Acknowledged], Iterable[NewRecord]]) -> None:
        """Commit records, and others that depend on the place or time of these; errors as those of `write`.

        Args:
            first: records to write first; their topics have the brokers' timestamps.
            then: returns the others. If it raises a `ReconsumeError`, nothing is committed.
        """
        refused: list[ReconsumeError] = []

        def produce(producer: Any) -> None:
            began = monotonic_ms()
            stored = store(producer, first, TRANSACTION_SECONDS)
            until_ms = max((at_ms for *_, at_ms in stored), default=0) + monotonic_ms() - began
            try:
                others = list(then(Acknowledged([Position(*one[:3]) for one in stored], until_ms)))
            except ReconsumeError as error:
                refused.append(error)
                raise not_wanted() from error
            for topic, value, key, partition, headers in others:
                produce_patiently(producer, topic, value, key, partition, headers=list(headers))

        try:
            self.write(produce)
        except ReconsumeError:
            if refused:
                raise refused[0] from None
            raise

    def write(self, produce: Produce) -> None:
        """Commit records atomically.

        Args:
            produce: produces the records, in another thread; may wait for delivery reports.

        Raises:
            KafkaNotReachable: nothing was committed, or that is unknown; read the topics after `take_over`.
            KafkaRefused: rights are missing, a record is refused, or another writer has taken over. Nothing was
                committed, unless the message says that the last records may have been sent.
        """
        self._commit(lambda: self._transactions.write(produce, seconds=TRANSACTION_SECONDS))

    def _commit(self, write: Callable[[], None]) -> None:
        try:
            with translated(f"{self._doing}: registering the transactional id"):
                write()
        except Undone as error:
            raise translate(error.cause, self._doing) from error
        except (InDoubt, ShutOut) as error:
            if error.cause.code() in SHUT_OUT:
                raise WriterReplaced(
                    f"{self._doing}: another process has begun to do the same, so this one stops. {_AGAIN}"
                ) from error
            why = translate(error.cause, self._doing)
            raise type(why)(f"{why}; the last records may have been sent. {_AGAIN}") from error


def write_exclusively(
    cluster: Cluster, transactional_id: str, doing: str, decide: Callable[[], Iterable[NewRecord]]
) -> None:
    """Commit records that depend on what others have written.

    Guarantees: of two processes at the same time, the second reads what the first has committed. When this returns,
    readers see the records, but for the cases that `wait_until_shown` names.
    Tests: tests/integration/groups/test_groups_commands.py, tests/integration/operations/test_jobs.py.

    Args:
        cluster: the target cluster.
        transactional_id: the same in all processes that do this work.
        doing: the beginning of error messages.
        decide: reads, and returns the records to write; called again if another process came in between.

    Raises:
        KafkaNotReachable: nothing was committed, or that is unknown; the same call continues.
        KafkaRefused: rights are missing, or other processes came in between again and again.
    """
    with ExclusiveWriter(cluster, transactional_id, doing) as writer:
        for left in reversed(range(_TRIES)):
            writer.take_over()
            records = list(decide())
            try:
                if records:
                    writer.write_records(records)
            except WriterReplaced:
                if not left:
                    raise
                # Two processes must not fence each other repeatedly.
                time.sleep(random.uniform(0.1, 1.0))  # noqa: S311 - no secret
            else:
                wait_until_shown(cluster, {(one.topic, one.partition) for one in records})
                return


def wait_until_shown(cluster: Cluster, partitions: Collection[Partition]) -> None:
    """Wait until readers of these partitions see what was committed just now.

    A transaction is committed when its coordinator has decided it; the marks that end it on the partitions follow a
    moment later. Until then the next command, or the next page, would show the old state. An open transaction of
    another writer hides the records for longer: after 5 s, or without an answer, this logs it and returns.
    Test: tests/unit/bridge/writing/test_exclusive_writer.py.
    """
    try:
        written, until = cluster.admin.end_offsets(partitions, uncommitted=True), time.monotonic() + _SHOWN_SECONDS
        while hidden := [at for at, end in cluster.admin.end_offsets(partitions).items() if end < written[at]]:
            if time.monotonic() >= until:
                logger.warning("committed, but not shown yet behind an open transaction: %s", names_of(hidden))
                return
            time.sleep(_LOOK_EVERY_SECONDS)
    except ReconsumeError as error:
        logger.warning("committed, but perhaps not shown yet: %s", error)
