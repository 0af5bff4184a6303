"""Kafka transactions of records and a group's offsets, one after the other, also with failing brokers."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from contextlib import closing
from typing import Any, Final, NoReturn

from confluent_kafka import KafkaError, KafkaException, Message, Producer

from reconsume.bridge.kafka.admin import Commit, Partition
from reconsume.bridge.kafka.clients import discard_producer, make_producer, produce_patiently
from reconsume.bridge.kafka.connection_errors import ConnectionErrors
from reconsume.bridge.kafka.errors import is_rebalance, is_refusal, why_failed
from reconsume.bridge.kafka.group_consumer import in_commits
from reconsume.bridge.librdkafka.bounded_calls import BoundedCalls, SecondCallUnended
from reconsume.bridge.librdkafka.fatal_errors import fatal_error_of, wait_for_reports
from reconsume.bridge.librdkafka.transactional_calls import COMPLETING_MS, CONNECT_SECONDS, ProducerLog, commit, connect
from reconsume.bridge.process.brokers_clock import monotonic_ms
from reconsume.bridge.process.safe_logger import SafeLogger
from reconsume.bridge.writing.new_record import NewRecord

logger = SafeLogger(__name__)

Produce = Callable[[Producer], None]
"""Produces the records of one transaction."""

SHUT_OUT: Final = frozenset({KafkaError._FENCED, KafkaError.INVALID_PRODUCER_EPOCH, KafkaError.PRODUCER_FENCED})
"""The errors of a producer whose transactional id another one has taken over."""
PATIENCE_SECONDS: Final = 5.0
"""Time limit of each step of a transaction."""
START_SECONDS: Final = 30.0
"""Time limit of the first registration, while there is nothing to write."""
_GRACE_SECONDS: Final = 1.0
"""A call that exceeds its timeout by this much will not return."""
_AFTER_ITS_TIMEOUT_MS: Final = 2_000.0
"""Brokers have aborted a transaction by then, so waiting longer is useless."""
_PROMPT_MS: Final = 500.0
"""A longer transaction may have left requests behind."""
_STALE_MS: Final = 30_000.0
"""librdkafka may no longer look for its brokers; a producer that is not registered by then is given up."""


class _Ended(Exception):
    """A transaction that was not simply committed.

    Attributes:
        cause: the reason; not marked as fatal, because the next write uses a new producer.
    """

    def __init__(self, cause: KafkaError) -> None:
        super().__init__(cause.str())
        self.cause = KafkaError(cause.code(), cause.str(), retriable=cause.retriable())


class Undone(_Ended):
    """The transaction was aborted; the cause is a refusal if its records or offsets were refused."""


class InDoubt(_Ended):
    """The commit got no answer: the whole transaction counts, or none of it.

    When `Transactions.register` has returned, the outcome is decided, and the group's committed offsets show it.
    """


class ShutOut(_Ended):
    """The producer is unusable, and the outcome of its last transaction is unknown.

    The cause is one of `SHUT_OUT` if another producer has the same transactional id.
    """


class Transactions:
    """Transactions of one transactional id, for one thread at a time; no call hangs with librdkafka.

    Guarantees:
        1. Leftovers of a transaction never count for a later one. After each aborted or slow transaction, a producer
           with a newer epoch replaces the old one: only the epoch distinguishes transactions of one producer (before
           KIP-890, which librdkafka 2.16 lacks). A late repeated request would count for the next one: an `EndTxn` ends
           it too early, offsets of an aborted transaction are added. If librdkafka loses a broker, it may also reuse
           sequence numbers of stored records. Test: tests/integration/bridge/test_late_requests.py.
        2. `Undone` means that nothing was committed or will be.
        3. A call of librdkafka is awaited for at most its timeout plus a second.

    Args:
        settings: librdkafka settings of a transactional producer; `transaction.timeout.ms` bounds a commit too.

    Attributes:
        registrations: number of registrations; each fences all others with the same id.
        is_registered: whether the present producer is; if not, `write` registers it.
    """

    def __init__(self, settings: Mapping[str, Any]) -> None:
        self._settings = dict(settings)
        self._longest_ms = self._settings["transaction.timeout.ms"] + _AFTER_ITS_TIMEOUT_MS
        self._bounded = BoundedCalls()
        self._producer: Producer | None = None
        self._log = ProducerLog(logger)
        self._made_ms, self._committed_ms = 0.0, float("-inf")
        self.is_registered, self.registrations = False, 0

    def register(self, seconds: float) -> None:
        """Register a producer with its coordinator, which ends open transactions of the same id.

        Raises:
            KafkaException: not registered; the same call may succeed later.
        """
        if self.is_registered:
            return
        if self._producer is None:
            self._log, self._made_ms = ProducerLog(self._settings.get("logger", logger)), monotonic_ms()
            self._producer = make_producer(self._settings | {"logger": self._log})
        producer = self._producer

        def start() -> None:
            connect(producer)
            try:
                producer.init_transactions(seconds)
            except KafkaException as error:
                producer.poll(0)
                raise self._with_reason(error) from error

        try:
            self._within(seconds + CONNECT_SECONDS, start)
        except TimeoutError as error:
            raise self._with_reason(_no_answer("registering the transactional id")) from error
        except KafkaException as error:
            is_stale = monotonic_ms() - self._made_ms > _STALE_MS
            if error.args[0].code() != KafkaError._TIMED_OUT or is_stale:
                self._leave()
            raise
        self.is_registered = True
        self.registrations += 1

    def write(
        self,
        produce: Produce,
        offsets: Mapping[Partition, Commit] | None = None,
        group_metadata: Any = None,
        heard: Callable[[], KafkaError | None] = lambda: None,
        *,
        seconds: float | None = None,
        grows: bool = False,
    ) -> None:
        """Commit the records and the offsets atomically.

        Args:
            produce: produces the records; may be called in another thread.
            offsets: the offset to commit of each partition; `produce` may change them.
            group_metadata: the metadata of the member that has read the records.
            heard: returns the refusal of a record, from its delivery report.
            seconds: the time for everything before the commit, at most the transaction timeout; one step's by default.
            grows: whether `produce` changes the offsets; they are sent once, because an earlier request may come last.

        Raises:
            Undone, InDoubt, ShutOut: nothing was committed, or that is unknown.
            KafkaException: there is no registered producer, see `register`; nothing was begun.
        """
        self.register(PATIENCE_SECONDS)
        producer, began = self._ready(), monotonic_ms()
        is_soon = began - self._committed_ms < COMPLETING_MS

        def send_offsets(producer: Producer) -> None:
            for some in in_commits(offsets or {}):
                producer.send_offsets_to_transaction(some, group_metadata, PATIENCE_SECONDS)

        def prepare() -> None:
            producer.begin_transaction()
            for step in (send_offsets, produce) if is_soon and not grows else (produce, send_offsets):
                step(producer)

        self._do(prepare, began, heard, seconds or PATIENCE_SECONDS, is_committed=True)
        self._committed_ms = monotonic_ms()
        if self._committed_ms - began > _PROMPT_MS:
            self.renew()

    def write_records(
        self,
        records: Iterable[NewRecord],
        offsets: Mapping[Partition, Commit] | None = None,
        group_metadata: Any = None,
        *,
        seconds: float | None = None,
    ) -> None:
        """Commit these records and offsets atomically; arguments and errors as those of `write`."""
        refused: list[KafkaError] = []

        def told(error: KafkaError | None, _message: Message) -> None:
            if error is not None and is_refusal(error):
                refused.append(error)

        def produce(producer: Producer) -> None:
            for topic, value, key, partition, headers in records:
                produce_patiently(producer, topic, value, key, partition, told, headers=list(headers))

        self.write(produce, offsets, group_metadata, lambda: refused[0] if refused else None, seconds=seconds)

    def try_out(self, produce: Produce) -> None:
        """Write records and abort: readers of committed records never see them.

        Raises:
            Undone, ShutOut: the records were not written.
            KafkaException: there is no registered producer, see `register`.
        """
        self.register(PATIENCE_SECONDS)
        producer, began = self._ready(), monotonic_ms()

        def try_out() -> None:
            producer.begin_transaction()
            produce(producer)
            wait_for_reports(producer, PATIENCE_SECONDS)
            producer.abort_transaction(PATIENCE_SECONDS)

        self._do(try_out, began, lambda: None, 2 * PATIENCE_SECONDS, is_committed=False)

    def renew(self) -> None:
        """Continue with a new producer, whose epoch fences leftovers of this one."""
        self._leave()
        self._try_to_register()

    def close(self) -> None:
        """Release the producer, even a broken one, within seconds."""
        producer, self._producer, self.is_registered = self._producer, None, False
        with closing(self._bounded):
            if producer is not None:
                try:
                    self._bounded.run(lambda: discard_producer(producer), PATIENCE_SECONDS)
                except TimeoutError:
                    logger.warning("producer did not close in time; the next one aborts its open transaction")

    def _with_reason(self, error: KafkaException) -> KafkaException:
        """Return a timeout error with the known reason for the missing connection."""
        heard = self._settings.get("error_cb")
        if error.args[0].code() != KafkaError._TIMED_OUT or not isinstance(heard, ConnectionErrors):
            return error
        return KafkaException(heard.add_to(error.args[0]))

    def _ready(self) -> Producer:
        assert self._producer is not None
        return self._producer

    def _within(self, seconds: float, call: Callable[[], None], *then: Any) -> None:
        """Run calls with `BoundedCalls.run`; after a `TimeoutError` abandon the producer."""
        try:
            self._bounded.run(call, seconds + _GRACE_SECONDS, *then)
        except TimeoutError:
            self._leave()
            raise
        except SystemError as error:
            raise fatal_error_of(error) from error

    def _leave(self) -> None:
        """Abandon this producer, and the thread that may hang in it; that thread closes the producer if it ever can."""
        producer, self._log.is_left = self._ready(), True
        self._bounded.leave(lambda: discard_producer(producer))
        self._bounded = BoundedCalls()
        self._producer, self.is_registered = None, False

    def _do(
        self,
        call: Callable[[], None],
        began: float,
        heard: Callable[[], KafkaError | None],
        seconds: float,
        *,
        is_committed: bool,
    ) -> None:
        """Do the steps of a transaction and commit it; raises if it was aborted or its outcome is unknown.

        librdkafka can wait forever for a coordinator that was unreachable during the request. If that happens before
        the commit, the transaction is aborted.
        """
        producer, ends, is_committing = self._ready(), began + self._longest_ms + _GRACE_SECONDS * 1_000, False

        def step(call: Callable[[], None]) -> None:
            try:
                call()
            except KafkaException as error:
                # Which call reports a refused record, and with which error, is a matter of chance.
                producer.poll(0)
                told = heard()
                raise why_failed(producer, error) if told is None else KafkaException(told) from error

        def commits() -> None:
            nonlocal is_committing
            is_committing = True
            step(lambda: commit(producer, PATIENCE_SECONDS))

        then = (commits, lambda: (ends - monotonic_ms()) / 1_000) if is_committed else ()
        try:
            self._within(seconds, lambda: step(call), *then)
        except TimeoutError as error:
            self._try_to_register()
            cause = self._with_reason(_no_answer("a transaction")).args[0]
            raise (InDoubt if isinstance(error, SecondCallUnended) else Undone)(cause) from None
        except KafkaException as error:
            self._undo(producer, error.args[0], began, commits=is_committing)
        except Exception:
            self.renew()  # which ends the open transaction
            raise

    def _undo(self, producer: Producer, cause: KafkaError, began: float, *, commits: bool) -> NoReturn:
        """Abort the open transaction; if that fails, the registration of a new producer aborts it."""
        if _is_final(cause):
            self._leave()
            raise ShutOut(cause)
        try:
            self._within(PATIENCE_SECONDS, lambda: producer.abort_transaction(PATIENCE_SECONDS))
        except TimeoutError as error:
            self._try_to_register()
            raise self._after_no_abort(cause, commits=commits) from error
        except KafkaException as error:
            if _is_final(error.args[0]) and not _was_empty(cause, error.args[0]):
                self._leave()
                raise ShutOut(error.args[0]) from error
            self.renew()
            raise self._after_no_abort(cause, commits=commits) from error
        # All requests of a transaction that the group has refused were answered, if it did not take long.
        if not is_rebalance(cause) or monotonic_ms() - began > _PROMPT_MS:
            self.renew()
        raise Undone(cause)

    @staticmethod
    def _after_no_abort(cause: KafkaError, *, commits: bool) -> Undone | InDoubt:
        """Return the outcome if librdkafka cannot abort (`_CONFLICT`) because other records are in flight.

        A transaction with a refused record is never committed.
        """
        return InDoubt(cause) if commits and not is_refusal(cause) else Undone(cause)

    def _try_to_register(self) -> None:
        """Register at once, because leftovers may also begin a transaction of their own."""
        try:
            self.register(PATIENCE_SECONDS)
        except KafkaException as error:
            logger.debug("not registered yet, the next write gets the error: %s", error)


def _is_final(cause: KafkaError) -> bool:
    return cause.code() in SHUT_OUT or cause.fatal()


def _was_empty(cause: KafkaError, of_abort: KafkaError) -> bool:
    """Return whether the brokers had nothing to abort, which librdkafka treats as fatal: see `transactional_calls`."""
    return is_refusal(cause) and of_abort.code() == KafkaError.INVALID_TXN_STATE


def _no_answer(what: str) -> KafkaException:
    return KafkaException(KafkaError(KafkaError._TIMED_OUT, f"{what} has not ended"))
