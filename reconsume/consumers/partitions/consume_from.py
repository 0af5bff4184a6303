"""The start of partitions without a committed offset."""

from __future__ import annotations

import enum
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Final, Self

from reconsume.bridge.process.clock import Clock, now_ms
from reconsume.delay_levels.errors import IllegalSetting

_FORMAT: Final = "%Y%m%d%H%M%S"
_DIGITS: Final = re.compile("[0-9]{14}")
_DEFAULT_AGE_MS: Final = 30 * 60 * 1000
"""RocketMQ's default `consumeTimestamp` is half an hour before the start."""


class ConsumeFromWhere(enum.Enum):
    """The start of partitions without a committed offset; the retry topic always starts at its beginning."""

    CONSUME_FROM_LAST_OFFSET = "CONSUME_FROM_LAST_OFFSET"
    CONSUME_FROM_FIRST_OFFSET = "CONSUME_FROM_FIRST_OFFSET"
    CONSUME_FROM_TIMESTAMP = "CONSUME_FROM_TIMESTAMP"


@dataclass(frozen=True, slots=True)
class ConsumeFrom:
    """A start.

    Attributes:
        where: for partitions that existed when the subscription began.
        timestamp_ms: milliseconds since the epoch, only for a start by timestamp.
        known: how many partitions each topic had then; later ones start at their beginning. None: all existed.
        ids: Kafka's ids of those topics then: a topic that has another one now was recreated. A missing id is unknown.
    """

    where: ConsumeFromWhere
    timestamp_ms: int = 0
    known: Mapping[str, int] | None = None
    ids: Mapping[str, str] = field(default_factory=dict)

    def was_there(self, topic: str, partition: int) -> bool:
        """Return whether a partition existed when the subscription began."""
        return self.known is None or partition < self.known.get(topic, 0)

    @classmethod
    def of(
        cls,
        where: ConsumeFromWhere | None,
        timestamp: str | datetime | None,
        from_beginning: bool | None,
        clock: Clock = now_ms,
    ) -> Self:
        """Return the start in the arguments of a consumer.

        Args:
            where: None uses `auto.offset.reset`, else the last offset, as in RocketMQ.
            timestamp: `yyyyMMddHHmmss` in local time, or a datetime (local, unless it has a time zone); by default
                half an hour ago, as in RocketMQ.
            from_beginning: the meaning of `auto.offset.reset` in conf; None if it is missing.
            clock: returns milliseconds.

        Raises:
            IllegalSetting: the arguments contradict each other, or the timestamp is invalid.
        """
        last, first = ConsumeFromWhere.CONSUME_FROM_LAST_OFFSET, ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET
        by_conf = None if from_beginning is None else first if from_beginning else last
        if where is not None and by_conf not in (None, where):
            raise IllegalSetting(
                f"consume_from_where {where.name} contradicts auto.offset.reset in conf; leave one of them out"
            )
        chosen = where or by_conf or last
        if chosen is not ConsumeFromWhere.CONSUME_FROM_TIMESTAMP:
            if timestamp is not None:
                raise IllegalSetting("consume_timestamp needs consume_from_where=CONSUME_FROM_TIMESTAMP")
            return cls(chosen)
        return cls(chosen, int(clock()) - _DEFAULT_AGE_MS if timestamp is None else _as_ms(timestamp))


def _as_ms(timestamp: str | datetime) -> int:
    if isinstance(timestamp, str):
        try:
            # strptime also accepts fewer digits, and would misread them as another day.
            written = timestamp if _DIGITS.fullmatch(timestamp) else ""
            timestamp = datetime.strptime(written, _FORMAT)  # noqa: DTZ007 - local time, as in RocketMQ
        except ValueError:
            raise IllegalSetting(
                f"consume_timestamp {timestamp!r} must be yyyyMMddHHmmss in local time, such as 20261121093000, "
                "or a datetime"
            ) from None
    try:
        moment_ms = int(timestamp.timestamp() * 1000)
    except (ValueError, OverflowError):  # local time of the first or the last year
        moment_ms = -1
    if moment_ms < 0:  # Kafka takes negative timestamps for logical offsets
        raise IllegalSetting(f"consume_timestamp {timestamp} must be from 1970 or later")
    return moment_ms
