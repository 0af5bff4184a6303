"""Kafka's errors in our words, and the settings of every client that we make."""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Mapping
from gc import get_referents
from operator import methodcaller
from typing import Any, Final, cast

from confluent_kafka import KafkaError, KafkaException, Message, Producer, TopicPartition

from reconsume.bridge.connection_errors import ConnectionErrors
from reconsume.delay_levels.errors import (
    KafkaNotReachable,
    KafkaRefused,
    ReconsumeError,
    RecordTooLarge,
    TopicNotReady,
)
from reconsume.delay_levels.wire.properties import Header

__all__ = [
    "FLUSHED_LINGER_MS",
    "client_settings",
    "compresses",
    "consumer_settings",
    "headers_of",
    "is_passing",
    "is_rebalance",
    "is_refusal",
    "metadata_of",
    "producer_settings",
    "refusing_topic",
    "transactional_settings",
    "translate",
    "why_failed",
]

logger = logging.getLogger(__name__)

_NOT_REACHABLE: Final = frozenset(
    {
        KafkaError._TRANSPORT,
        KafkaError._ALL_BROKERS_DOWN,
        KafkaError._TIMED_OUT,
        KafkaError._TIMED_OUT_QUEUE,
        KafkaError._MSG_TIMED_OUT,
        KafkaError._RESOLVE,
        KafkaError.REQUEST_TIMED_OUT,
        KafkaError.BROKER_NOT_AVAILABLE,
        KafkaError.LEADER_NOT_AVAILABLE,
        KafkaError.NOT_LEADER_FOR_PARTITION,
        KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
        KafkaError.COORDINATOR_NOT_AVAILABLE,
        KafkaError.NOT_COORDINATOR,
        KafkaError.NETWORK_EXCEPTION,
        KafkaError.NOT_ENOUGH_REPLICAS,
        KafkaError.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
        KafkaError.KAFKA_STORAGE_ERROR,
        KafkaError.NOT_CONTROLLER,
        KafkaError.UNKNOWN_LEADER_EPOCH,
        KafkaError.FENCED_LEADER_EPOCH,
    }
)
_NO_TOPIC: Final = frozenset(
    {KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError._UNKNOWN_TOPIC, KafkaError._UNKNOWN_PARTITION}
)
_REMEDY_IF_MISSING: Final = (
    "`reconsume topics apply` creates the topics of reconsume, `kafka-topics.sh --create` or its owner any other"
)
_RIGHTS: Final = {
    KafkaError.TOPIC_AUTHORIZATION_FAILED: "the topic",
    KafkaError.GROUP_AUTHORIZATION_FAILED: "the consumer group",
    KafkaError.CLUSTER_AUTHORIZATION_FAILED: "the cluster",
    KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED: "the transactional id",
}
_DEFINITE: Final = frozenset(
    {
        KafkaError.MSG_SIZE_TOO_LARGE,
        KafkaError.RECORD_LIST_TOO_LARGE,
        KafkaError.INVALID_MSG,
        KafkaError.INVALID_RECORD,
        KafkaError.INVALID_TIMESTAMP,
        KafkaError.TOPIC_EXCEPTION,
        KafkaError.INVALID_PARTITIONS,
        KafkaError.INVALID_REPLICATION_FACTOR,
        KafkaError.INVALID_CONFIG,
        KafkaError.INVALID_REQUEST,
        KafkaError.POLICY_VIOLATION,
        KafkaError.UNSUPPORTED_VERSION,
        KafkaError.UNSUPPORTED_FOR_MESSAGE_FORMAT,
        KafkaError.SECURITY_DISABLED,
        KafkaError._INVALID_ARG,
    }
)
_TOO_LARGE: Final = dict.fromkeys(
    (KafkaError.MSG_SIZE_TOO_LARGE, KafkaError.RECORD_LIST_TOO_LARGE),
    (RecordTooLarge, "; make it smaller, or raise the topic's max.message.bytes"),
)
_REBALANCED: Final = frozenset(
    {
        KafkaError.ILLEGAL_GENERATION,
        KafkaError.UNKNOWN_MEMBER_ID,
        KafkaError.FENCED_INSTANCE_ID,
        KafkaError.REBALANCE_IN_PROGRESS,
        KafkaError.STALE_MEMBER_EPOCH,
        KafkaError.FENCED_MEMBER_EPOCH,
    }
)
_INFO: Final = 6
"""Of syslog: a broker that closes a connection is logged so, and told in no other way."""
FLUSHED_LINGER_MS: Final = 50
"""Of a producer that is flushed when a batch is complete, as a commit does, so it costs no time. A shorter one splits
the batch into requests, and while one of a partition has no answer librdkafka (2.16) spins over records that linger no
more."""
_UNKNOWN_NAME: Final = "\N{REPLACEMENT CHARACTER}"
_HEADERS: Final[Callable[[Message], list[Header] | None]] = methodcaller("headers")
"""Not `message.headers()`: once that is specialised, Python (3.11) sees an error in it only at some later call."""
_LOGIN: Final = frozenset({KafkaError._AUTHENTICATION, KafkaError.SASL_AUTHENTICATION_FAILED, KafkaError._SSL})


