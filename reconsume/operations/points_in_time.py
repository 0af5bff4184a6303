"""Points in time in the notation of people: a time, or a time span before now."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Final

from reconsume.delay_levels.errors import IllegalDelayLevels, IllegalSetting
from reconsume.delay_levels.rules.durations import LONGEST_AGE_MS, parse_duration

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MILLISECOND: Final = timedelta(milliseconds=1)


def parse_point_in_time(name: str, text: str, now_ms: float) -> int:
    """Return the milliseconds of `2026-11-22 10:00` (ISO 8601, UTC by default), or of `2h`, two hours ago.

    Args:
        name: the option or field, for the error.
        text: the input.
        now_ms: the current time.

    Raises:
        IllegalSetting: the text is neither.
    """
    try:
        return max(0, int(now_ms) - parse_duration(text, LONGEST_AGE_MS))
    except IllegalDelayLevels:
        """It may be a time."""
    try:
        moment = datetime.fromisoformat(text)
        # Kafka has no negative times; -1 would mean the end of a topic.
        return max(0, ((moment if moment.tzinfo else moment.replace(tzinfo=UTC)) - _EPOCH) // _MILLISECOND)
    except (ValueError, OverflowError):
        raise IllegalSetting(
            f"{name} {text!r}: write a time such as 2026-11-22 10:00 (UTC), or an age such as 2h"
        ) from None


def point_in_time(milliseconds: int) -> str:
    """Return a moment in a notation that `parse_point_in_time` reads, to the millisecond.

    Raises:
        OverflowError: the moment is after the year 9999.
    """
    return (_EPOCH + milliseconds * _MILLISECOND).isoformat(timespec="milliseconds")
