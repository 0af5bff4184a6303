"""When to deliver a message, in the terms of the user."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from operator import index
from typing import Final, Self

from reconsume.delay_levels.errors import IllegalSetting
from reconsume.delay_levels.foreign_values import type_name, whole_number
from reconsume.delay_levels.wire.timer import LONGEST_DELAY_MS

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MS: Final = timedelta(milliseconds=1)
_LAST_MS: Final = 2**53
"""Larger integers are not exact as floats, which clocks return."""


@dataclass(frozen=True, slots=True)
class DelayWish:
    """A delay; at most one of the three is set, and none means at once.

    Attributes:
        level: of the level table, above 0.
        deliver_ms: the moment of delivery, in milliseconds since the epoch.
        delay_ms: time after the brokers have stored the message.
    """

    level: int | None = None
    deliver_ms: int | None = None
    delay_ms: int | None = None

    @classmethod
    def of(
        cls, delay_level: int | None, deliver_at: datetime | int | None, delay: timedelta | None, now_ms: float
    ) -> Self:
        """Return the delay in the arguments of `send`, rounded up to milliseconds, so that nothing is early.

        Level 0 and a delay of 0 or less mean at once (RocketMQ: DP-03).

        Raises:
            IllegalSetting: more than one argument, a wrong type, a moment without a time zone, or over 40 days.
        """
        if sum(one is not None for one in (delay_level, deliver_at, delay)) > 1:
            raise IllegalSetting("delay_level, deliver_at and delay exclude each other; give one of them")
        if delay_level is not None:
            level = whole_number(delay_level, "delay_level")
            return cls(level=level) if level > 0 else cls()
        if delay is not None:
            if not isinstance(delay, timedelta):
                raise IllegalSetting(f"delay must be a timedelta, got {type_name(type(delay))}")
            whole_ms, rest = divmod(delay, _MS)
            return cls(delay_ms=_in_range(whole_ms + bool(rest), "delay")) if delay > timedelta(0) else cls()
        if deliver_at is None:
            return cls()
        if isinstance(deliver_at, datetime):
            if deliver_at.tzinfo is None:
                raise IllegalSetting(f"deliver_at {deliver_at} has no time zone; use one, as in datetime.now(UTC)")
            deliver_at = -((_EPOCH - deliver_at) // _MS)
        if isinstance(deliver_at, bool) or not hasattr(deliver_at, "__index__"):
            raise IllegalSetting(
                f"deliver_at must be a datetime or an int of milliseconds, got {type_name(type(deliver_at))}"
            )
        deliver_at = min(index(deliver_at), _LAST_MS)
        if deliver_at < 0:
            raise IllegalSetting(f"deliver_at must be in milliseconds since 1970, not {deliver_at}")
        _in_range(int(deliver_at - now_ms), "deliver_at")
        return cls(deliver_ms=deliver_at)

    @property
    def waits(self) -> bool:
        """Return whether the message goes through the scheduler."""
        return self != DelayWish()


def _in_range(delay_ms: int, name: str) -> int:
    if delay_ms > LONGEST_DELAY_MS:
        days = delay_ms / 86_400_000
        raise IllegalSetting(f"{name} is {days:.1f} days ahead; at most 40 days are allowed (RocketMQ has 3)")
    return delay_ms
