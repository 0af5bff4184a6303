"""Properties as headers: RocketMQ's names letter for letter, values as UTF-8 text.

A header list is a sequence of (name, bytes or None), as in Kafka: ordered, with duplicates. The user's headers are
never changed; reconsume's are replaced, never appended a second time.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any, Final

from reconsume.delay_levels.errors import IllegalSetting, MalformedProperty
from reconsume.delay_levels.foreign_values import check_json

Header = tuple[str, bytes | None]
Headers = Sequence[Header]

RETRY_TOPIC: Final = "RETRY_TOPIC"
"""The origin topic, despite its name; set at the first send-back, never again (RocketMQ: BR-10)."""
ORIGIN_MESSAGE_ID: Final = "ORIGIN_MESSAGE_ID"
"""`<topic>/<partition>/<offset>` of the first copy; set once (RocketMQ: BR-19)."""
RECONSUME_TIME: Final = "RECONSUME_TIME"
"""How often the message was sent back (RocketMQ's singular)."""
MAX_RECONSUME_TIMES: Final = "MAX_RECONSUME_TIMES"
"""The consumer's own maximum; it overrides the group's (RocketMQ: BR-12)."""
DELAY: Final = "DELAY"
"""The level that the message waits, or waited, on; 0 on a dead letter."""
REAL_TOPIC: Final = "REAL_TOPIC"
"""RocketMQ name of the target topic, which the scheduler delivers to."""
REAL_QID: Final = "REAL_QID"
"""Partition of the target topic."""
BORN_TIMESTAMP: Final = "BORN_TIMESTAMP"
"""Timestamp of the first copy, in milliseconds."""
FIRST_FAILURE_TIMESTAMP: Final = "FIRST_FAILURE_TIMESTAMP"
"""When the message was sent back for the first time, in milliseconds; set once."""
TAGS: Final = "TAGS"
KEYS: Final = "KEYS"
UNIQ_KEY: Final = "UNIQ_KEY"
ORIGIN_UNIQ_KEY: Final = "ORIGIN_UNIQ_KEY"
"""On a delayed message that was delivered early by hand: the `UNIQ_KEY` under which it waited."""

REPLAY_ID: Final = "REPLAY_ID"
"""On a replayed message: the last replay; it stays with the message, so listeners see it."""
REPLAY_TIMES: Final = "REPLAY_TIMES"
"""On a replayed message: how often it was replayed."""

REPLAY_EDITED: Final = "REPLAY_EDITED"
"""On a message that was resent with another value or other headers: `value`, `headers` or both; it stays."""

TIMER_DELAY_SEC: Final = "TIMER_DELAY_SEC"
TIMER_DELAY_MS: Final = "TIMER_DELAY_MS"
TIMER_DELIVER_MS: Final = "TIMER_DELIVER_MS"
"""When a delayed message is due, in milliseconds since the epoch; the other two count from now (RocketMQ: TM-01)."""
TIMER_ROLL_TIMES: Final = "TIMER_ROLL_TIMES"
"""How many lanes of the cascade a delayed message has passed (RocketMQ: TM-08)."""
TIMER_DEL_UNIQKEY: Final = "TIMER_DEL_UNIQKEY"
"""On a record of the CANCEL topic: the UNIQ_KEY of the withdrawn message (RocketMQ: TM-13)."""

DELAY_LEVEL_WHEN_NEXT_CONSUME: Final = "DELAY_LEVEL_WHEN_NEXT_CONSUME"
"""The level that a plain client requests for one send-back, read from the SEND_BACK inbox only.

DELAY is not enough: a client that copies the headers of a failed retry would repeat the level of the last wait
forever.
"""

DLQ_ERRORS: Final = "__dlq.errors."
"""Prefix of the headers that Kafka's share groups write to dead-letter topics (KIP-1191)."""

OUR_PROPERTIES: Final = frozenset(
    {
        RETRY_TOPIC,
        ORIGIN_MESSAGE_ID,
        RECONSUME_TIME,
        MAX_RECONSUME_TIMES,
        DELAY,
        REAL_TOPIC,
        REAL_QID,
        BORN_TIMESTAMP,
        FIRST_FAILURE_TIMESTAMP,
        DELAY_LEVEL_WHEN_NEXT_CONSUME,
        TIMER_DELAY_SEC,
        TIMER_DELAY_MS,
        TIMER_DELIVER_MS,
        TIMER_ROLL_TIMES,
        TIMER_DEL_UNIQKEY,
    }
)

LARGEST: Final = 2**63 - 1
"""The largest offset or time in Kafka, and the largest number in SQLite and Parquet."""
LARGEST_PARTITION: Final = 2**31 - 1

_INTEGER = re.compile(r"-?[0-9]{1,19}", re.ASCII)


def size_of(key: bytes | None, value: bytes | None, headers: Headers) -> int:
    """Return the bytes of key, value and headers, without what Kafka adds."""
    return len(key or b"") + len(value or b"") + sum(len(name) + len(text or b"") for name, text in headers)


def is_ours(name: str) -> bool:
    """Return whether a header of this name belongs to reconsume, so that user code never sees it among its own."""
    return name in OUR_PROPERTIES or name.startswith(DLQ_ERRORS)


def is_reserved(name: str) -> bool:
    """Return whether reconsume writes headers of this name; user code sees those of a resend."""
    return is_ours(name) or name in (REPLAY_ID, REPLAY_TIMES, REPLAY_EDITED)


def text_property(headers: Headers, name: str) -> str | None:
    """Return the text of a property, None if it is missing; of duplicates the last counts.

    Raises:
        MalformedProperty: the value is missing (None) or not UTF-8.
    """
    for key, value in reversed(headers):
        if key == name:
            if value is None:
                raise MalformedProperty(f"header {name} has no value; leave it out or give it a text")
            try:
                return value.decode()
            except UnicodeDecodeError:
                raise MalformedProperty(f"header {name} is not UTF-8: {value[:40]!r}") from None
    return None


def integer_property(headers: Headers, name: str) -> int | None:
    """Return the whole number of a property, None if it is missing.

    Raises:
        MalformedProperty: the value is not a decimal number of 64 bits.
    """
    text = text_property(headers, name)
    if text is None:
        return None
    if _INTEGER.fullmatch(text) is None or not -LARGEST - 1 <= int(text) <= LARGEST:
        raise MalformedProperty(f"header {name} must be a whole number such as 3, not {text[:40]!r}")
    return int(text)


def count_property(headers: Headers, name: str) -> int | None:
    """Return the whole number of a property that cannot be negative.

    Raises:
        MalformedProperty: the value is not a number, or below 0.
    """
    number = integer_property(headers, name)
    if number is not None and number < 0:
        raise MalformedProperty(f"header {name} must be 0 or more, not {number}")
    return number


def user_headers(headers: Headers) -> list[Header]:
    """Return the user's headers in order, with duplicates and None values."""
    return [header for header in headers if not is_ours(header[0])]


def replace_properties(headers: Headers, properties: Mapping[str, str]) -> list[Header]:
    """Return the user's headers unchanged, followed by exactly `properties` as reconsume's."""
    kept = user_headers(headers)
    kept.extend((name, text.encode()) for name, text in properties.items())
    return kept


def json_value(value: bytes) -> Any:
    """Return the JSON that is the value of a record.

    Raises:
        MalformedProperty: the value is something else, or a text has half of a surrogate pair: SQLite and Kafka's
            client refuse such a text.
    """
    try:
        text = value.decode(json.detect_encoding(value))  # json.loads would accept halves among the bytes
        found = json.loads(text)
        if "\\ud" in text or "\\uD" in text:
            check_json(f"value {value[:80]!r}", found)
    except IllegalSetting as error:
        raise MalformedProperty(str(error)) from None
    except (ValueError, RecursionError) as error:
        raise MalformedProperty(f"value {value[:80]!r} is not JSON: {error}") from None
    return found


def json_object(value: bytes) -> dict[str, Any]:
    """Return the JSON object that is the value of a record.

    Raises:
        MalformedProperty: the value is something else, see `json_value`.
    """
    found = json_value(value)
    if not isinstance(found, dict):
        raise MalformedProperty(f"value {value[:80]!r} is not a JSON object")
    return found