def is_passing(error: KafkaError) -> bool:
    """Whether the same request may succeed later without anybody changing anything."""
    return error.code() in _NOT_REACHABLE or (error.retriable() and error.code() not in _NO_TOPIC)


def is_rebalance(error: KafkaError) -> bool:
    """Whether the group has refused offsets of a member that it has not, or not as it was."""
    return error.code() in _REBALANCED


def is_refusal(error: KafkaError) -> bool:
    """Whether one record is to blame; librdkafka reports the others of its batch as purged."""
    return error.code() in (
        KafkaError.MSG_SIZE_TOO_LARGE,
        KafkaError.TOPIC_AUTHORIZATION_FAILED,
        KafkaError.UNKNOWN_TOPIC_OR_PART,
        KafkaError._UNKNOWN_TOPIC,
        KafkaError._UNKNOWN_PARTITION,
        KafkaError.INVALID_MSG,
        KafkaError.INVALID_RECORD,
        KafkaError.INVALID_TIMESTAMP,
        KafkaError.POLICY_VIOLATION,
        KafkaError.RECORD_LIST_TOO_LARGE,
        KafkaError.TOPIC_EXCEPTION,
    )


def refusing_topic(cause: KafkaError) -> str:
    """Return the topic that librdkafka (2.16) names where a produce request was refused, else nothing."""
    named = re.search(r"ProduceRequest for (\S+) \[\d+\]", cause.str())
    return named[1] if named else ""


def translate(
    error: KafkaException | KafkaError, doing: str, remedy_if_missing: str = _REMEDY_IF_MISSING
) -> ReconsumeError:
    """The error of ours for one of Kafka's.

    Args:
        error: what confluent-kafka raised or reported.
        doing: what was being done, with its topic or group; the message starts with it.
        remedy_if_missing: what creates the topic, where the caller knows whose it is.
    """
    cause = error.args[0] if isinstance(error, KafkaException) else error
    if not isinstance(cause, KafkaError):
        return KafkaRefused(f"{doing}: {cause}")
    code = cause.code()
    if code in _RIGHTS:
        return KafkaRefused(
            f"{doing}: no right to use {_RIGHTS[code]} ({cause.name()}); grant it to this client's principal"
        )
    if code in _LOGIN:
        return KafkaRefused(f"{doing}: the brokers do not accept this client ({cause.str()}); check [kafka]")
    if code in _NO_TOPIC:
        return TopicNotReady(f"{doing}: the topic does not exist; {remedy_if_missing}")
    if code in _DEFINITE or cause.fatal():
        kind, way_out = _TOO_LARGE.get(code, (KafkaRefused, ""))
        return kind(f"{doing}: {cause.name()}: {cause.str()}{way_out}")
    # What nobody has thought of is no verdict on a record: it is reported and tried again.
    known = "no answer from Kafka" if is_passing(cause) else cause.name()
    return KafkaNotReachable(f"{doing}: {known}: {cause.str()}")


def client_settings(base: Mapping[str, Any], client_id: str) -> dict[str, Any]:
    """Settings for any client; of librdkafka's own lines the log has the critical ones, `ConnectionErrors` all.

    Brokers that are back are found within a second, as Java's clients do; librdkafka's default waits for up to 10 s.
    Topics of ours are not made by asking for them, which librdkafka's producers and admin clients would do with one
    that was deleted: brokers would make it with the clock of its producers (`CreateTime`).
    """
    defaults = {"client.id": client_id, "log_level": _INFO, "allow.auto.create.topics": False}
    # librdkafka refuses a longest wait that is below the first one.
    if "reconnect.backoff.ms" not in base:
        defaults["reconnect.backoff.max.ms"] = 1_000
    heard = ConnectionErrors(base, client_id)
    return defaults | dict(base) | {"error_cb": heard, "logger": heard}


