"""Durations in RocketMQ's notation (`10s`, `5m`, `2h`), also in names of delay topics."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Final

from reconsume.delay_levels.errors import IllegalDelayLevels

LONGEST_MS: Final = 366 * 86_400_000
"""A delay topic keeps its records twice as long as they wait, so a longer duration is a typing error."""

LONGEST_AGE_MS: Final = 36_500 * 86_400_000
"""The longest time span that is no delay, such as the age of a record: a hundred years."""

_UNIT_MS = {"ms": 1, "s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
_DURATION = re.compile(r"(0|[1-9][0-9]{0,11})(ms|s|m|h|d)", re.ASCII)


def parse_duration(text: str, longest_ms: int = LONGEST_MS) -> int:
    """Return the milliseconds of a duration such as `10s`.

    A whole number is followed by `ms`, `s`, `m`, `h` or `d`, in lower case. RocketMQ's level table has no `ms`
    (LV-02); only retry policies need it, and the parser of level tables refuses it.

    Raises:
        IllegalDelayLevels: the text is not such a duration.
    """
    match = _DURATION.fullmatch(text)
    if match is None:
        raise IllegalDelayLevels(
            f"{text!r} is not a duration: write a whole number and one of the units s, m, h, d, such as 30s or 2h"
        )
    return _in_range(int(match[1]) * _UNIT_MS[match[2]], longest_ms)


@lru_cache(maxsize=256)
def format_duration(milliseconds: int) -> str:
    """Return the shortest exact form, the same for equal durations: 60,000 is always `1m`, 0 is `0s`.

    Levels of equal duration share a delay topic, so a duration must have one name only.
    """
    if _in_range(milliseconds) == 0:
        return "0s"
    unit = next(unit for unit in reversed(_UNIT_MS) if milliseconds % _UNIT_MS[unit] == 0)
    return f"{milliseconds // _UNIT_MS[unit]}{unit}"


def _in_range(milliseconds: int, longest_ms: int = LONGEST_MS) -> int:
    if not 0 <= milliseconds <= longest_ms:
        days = longest_ms // _UNIT_MS["d"]
        raise IllegalDelayLevels(f"a delay of {milliseconds} ms is out of range; use 0 to {days} days")
    return milliseconds
