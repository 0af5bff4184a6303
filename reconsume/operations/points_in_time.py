"""Points in time in the notation of people: a time, or a time span before now."""

from __future__ import annotations

from datetime import UTC, datetime

from reconsume.delay_levels.errors import IllegalDelayLevels, IllegalSetting
from reconsume.delay_levels.rules.durations import LONGEST_AGE_MS, parse_duration


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
        return max(0, int((moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp() * 1000))
    except (ValueError, OverflowError):
        raise IllegalSetting(
            f"{name} {text!r}: write a time such as 2026-11-22 10:00 (UTC), or an age such as 2h"
        ) from None
