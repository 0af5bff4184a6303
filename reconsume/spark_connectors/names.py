"""The kinds of Kafka topics as Spark expressions; `reconsume.delay_levels.wire.names` has the same rules in Python."""

from __future__ import annotations

import re
from typing import Final

from pyspark.sql import Column
from pyspark.sql import functions as F

from reconsume.delay_levels.rules.durations import LONGEST_MS
from reconsume.delay_levels.wire.names import DLQ_PREFIX, RETRY_PREFIX
from reconsume.spark_connectors.headers import is_written_so

KINDS: Final = {
    "delay": r"DELAY\..*",
    "retry": r"RETRY\..*",
    "dead_letter": r"DLQ\..*",
    "inbox": "SEND_BACK",
    "quarantine": "QUARANTINE",
    "parked": r"PARKED\..*",
}
"""The kinds of reconsume's topics, each with a regular expression for the part after the prefix."""

POSITION: Final = r"\A[A-Za-z0-9._-]{1,249}/[0-9]{1,9}/[0-9]{1,18}\z"
"""A Kafka position: topic, partition (fits into an int) and offset (fits into a bigint)."""

_PLAIN: Final = r"\A[A-Za-z0-9-]*\z"
_WRONG_UNDERSCORE: Final = r"_[0-9A-F]{2}|\.5F(?![0-9A-F]{2})"
_NUMBERS_END: Final = 10**11
"""Durations have at most eleven digits."""
_UNIT_MS: Final = {"ms": 1, "s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
_NEXT_UNIT: Final = {"ms": 1_000, "s": 60, "m": 60, "h": 24}


def kind_pattern(prefix: str, kind: str) -> str:
    """Return a Java regular expression for all topics of a kind."""
    return re.escape(prefix) + KINDS[kind]


def kind_of(topic: Column, prefix: str) -> Column:
    """Return the kind of reconsume's topic; `message` for any other topic."""
    found = F.when(topic == prefix + "SEND_BACK", "inbox").when(topic == prefix + "QUARANTINE", "quarantine")
    for kind, head in (("delay", "DELAY."), ("retry", "RETRY."), ("dead_letter", "DLQ."), ("parked", "PARKED.")):
        found = found.when(topic.startswith(prefix + head), kind)
    return found.otherwise("message")


def rest_of(topic: Column, head: str) -> Column:
    """Return the rest of a topic that begins with `head`, else null."""
    return F.when(topic.startswith(head), F.substr(topic, F.lit(len(head) + 1)))


def decoded_name(encoded: Column) -> Column:
    """Decode a name that `encode_name` wrote; null for anything else.

    The encoding is that of URLs with `.` for `%`, so Spark's functions decode it; encoding it again must give the same.
    """
    name = F.try_url_decode(F.replace(encoded, F.lit("."), F.lit("%")))
    again = F.url_encode(name)
    for plain, written in ((".", ".2E"), ("+", ".20"), ("*", ".2A"), ("%", ".")):
        again = F.replace(again, F.lit(plain), F.lit(written))
    same = again == F.replace(encoded, F.lit(".5F"), F.lit("_"))
    # Most names need no decoding, and this runs for every record.
    return F.when(encoded.rlike(_PLAIN), encoded).when(same & ~encoded.rlike(_WRONG_UNDERSCORE), name)


def shown_name(topic: Column, prefix: str) -> Column:
    """Return the name that people see: `%RETRY%<group>`, `%DLQ%<group>`, any other topic unchanged."""
    retry, dead = (decoded_name(rest_of(topic, prefix + head)) for head in ("RETRY.", "DLQ."))
    return F.coalesce(F.concat(F.lit(RETRY_PREFIX), retry), F.concat(F.lit(DLQ_PREFIX), dead), topic)


def group_of_name(name: Column) -> Column:
    """Return the group of `%RETRY%<group>` and `%DLQ%<group>`, null for any other name."""
    group = F.coalesce(rest_of(name, RETRY_PREFIX), rest_of(name, DLQ_PREFIX))
    return F.when(group != "", group)


def duration_of(topic: Column, prefix: str) -> tuple[Column, Column]:
    """Return number and unit of a delay topic's duration, for `delay_ms`; an unknown unit is returned as it is."""
    duration = rest_of(topic, prefix + "DELAY.")
    unit = F.when(duration.endswith("ms"), "ms").otherwise(F.substring(duration, -1, 1))
    digits = F.substr(duration, F.lit(1), F.octet_length(duration) - F.octet_length(unit))
    number = digits.try_cast("bigint")
    return F.when(is_written_so(number, digits) & (number < _NUMBERS_END), number), unit


def delay_ms(topic: Column, prefix: str, duration: tuple[Column, Column] | None = None) -> Column:
    """Return the duration of a delay topic in milliseconds, 0 for the inbox; null for any other spelling or topic.

    Args:
        topic: the Kafka topic.
        prefix: the prefix of the installation.
        duration: the result of `duration_of` as columns, which saves parsing the name for each unit.
    """
    number, unit = duration or duration_of(topic, prefix)
    at_once = (topic == prefix + "SEND_BACK") | (topic == prefix + "DELAY.0s")
    found = F.when(at_once, F.lit(0).cast("bigint"))
    for name, factor in _UNIT_MS.items():
        shortest = (number > 0) & (number * factor <= LONGEST_MS)
        if name in _NEXT_UNIT:
            shortest &= number % _NEXT_UNIT[name] != 0
        found = found.when((unit == name) & shortest, number * factor)
    return found


def place_of(topic: str, partition: str, offset: str) -> Column:
    """Return `<topic>/<partition>/<offset>` of three columns; null without an offset."""
    place = F.concat_ws("/", topic, F.col(partition).cast("string"), F.col(offset).cast("string"))
    return F.when(F.col(offset).isNotNull(), place)
