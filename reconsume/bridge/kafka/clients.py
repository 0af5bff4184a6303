"""Makes all Kafka clients, and provides the clock.

Some addresses are served within this process: `reconsume.testing` has in-memory Kafkas.

Guarantees: the address alone selects an in-memory Kafka, so users test their own construction of consumers; the
drop-in, a C class, uses `DerivedConsumer` for this. Test: tests/contract/test_drop_in.py.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, Final, TypeVar

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, __version__, libversion
from confluent_kafka.admin import AdminClient

from reconsume.bridge.librdkafka.admin_threads import DestroyedByPython, destroy_kept
from reconsume.bridge.librdkafka.callback_errors import with_catchable
from reconsume.bridge.librdkafka.fatal_errors import wait_for_reports
from reconsume.bridge.process.brokers_clock import monotonic_ms
from reconsume.bridge.process.clock import Clock, now_ms
from reconsume.bridge.process.safe_logger import SafeLogger
from reconsume.delay_levels.errors import IllegalSetting

logger = SafeLogger(__name__)

C = TypeVar("C", bound=Consumer)
M = TypeVar("M")

IN_MEMORY: Final = ".in-memory.invalid:9092"
"""The end of the address of each in-memory Kafka; no name server knows the domain (RFC 2606)."""
_FULL_SECONDS: Final = 0.05


def _made(kind: Callable[[dict[str, Any]], M], settings: Mapping[str, Any]) -> M:
    """Make a client; report settings that librdkafka refuses as errors of the user's setting."""
    try:
        return kind(with_catchable(settings))
    except KafkaException as error:
        cause = error.args[0]
        if isinstance(cause, KafkaError) and cause.code() == KafkaError._INVALID_ARG:
            way_out = "; set sasl.mechanism, such as SCRAM-SHA-512" if "GSSAPI" in cause.str() else ""
            raise IllegalSetting(f"setting kafka: librdkafka refuses it: {cause.str()}{way_out}") from error
        raise


class _Admin(DestroyedByPython, AdminClient):
    pass


class Clients:
    """Real clients and the real clock.

    Attributes:
        can_lose_offsets: whether a group's coordinator may forget committed offsets.
        outlive_the_process: whether open transactions of a process survive its restart.
    """

    can_lose_offsets = True
    outlive_the_process = True

    @property
    def clock(self) -> Clock:
        """Return the clock, in milliseconds."""
        return now_ms

    @property
    def steady_clock(self) -> Clock:
        """Return the clock for durations, in milliseconds: a step of the system clock does not move it."""
        return monotonic_ms

    def consumer(self, settings: Mapping[str, Any]) -> Consumer:
        """A consumer with librdkafka's settings."""
        return _made(Consumer, settings)

    def producer(self, settings: Mapping[str, Any]) -> Producer:
        """A producer with librdkafka's settings."""
        return _made(Producer, settings)

    def admin(self, settings: Mapping[str, Any]) -> AdminClient:
        """An admin client with librdkafka's settings."""
        destroy_kept()
        return _made(_Admin, settings)

    def consumer_class(self, derived: type[C]) -> type[C]:
        """Return the class for an object whose class derives from `confluent_kafka.Consumer`."""
        return derived


_REAL: Final = Clients()
_served: Final[dict[str, Clients]] = {}


def serve(bootstrap_servers: str, clients: Clients) -> None:
    """Make clients for this address with `clients` from now on."""
    _served[bootstrap_servers] = clients


def forget(bootstrap_servers: str) -> None:
    """Stop serving the address."""
    _served.pop(bootstrap_servers, None)


def clients_of(settings: Mapping[str, Any]) -> Clients:
    """Return the maker of clients for the address in these settings.

    Raises:
        IllegalSetting: the address of an in-memory Kafka that nobody serves here; clients would wait without end.
    """
    address = str(settings.get("bootstrap.servers"))
    if address.endswith(IN_MEMORY) and address not in _served:
        raise IllegalSetting(
            f"bootstrap_servers {address} is an InMemoryKafka that is closed, or of another process; "
            "start clients while it is open, in the process of the test"
        )
    return _served.get(address, _REAL)


def clock_of(settings: Mapping[str, Any]) -> Clock:
    """Return the clock for the address in these settings."""
    return clients_of(settings).clock


class DerivedConsumer(Consumer):
    """A `confluent_kafka.Consumer` to derive from, also with other constructors.

    If the address is served in memory, the object changes to a class that derives from the in-memory consumer instead
    of librdkafka's, so `super()` calls that one from then on.
    """

    def __init__(self, settings: Mapping[str, Any]) -> None:
        self.__class__ = clients_of(settings).consumer_class(type(self))
        super().__init__(with_catchable(settings))


def client_versions() -> dict[str, str]:
    """Return the versions of confluent-kafka and librdkafka."""
    return {"confluent-kafka": str(__version__), "librdkafka": libversion()[0]}


def make_consumer(settings: Mapping[str, Any]) -> Consumer:
    """Make a consumer for the address in its settings."""
    return clients_of(settings).consumer(settings)


def make_producer(settings: Mapping[str, Any]) -> Producer:
    """Make a producer for the address in its settings."""
    return clients_of(settings).producer(settings)


def make_admin(settings: Mapping[str, Any]) -> AdminClient:
    """Make an admin client for the address in its settings."""
    return clients_of(settings).admin(settings)


def produce_patiently(producer: Producer, *record: Any, **more: Any) -> None:
    """Call `produce`; while the producer's queue is full, serve delivery reports and try again."""
    while True:
        try:
            producer.produce(*record, **more)
        except BufferError:
            producer.poll(_FULL_SECONDS)
        else:
            return


def store(producer: Producer, records: Sequence[tuple[Any, ...]], seconds: float) -> list[tuple[str, int, int, int]]:
    """Write records and wait until the brokers have acknowledged all of them.

    Args:
        producer: a producer, with or without a transaction.
        records: topic, value, key, partition and headers of each.
        seconds: the longest wait.

    Returns:
        Topic, partition, offset and timestamp of each.

    Raises:
        KafkaException: a record was refused, or not acknowledged in time.
    """
    found: dict[int, tuple[str, int, int, int]] = {}
    failed: list[KafkaError] = []

    def told(index: int, error: KafkaError | None, message: Message) -> None:
        if error is None:
            place = message.topic() or "", message.partition() or 0, message.offset() or 0
            found[index] = (*place, message.timestamp()[1])
        else:
            failed.append(error)

    for index, (topic, value, key, partition, headers) in enumerate(records):
        produce_patiently(producer, topic, value, key, partition, partial(told, index), headers=list(headers))
    wait_for_reports(producer, seconds)
    if len(found) < len(records):
        raise KafkaException(failed[0] if failed else KafkaError(KafkaError._TIMED_OUT))
    return [found[index] for index in range(len(records))]


def discard_producer(producer: Producer) -> None:
    """Release a producer without waiting for records in flight; Kafka aborts its open transaction."""
    producer.purge()
    close_producer(producer)


def close_producer(producer: Producer) -> None:
    """Release a producer, even one with a fatal error.

    confluent-kafka 2.16 then raises `SystemError`, or the fatal error itself, which its user knows already.
    """
    try:
        producer.close()
    except SystemError as error:
        logger.debug("closing a producer with a fatal error: %s", error)
    except KafkaException as error:
        if not error.args[0].fatal():
            raise
        logger.debug("closing a producer with a fatal error: %s", error)
