"""The copy of a message that is sent back, for a delay topic or a dead-letter topic."""

from __future__ import annotations

import re
import traceback
from contextlib import suppress
from dataclasses import dataclass
from typing import Final, NamedTuple, Self

from reconsume.delay_levels.errors import MalformedProperty
from reconsume.delay_levels.foreign_values import plain_text, type_name
from reconsume.delay_levels.rules.retry_policies import RetryPolicy
from reconsume.delay_levels.rules.send_back import DEFAULT_MAX_RECONSUME_TIMES, DeadLetter, Delayed, decide_send_back
from reconsume.delay_levels.wire.names import DLQ_PREFIX, RETRY_PREFIX, TopicNames
from reconsume.delay_levels.wire.properties import (
    BORN_TIMESTAMP,
    DELAY,
    DLQ_ERRORS,
    FIRST_FAILURE_TIMESTAMP,
    LARGEST,
    LARGEST_PARTITION,
    MAX_RECONSUME_TIMES,
    ORIGIN_MESSAGE_ID,
    REAL_QID,
    REAL_TOPIC,
    RECONSUME_TIME,
    RETRY_TOPIC,
    Header,
    Headers,
    count_property,
    replace_properties,
    text_property,
)

_POSITION: Final = re.compile(r"([^/]+)/([0-9]{1,10})/([0-9]{1,19})", re.ASCII)
_MESSAGE_BYTES: Final = 1024
_STACKTRACE_BYTES: Final = 4096


class Position(NamedTuple):
    """The position of a record; its text `<topic>/<partition>/<offset>` is the origin message id."""

    topic: str
    partition: int
    offset: int

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read an origin message id.

        Raises:
            MalformedProperty: not of that form.
        """
        match = _POSITION.fullmatch(text)
        found = cls(match[1], int(match[2]), int(match[3])) if match else None
        if found is None or found.partition > LARGEST_PARTITION or found.offset > LARGEST:
            raise MalformedProperty(
                f"origin message id {text[:80]!r} must be <topic>/<partition>/<offset>, such as orders/3/42"
            )
        return found

    def __str__(self) -> str:
        return f"{self.topic}/{self.partition}/{self.offset}"


def topic_of(origin_message_id: str) -> str | None:
    """Return the topic in an origin message id; None for ids of another form, which plain clients may have."""
    try:
        return Position.parse(origin_message_id).topic
    except MalformedProperty:
        return None


@dataclass(frozen=True, slots=True)
class Cause:
    """The reason of a failure; dead letters have it, cut to 1 KiB and 4 KiB.

    At most 16,384 characters of an exception, or of a user's text, are kept for each field.
    """

    message: str
    exception_class: str | None = None
    stacktrace: str | None = None

    @classmethod
    def of(cls, error: BaseException) -> Self:
        """Read an exception; never raises, whatever the exception does."""
        kind = type(error)
        text = plain_text(lambda: str(error)) or _without_text(error)
        name = plain_text(lambda: f"{kind.__module__}.{kind.__qualname__}") or type_name(kind)
        return cls(text, name, plain_text(lambda: "".join(traceback.format_exception(error))) or None)

    @classmethod
    def saying(cls, text: str) -> Self:
        """Return the cause with a user's text."""
        return cls(plain_text(lambda: text))


def _without_text(error: BaseException) -> str:
    name = type_name(type(error))
    try:
        return name if str(error) == "" else f"{name} with a text that cannot be read"
    except BaseException as second:  # noqa: BLE001 - a `__str__` may raise anything
        return f"{name}, whose __str__ raised {type_name(type(second))}"


class Stored(NamedTuple):
    """The history of a record, from its headers.

    Attributes:
        origin_topic: where it was first published; None if its headers do not name it.
        origin_message_id: the id of its first copy, the same over all hops (RocketMQ loses its own on some: SB-08).
        reconsume_times: how often it was sent back.
        born_ms: timestamp of its first copy.
        first_failed_ms: when it was first sent back; None if never, or by a version that did not write it.
    """

    origin_topic: str | None
    origin_message_id: str
    reconsume_times: int
    born_ms: int
    first_failed_ms: int | None = None

    @classmethod
    def first_copy(cls, position: Position, timestamp_ms: int) -> Self:
        """Describe a record of an ordinary topic: reconsume's headers on it are leftovers of a copy, not its past.

        Its count starts at 0. Without a timestamp (-1), or of before 1970, it counts as of 1970: a header must be 0 or
        more. Test: tests/unit/delay_levels/rules/test_send_back.py.
        """
        return cls(position.topic, str(position), 0, max(0, timestamp_ms))

    @classmethod
    def of_retry(cls, headers: Headers, position: Position, timestamp_ms: int) -> Self:
        """Describe a record that reconsume has written before.

        Without `RETRY_TOPIC` the origin topic is the one in the origin id; without either it is the record's own topic
        (RocketMQ: BR-10).

        Raises:
            MalformedProperty: a header has an invalid value.
        """
        born_ms = count_property(headers, BORN_TIMESTAMP)
        identity = text_property(headers, ORIGIN_MESSAGE_ID) or str(position)
        return cls(
            origin_topic=text_property(headers, RETRY_TOPIC) or topic_of(identity) or position.topic,
            origin_message_id=identity,
            reconsume_times=count_property(headers, RECONSUME_TIME) or 0,
            born_ms=max(0, timestamp_ms) if born_ms is None else born_ms,
            first_failed_ms=count_property(headers, FIRST_FAILURE_TIMESTAMP),
        )


