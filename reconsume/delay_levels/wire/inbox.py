"""The SEND_BACK inbox: send-backs as ordinary messages, to which the scheduler applies the rule."""

from __future__ import annotations

from typing import Final

from reconsume.delay_levels.errors import MalformedProperty
from reconsume.delay_levels.rules.send_back import Delayed
from reconsume.delay_levels.wire.names import DLQ_PREFIX, RETRY_PREFIX, TopicNames, prefix_and_group
from reconsume.delay_levels.wire.properties import (
    BORN_TIMESTAMP,
    DELAY,
    DELAY_LEVEL_WHEN_NEXT_CONSUME,
    DLQ_ERRORS,
    MAX_RECONSUME_TIMES,
    ORIGIN_MESSAGE_ID,
    REAL_TOPIC,
    RECONSUME_TIME,
    RETRY_TOPIC,
    Headers,
    count_property,
    integer_property,
    replace_properties,
    text_property,
)
from reconsume.delay_levels.wire.send_back_copy import (
    Cause,
    Position,
    SendBackCopy,
    SendBackRequest,
    Stored,
    cause_properties,
    first_failure_properties,
)

_HIGHEST_COUNT: Final = 2**31 - 2
"""The copy has one more, which is the largest count that RocketMQ's clients and Spark's columns hold."""


def inbox_copy(request: SendBackRequest, names: TopicNames, failed_ms: float | None = None) -> SendBackCopy:
    """Return a send-back as an ordinary message for the inbox, where the scheduler applies the rule.

    This is the second way if the delay topic refuses it. It keeps the requested level (RocketMQ loses it: SB-05,
    SB-06).

    Args:
        request: the failed message.
        names: the installation's topics.
        failed_ms: the time, as `send_back_copy` takes it.
    """
    stored = request.stored
    properties = {
        ORIGIN_MESSAGE_ID: stored.origin_message_id,
        RECONSUME_TIME: str(stored.reconsume_times),
        REAL_TOPIC: RETRY_PREFIX + request.group,
        BORN_TIMESTAMP: str(stored.born_ms),
        DELAY_LEVEL_WHEN_NEXT_CONSUME: str(request.delay_level),
    } | first_failure_properties(stored, failed_ms)
    if stored.origin_topic is not None:
        properties[RETRY_TOPIC] = stored.origin_topic
    if request.max_reconsume_times is not None:
        properties[MAX_RECONSUME_TIMES] = str(request.max_reconsume_times)
    if request.cause is not None:
        properties |= cause_properties(request.cause, "")
    waiting = Delayed(0, 0, stored.reconsume_times)
    return SendBackCopy(names.send_back, replace_properties(request.headers, properties), waiting)


def inbox_request(headers: Headers, position: Position, timestamp_ms: int) -> SendBackRequest:
    """Read a record of the SEND_BACK inbox, as any Kafka client may write it.

    Needed are `REAL_TOPIC` (`%RETRY%<group>`; `%DLQ%<group>` asks for a dead letter) and the origin topic
    (`RETRY_TOPIC`, or an `ORIGIN_MESSAGE_ID` that names it). `RECONSUME_TIME`, `MAX_RECONSUME_TIMES`,
    `BORN_TIMESTAMP` and `FIRST_FAILURE_TIMESTAMP` are used if present. The requested level is
    `DELAY_LEVEL_WHEN_NEXT_CONSUME`; without it `DELAY`, if it is negative or the message was never sent back before.
    On a message that was sent back, a positive `DELAY` is the level of its last wait, because clients copy headers.
    Test: tests/unit/delay_levels/wire/test_inbox.py.

    Raises:
        MalformedProperty: a required header is missing, or a header has an invalid value.
    """
    group, dead_letter = _inbox_group(headers)
    stored = Stored.of_retry(headers, position, timestamp_ms)
    if stored.reconsume_times > _HIGHEST_COUNT:
        raise MalformedProperty(
            f"header {RECONSUME_TIME} must be at most {_HIGHEST_COUNT}, not {stored.reconsume_times}"
        )
    if not text_property(headers, RETRY_TOPIC):
        # The inbox is never an origin, so one of the two is required here.
        identity = text_property(headers, ORIGIN_MESSAGE_ID)
        if not identity:
            raise MalformedProperty(
                f"header {RETRY_TOPIC} is missing; it names the topic in which the message was first published"
            )
        Position.parse(identity)
    level = integer_property(headers, DELAY_LEVEL_WHEN_NEXT_CONSUME)
    if level is None:
        level = integer_property(headers, DELAY) or 0
        if level > 0 and stored.reconsume_times > 0:
            level = 0
    message = text_property(headers, DLQ_ERRORS + "message")
    return SendBackRequest(
        group=group,
        headers=headers,
        stored=stored,
        delay_level=-1 if dead_letter else level,
        max_reconsume_times=count_property(headers, MAX_RECONSUME_TIMES),
        cause=None
        if message is None
        else Cause(
            message,
            text_property(headers, DLQ_ERRORS + "exception.class"),
            text_property(headers, DLQ_ERRORS + "stacktrace"),
        ),
    )


def _inbox_group(headers: Headers) -> tuple[str, bool]:
    real_topic = text_property(headers, REAL_TOPIC)
    if real_topic is None:
        raise MalformedProperty(f"header {REAL_TOPIC} is missing; write {RETRY_PREFIX}<consumer group>")
    prefix, group = prefix_and_group(real_topic)
    if group:
        return group, prefix == DLQ_PREFIX
    raise MalformedProperty(
        f"header {REAL_TOPIC} is {real_topic[:80]!r}; write {RETRY_PREFIX}<consumer group>, "
        f"or {DLQ_PREFIX}<consumer group> for a dead letter"
    )
