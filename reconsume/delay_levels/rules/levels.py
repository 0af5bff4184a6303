"""The level table: RocketMQ's `messageDelayLevel`, a 1-based list of delays."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import Final, Self

from reconsume.delay_levels.errors import IllegalDelayLevels
from reconsume.delay_levels.foreign_values import of_type
from reconsume.delay_levels.rules.durations import format_duration, parse_duration

DEFAULT_LEVEL_TABLE: Final = "1s 5s 10s 30s 1m 2m 3m 4m 5m 6m 7m 8m 9m 10m 20m 30m 1h 2h"
"""RocketMQ: LV-01."""

FIRST_RETRY_LEVEL: Final = 3
"""The rule chooses level 3 + n for a message that was sent back n times, so 10 s first (RocketMQ: BR-15)."""


@dataclass(frozen=True, slots=True)
class DelayLevels:
    """A table of delays in milliseconds; level 1 is its first entry.

    It is also RocketMQ's CUSTOMIZED retry policy (GP-03), which uses the same rule: the first two entries are for
    requested levels, the n-th retry takes entry 3 + n, and the last entry serves all further ones. In a computed
    table, as of EXPONENTIAL, the first retry takes the first entry.

    Attributes:
        first_retry_level: the level of a message that was never sent back.
        formula: the formula of a computed table, for people.
    """

    delays_ms: tuple[int, ...]
    first_retry_level: int = FIRST_RETRY_LEVEL
    formula: str = ""

    def __post_init__(self) -> None:
        if not self.delays_ms:
            raise IllegalDelayLevels("the level table is empty; RocketMQ's default is: " + DEFAULT_LEVEL_TABLE)
        for delay_ms in self.delays_ms:
            format_duration(delay_ms)

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read a table such as `1s 5s 10s`.

        Entries are separated by exactly one space, need not be sorted or distinct, and `0s` is legal
        (RocketMQ: LV-02, LV-03, LV-04).

        Raises:
            IllegalDelayLevels: naming the entry, its level, and what to write instead.
            IllegalSetting: the table is not a text.
        """
        of_type(text, "delay_levels", str, such_as="'1s 5s 10s'")
        delays: list[int] = []
        for level, entry in enumerate(text.split(" "), start=1):
            if not entry:
                raise IllegalDelayLevels(
                    f"level table {text!r}: no duration before level {level}'s space; "
                    "put exactly one space between levels and none at the ends"
                )
            if entry.endswith("ms"):
                raise IllegalDelayLevels(
                    f"level table {text!r}, level {level}: {entry!r} is in milliseconds; use the units s, m, h and d"
                )
            try:
                delays.append(parse_duration(entry))
            except IllegalDelayLevels as error:
                raise IllegalDelayLevels(f"level table {text!r}, level {level}: {error}") from None
        return cls(tuple(delays))

    @property
    def max_level(self) -> int:
        """The highest level; higher requests are reduced to it (RocketMQ: DP-01)."""
        return len(self.delays_ms)

    def automatic_level(self, reconsume_times: int) -> int:
        """Return the level without a request: 3 + n, limited to the table (RocketMQ: BR-15, DP-01, GP-03)."""
        return self.capped(self.first_retry_level + max(reconsume_times, 0))

    def capped(self, level: int) -> int:
        """Return `level`, or the highest level if the table is shorter (RocketMQ: DP-01)."""
        return min(level, self.max_level)

    def delay_ms(self, level: int) -> int:
        """Return the delay of a level from 1 to `max_level`, in milliseconds.

        Raises:
            IllegalDelayLevels: the level does not exist. RocketMQ would silently wait one second (DP-06).
        """
        if not 1 <= level <= self.max_level:
            table = "an exponential policy" if self.formula else "the level table"
            raise IllegalDelayLevels(f"delay level {level}: {table} has levels 1 to {self.max_level} ({self})")
        return self.delays_ms[level - 1]

    @property
    def goes_down_at(self) -> int | None:
        """Return the first level that is shorter than the one before it, which is legal; None without one."""
        pairs = enumerate(pairwise(self.delays_ms), start=2)
        return next((level for level, (before, this) in pairs if this < before), None)

    def distinct_delays_ms(self) -> tuple[int, ...]:
        """Each duration once, shortest first: one delay topic each."""
        return tuple(sorted(set(self.delays_ms)))

    def __str__(self) -> str:
        return self.formula or " ".join(format_duration(delay_ms) for delay_ms in self.delays_ms)