class SendBackRequest(NamedTuple):
    """A failed message, with the fields of RocketMQ's request CONSUMER_SEND_MSG_BACK (SB-02).

    Attributes:
        headers: all headers of the record as read; the user's return unchanged.
        delay_level: the requested level; 0 for none, below 0 for the dead-letter topic.
        max_reconsume_times: the consumer's own maximum; None uses the group's.
    """

    group: str
    headers: Headers
    stored: Stored
    delay_level: int = 0
    max_reconsume_times: int | None = None
    cause: Cause | None = None


class SendBackCopy(NamedTuple):
    """The record to write: key and value are the failed record's own."""

    topic: str
    headers: list[Header]
    outcome: Delayed | DeadLetter


def send_back_copy(
    request: SendBackRequest,
    names: TopicNames,
    policy: RetryPolicy,
    *,
    group_max_reconsume_times: int = DEFAULT_MAX_RECONSUME_TIMES,
    real_qid: int = 0,
    failed_ms: float | None = None,
) -> SendBackCopy:
    """Apply the rule, and build the copy for the delay topic; a dead letter goes to `DELAY.0s`.

    The consumer's own maximum overrides the group's (RocketMQ: BR-12).

    Args:
        request: the failed message.
        names: the installation's topics.
        policy: the level table or the group's retry policy.
        group_max_reconsume_times: the group's `retryMaxTimes`.
        real_qid: the target partition of the retry topic (RocketMQ: BR-05).
        failed_ms: the current time, which stays on the message after a first send-back; None writes nothing.
    """
    maximum = request.max_reconsume_times
    if maximum is None:
        maximum = group_max_reconsume_times
    stored = request.stored
    outcome = decide_send_back(stored.reconsume_times, request.delay_level, maximum, policy)
    if isinstance(outcome, DeadLetter):
        prefix, level, delay_ms, qid, more = DLQ_PREFIX, 0, 0, 0, _dead_letter_properties(request, outcome)
    else:
        prefix, level, delay_ms, qid, more = RETRY_PREFIX, outcome.level, outcome.delay_ms, real_qid, {}
    properties = {} if stored.origin_topic is None else {RETRY_TOPIC: stored.origin_topic}
    properties |= {
        ORIGIN_MESSAGE_ID: stored.origin_message_id,
        RECONSUME_TIME: str(outcome.reconsume_times),
        DELAY: str(level),
        REAL_TOPIC: prefix + request.group,
        REAL_QID: str(qid),
        BORN_TIMESTAMP: str(stored.born_ms),
    }
    properties |= first_failure_properties(stored, failed_ms)
    if request.max_reconsume_times is not None:
        properties[MAX_RECONSUME_TIMES] = str(request.max_reconsume_times)
    return SendBackCopy(names.delay(delay_ms), replace_properties(request.headers, properties | more), outcome)


def first_failure_properties(stored: Stored, failed_ms: float | None) -> dict[str, str]:
    """Return when the message was first sent back: the stored time, or now if there is none."""
    first = stored.first_failed_ms
    if first is None and stored.reconsume_times == 0 and failed_ms is not None:
        first = max(0, int(failed_ms))
    return {} if first is None else {FIRST_FAILURE_TIMESTAMP: str(first)}


def _dead_letter_properties(request: SendBackRequest, outcome: DeadLetter) -> dict[str, str]:
    """The headers that Kafka's share groups write to dead-letter topics (KIP-1191), and the exception."""
    properties = {}
    origin_topic = request.stored.origin_topic
    if origin_topic is not None:
        properties[DLQ_ERRORS + "topic"] = origin_topic
    with suppress(MalformedProperty):
        # A plain client may use its own ids; then only the topic is known.
        origin = Position.parse(request.stored.origin_message_id)
        if origin.topic == origin_topic:
            properties[DLQ_ERRORS + "partition"] = str(origin.partition)
            properties[DLQ_ERRORS + "offset"] = str(origin.offset)
    properties[DLQ_ERRORS + "group"] = request.group
    properties[DLQ_ERRORS + "delivery.count"] = str(outcome.reconsume_times)
    return properties | cause_properties(request.cause, outcome.reason)


def cause_properties(cause: Cause | None, otherwise: str) -> dict[str, str]:
    """Return the headers of a cause; without one its message is `otherwise`."""
    properties = {DLQ_ERRORS + "message": _cut(cause.message if cause else otherwise, _MESSAGE_BYTES)}
    if cause is not None and cause.exception_class is not None:
        properties[DLQ_ERRORS + "exception.class"] = _cut(cause.exception_class, _MESSAGE_BYTES)
    if cause is not None and cause.stacktrace is not None:
        properties[DLQ_ERRORS + "stacktrace"] = _cut(cause.stacktrace, _STACKTRACE_BYTES)
    return properties


def _cut(text: str, limit: int) -> str:
    """Cut a text to `limit` bytes of UTF-8, never within a character."""
    return text.encode(errors="replace")[:limit].decode(errors="ignore")
