"""Translation of Kafka's errors."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from confluent_kafka import KafkaError, KafkaException, Producer

from reconsume.bridge.librdkafka.membership import MembershipLost, never_starts
from reconsume.bridge.process.polled_records import ClientError
from reconsume.delay_levels.errors import KafkaNotReachable, KafkaRefused, ReconsumeError, RecordTooLarge, TopicNotReady

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
NO_TOPIC: Final = frozenset(
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
_OF_A_RECORD: Final = frozenset(
    {
        KafkaError.MSG_SIZE_TOO_LARGE,
        KafkaError.RECORD_LIST_TOO_LARGE,
        KafkaError.INVALID_MSG,
        KafkaError.INVALID_RECORD,
        KafkaError.INVALID_TIMESTAMP,
        KafkaError.TOPIC_EXCEPTION,
        KafkaError.POLICY_VIOLATION,
    }
)
_DEFINITE: Final = _OF_A_RECORD | {
    KafkaError.INVALID_PARTITIONS,
    KafkaError.INVALID_REPLICATION_FACTOR,
    KafkaError.INVALID_CONFIG,
    KafkaError.INVALID_REQUEST,
    KafkaError.UNSUPPORTED_VERSION,
    KafkaError.UNSUPPORTED_FOR_MESSAGE_FORMAT,
    KafkaError.SECURITY_DISABLED,
    KafkaError._INVALID_ARG,
}
_REFUSALS: Final = _OF_A_RECORD | NO_TOPIC | {KafkaError.TOPIC_AUTHORIZATION_FAILED}
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
_OUT_OF_RANGE: Final = frozenset({KafkaError._AUTO_OFFSET_RESET, KafkaError.OFFSET_OUT_OF_RANGE})
_NO_OFFSET: Final = KafkaError(KafkaError._NO_OFFSET).str()
_WITHOUT_REASON: Final = frozenset({KafkaError._PURGE_QUEUE, KafkaError._PURGE_INFLIGHT, KafkaError._STATE})
"""The errors of records and calls after librdkafka has failed their transaction."""
_INSTANCE_FENCED: Final = "Static consumer fenced"
"""librdkafka's text for FENCED_INSTANCE_ID; in confluent-kafka 2.16 fatal errors of consumers have only the code
`_FATAL` (confluent-kafka-python issue 869)."""
_LOGIN: Final = frozenset({KafkaError._AUTHENTICATION, KafkaError.SASL_AUTHENTICATION_FAILED, KafkaError._SSL})


def is_end(error: ClientError) -> bool:
    """Return whether a partition was read to its end."""
    return error.code() == KafkaError._PARTITION_EOF


def is_missing(error: ClientError) -> bool:
    """Return whether the topic, or its partition, does not exist."""
    return error.code() in NO_TOPIC


def is_out_of_range(error: ClientError) -> bool:
    """Return whether a partition has no record at the offset, or no offset is committed."""
    return error.code() in _OUT_OF_RANGE


def has_no_offset(error: ClientError) -> bool:
    """Return whether the offset is out of range because none is committed."""
    return _NO_OFFSET in error.str()


def is_fatal(error: ClientError) -> bool:
    """Return whether the client is unusable; as a polled record, a fatal error does not report `fatal()`."""
    return error.fatal() or error.code() == KafkaError._FATAL


def start_error(error: ClientError, doing: str) -> ReconsumeError | None:
    """Return the error that ends a member some of whose partitions never start; None for any other error.

    `MembershipLost` if a new consumer helps, `KafkaRefused` if rights are missing.
    """
    if not never_starts(error):
        return None
    told = translate(error, doing)
    return told if isinstance(told, KafkaRefused) else MembershipLost(str(told))


def is_session_timeout_refused(error: ClientError) -> bool:
    """Return whether the brokers refuse the session timeout."""
    return error.code() == KafkaError.INVALID_SESSION_TIMEOUT


def is_instance_fenced(error: ClientError) -> bool:
    """Return whether another member has the same `group.instance.id`."""
    return error.code() == KafkaError.FENCED_INSTANCE_ID or _INSTANCE_FENCED in error.str()


def is_passing(error: ClientError) -> bool:
    """Return whether the same request may succeed later without any intervention."""
    return error.code() in _NOT_REACHABLE or (error.retriable() and error.code() not in NO_TOPIC)


def is_rebalance(error: ClientError) -> bool:
    """Return whether the group refused offsets because the member or its generation is outdated."""
    return error.code() in _REBALANCED


def is_refusal(error: ClientError) -> bool:
    """Return whether one record is to blame; librdkafka reports the others of its batch as purged."""
    return error.code() in _REFUSALS


def is_refusal_of_some(error: ClientError) -> bool:
    """Return whether some record of several is to blame; librdkafka may only report that some other one failed."""
    return is_refusal(error) or error.code() in (KafkaError._INCONSISTENT, KafkaError._INVALID_DIFFERENT_RECORD)


def refusing_topic(cause: ClientError) -> str:
    """Return the topic that librdkafka (2.16) names for a refused produce request, else nothing."""
    named = re.search(r"ProduceRequest for (\S+) \[\d+\]", cause.str())
    return named[1] if named else ""


def translate(
    error: KafkaException | ClientError, doing: str, remedy_if_missing: str = _REMEDY_IF_MISSING
) -> ReconsumeError:
    """Return reconsume's error for one of Kafka.

    Args:
        error: the error that confluent-kafka raised or reported.
        doing: the action with its topic or group; the beginning of the message.
        remedy_if_missing: the command that creates the topic, if the caller knows it.
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
    if code in NO_TOPIC:
        return TopicNotReady(f"{doing}: the topic does not exist; {remedy_if_missing}")
    if code in _DEFINITE or cause.fatal():
        kind, way_out = _TOO_LARGE.get(code, (KafkaRefused, ""))
        return kind(f"{doing}: {cause.name()}: {cause.str()}{way_out}")
    # An unknown error is not a verdict on a record: it is reported and the record tried again.
    known = "no answer from Kafka" if is_passing(cause) else cause.name()
    return KafkaNotReachable(f"{doing}: {known}: {cause.str()}")


@contextmanager
def translated(doing: str) -> Iterator[None]:
    """Translate confluent-kafka's exceptions in this block."""
    try:
        yield
    except KafkaException as error:
        raise translate(error, doing) from error


def why_failed(producer: Producer, error: KafkaException) -> KafkaException:
    """Return the reason for which librdkafka has failed an open transaction, for an error that only says so.

    Records are refused in the background, so any next call may get `_STATE`, and unsent records are reported as purged.
    Beginning a transaction then returns the reason, and does nothing while one is open.
    """
    if error.args[0].code() in _WITHOUT_REASON:
        try:
            producer.begin_transaction()
        except KafkaException as reason:
            if reason.args[0].code() != KafkaError._STATE:
                return reason
    return error


def not_wanted() -> KafkaException:
    """Return an exception that aborts a transaction from within, on its caller's request."""
    return KafkaException(KafkaError(KafkaError._PURGE_QUEUE))