def consumer_settings(base: Mapping[str, Any], client_id: str) -> dict[str, Any]:
    """Settings for a consumer that commits by itself and sees committed records only.

    New topics are found within 10 s; librdkafka's own refresh takes 5 minutes.
    """
    defaults = {
        "enable.auto.commit": False,
        "enable.auto.offset.store": False,
        "isolation.level": "read_committed",
        "topic.metadata.refresh.interval.ms": 10_000,
        "enable.partition.eof": False,
        # Also for a start at the beginning: librdkafka falls back on this when that start fails for a moment.
        "auto.offset.reset": "earliest",
    }
    return defaults | client_settings(base, client_id)


def producer_settings(base: Mapping[str, Any], client_id: str) -> dict[str, Any]:
    """Settings for an idempotent producer that puts keys where a Java client would.

    A record is retried until the brokers answer (`message.timeout.ms` 0): giving up after a time would leave open
    whether it was stored, and a second copy would be a duplicate.
    """
    defaults = {
        "enable.idempotence": True,
        "acks": "all",
        "partitioner": "murmur2_random",
        "linger.ms": 5,
        "message.timeout.ms": 0,
        "message.max.bytes": 100_000_000,
        "retry.backoff.ms": 10,
        "retry.backoff.max.ms": 500,
        "queue.buffering.max.messages": 200_000,
    }
    return defaults | client_settings(base, client_id)


def transactional_settings(base: Mapping[str, Any], transactional_id: str, timeout_ms: int) -> dict[str, Any]:
    """Settings for a transactional producer; its transactional id is its client id too.

    The short retry back-off matters: the next transaction meets the last one still completing, and librdkafka's
    default then waits 100 ms.
    """
    return producer_settings(base, transactional_id) | {
        "transactional.id": transactional_id,
        "transaction.timeout.ms": timeout_ms,
        # librdkafka wants a record's patience to be shorter than the transaction's.
        "message.timeout.ms": max(1_000, timeout_ms - 1_000),
        "linger.ms": FLUSHED_LINGER_MS,
        "retry.backoff.ms": 1,
        "retry.backoff.max.ms": 10,
    }


def compresses(base: Mapping[str, Any]) -> bool:
    """Whether producers with these settings compress what they send."""
    return any(base.get(name, "none") != "none" for name in ("compression.type", "compression.codec"))


def why_failed(producer: Producer, error: KafkaException) -> KafkaException:
    """The error for which librdkafka has failed an open transaction, where a call only says that it has (`_STATE`).

    A record is refused in the background, so whatever is called next may be told of it in this way. To begin a
    transaction is then answered with the reason, and does nothing while one is open.
    """
    if error.args[0].code() == KafkaError._STATE:
        try:
            producer.begin_transaction()
        except KafkaException as reason:
            if reason.args[0].code() != KafkaError._STATE:
                return reason
    return error


def headers_of(message: Message) -> list[Header]:
    r"""A record's headers; confluent-kafka decodes them on first use and keeps the list, so it is not ours to change.

    A name that is not UTF-8, which Java clients cannot write but C clients can, is shown with escapes such as `\xff`,
    of several each as U+FFFD, and the log says so. Its value and all other headers are as they were.
    """
    try:
        headers = _HEADERS(message) or []
    except SystemError as error:
        return _with_names(message, error)
    # Whoever asked before us had the error; the list that confluent-kafka (2.16) keeps then has null pointers for
    # names, and a program that touches one crashes. The garbage collector's view leaves them out.
    if len(get_referents(*headers)) != 2 * len(headers):
        return _with_names(message, None)
    return headers


def _with_names(message: Message, error: BaseException | None) -> list[Header]:
    """Fill the places of the names that could not be decoded, for good.

    Args:
        message: whose list of headers has null pointers.
        error: what confluent-kafka raised, if it did so here; one of its causes holds one of the names.
    """
    bad = error
    while bad is not None and not isinstance(bad, UnicodeDecodeError):
        bad = bad.__cause__
    if error is not None and bad is None:
        raise error
    headers = _HEADERS(message) or []
    missing = [index for index, header in enumerate(headers) if len(get_referents(header)) == 1]
    name = bad.object.decode(errors="backslashreplace") if bad is not None and len(missing) == 1 else _UNKNOWN_NAME
    mended = [(name if index in missing else header[0], header[1]) for index, header in enumerate(headers)]
    message.set_headers(cast("Any", mended))
    logger.warning(
        "%s-%s@%s: names of headers are not UTF-8; its headers are now called %s",
        *(message.topic(), message.partition(), message.offset(), [name for name, _ in mended]),
    )
    return mended


def metadata_of(committed: TopicPartition) -> str | None:
    """What stands beside a committed offset; None where it is no text, as what franz-go writes."""
    try:
        return committed.metadata
    except UnicodeDecodeError:
        return None
