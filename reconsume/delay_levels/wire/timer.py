"""Delayed messages: the requests in their headers, and the headers that a scheduler writes on each hop.

RocketMQ: TM-01 to TM-05, with 40 days in place of three.
"""

from __future__ import annotations

from typing import Final

from reconsume.delay_levels.errors import MalformedProperty
from reconsume.delay_levels.rules.levels import DelayLevels
from reconsume.delay_levels.wire.names import DLQ_PREFIX, RETRY_PREFIX, TopicNames
from reconsume.delay_levels.wire.properties import (
    BORN_TIMESTAMP,
    DELAY,
    ORIGIN_MESSAGE_ID,
    REAL_QID,
    REAL_TOPIC,
    REPLAY_ID,
    TIMER_DELAY_MS,
    TIMER_DELAY_SEC,
    TIMER_DELIVER_MS,
    TIMER_ROLL_TIMES,
    Header,
    Headers,
    count_property,
    integer_property,
    replace_properties,
    text_property,
)
from reconsume.delay_levels.wire.send_back_copy import Position

LONGEST_DELAY_MS: Final = 40 * 86_400_000
"""RocketMQ has three days (TM-05)."""
CANCELS_KEPT_MS: Final = 7 * 86_400_000
"""How long a withdrawal is kept after its message's due moment: schedulers may have been down until then."""
_CLOCKS_DIFFER_MS: Final = 60_000
_WAITS: Final = frozenset({DELAY, TIMER_DELIVER_MS, TIMER_ROLL_TIMES})
"""Each delayed message has one of these; a message that was resent keeps `REPLAY_ID`, so that is not enough."""


def is_delayed_message(real_topic: bytes | str) -> bool:
    """Return whether this target is an ordinary topic, so that the record is a delayed message, not a send-back."""
    text = real_topic if isinstance(real_topic, str) else real_topic.decode(errors="replace")
    return bool(text) and not text.startswith((RETRY_PREFIX, DLQ_PREFIX))


def is_resend(headers: Headers) -> bool:
    """Return whether a record for an ordinary topic resends a dead letter, which waits for nothing."""
    names = {name for name, _ in headers}
    return REPLAY_ID in names and names.isdisjoint(_WAITS)


def is_too_far_ahead(moment_ms: int, now_ms: float) -> bool:
    """Return whether a moment is more than 40 days ahead; a further minute allows for different clocks."""
    return moment_ms - now_ms > LONGEST_DELAY_MS + _CLOCKS_DIFFER_MS


def check_deliver_ms(deliver_ms: int, now_ms: float) -> int:
    """Return `deliver_ms`, if it is at most 40 days ahead.

    Raises:
        MalformedProperty: it is later.
    """
    if is_too_far_ahead(deliver_ms, now_ms):
        days = (deliver_ms - now_ms) / 86_400_000
        raise MalformedProperty(f"header {TIMER_DELIVER_MS} is {days:.0f} days ahead; at most 40 days are allowed")
    return deliver_ms


def deliver_ms_of(headers: Headers, now_ms: float) -> int | None:
    """Return the due moment in a waiting record's headers, None for a record that waits on a level.

    Raises:
        MalformedProperty: not a number of milliseconds, or too far ahead.
    """
    deliver_ms = count_property(headers, TIMER_DELIVER_MS)
    return None if deliver_ms is None else check_deliver_ms(deliver_ms, now_ms)


def _asked_for(headers: Headers, stored_ms: int) -> int | None:
    """Return the requested moment. Seconds override milliseconds, which override a moment (RocketMQ: TM-01)."""
    seconds = count_property(headers, TIMER_DELAY_SEC)
    if seconds is not None:
        return stored_ms + seconds * 1_000
    delay_ms = count_property(headers, TIMER_DELAY_MS)
    if delay_ms is not None:
        return stored_ms + delay_ms
    return count_property(headers, TIMER_DELIVER_MS)


def delayed_copy(
    headers: Headers, position: Position, stored_ms: int, table: DelayLevels, names: TopicNames
) -> tuple[int | None, str, list[Header]]:
    """Read a delayed message in the inbox; return (due moment, lane, headers), without a moment for a level.

    A level overrides a moment (RocketMQ: TM-02) and is limited to the table (DP-01). Without either the lane is
    `DELAY.0s`: now. Relative delays count from the append time in the inbox and become a moment.

    Args:
        headers: the client's headers; `REAL_TOPIC` is an ordinary topic.
        position: the record's position in the inbox.
        stored_ms: the record's append time.
        table: the level table.
        names: the installation's topics.

    Raises:
        MalformedProperty: a header has an invalid value, or the moment is over 40 days ahead.
    """
    properties = {REAL_TOPIC: text_property(headers, REAL_TOPIC) or ""}
    if (real_qid := count_property(headers, REAL_QID)) is not None:
        properties[REAL_QID] = str(real_qid)
    born_ms = count_property(headers, BORN_TIMESTAMP)
    properties[BORN_TIMESTAMP] = str(stored_ms if born_ms is None else born_ms)
    properties[ORIGIN_MESSAGE_ID] = str(position)
    level = integer_property(headers, DELAY) or 0
    if level > 0:
        level = table.capped(level)
        properties[DELAY] = str(level)
        return None, names.delay(table.delay_ms(level)), replace_properties(headers, properties)
    deliver_ms = _asked_for(headers, stored_ms)
    if deliver_ms is not None:
        properties[TIMER_DELIVER_MS] = str(check_deliver_ms(deliver_ms, stored_ms))
    properties[TIMER_ROLL_TIMES] = "0"
    return deliver_ms, names.delay(0), replace_properties(headers, properties)


def rolled(headers: Headers) -> list[Header]:
    """Return the headers for the next lane of the cascade, with one roll more (RocketMQ: TM-08).

    Raises:
        MalformedProperty: the count is not a number.
    """
    count = str((count_property(headers, TIMER_ROLL_TIMES) or 0) + 1).encode()
    return [*(header for header in headers if header[0] != TIMER_ROLL_TIMES), (TIMER_ROLL_TIMES, count)]
