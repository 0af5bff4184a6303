"""How long a group's failed messages wait: the level table, an own list, or exponentially longer.

RocketMQ 5 keeps such a policy with the group (`groupRetryPolicy`). CUSTOMIZED is a level table of the group's
own, so `DelayLevels` serves for it; EXPONENTIAL is a table that is computed.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

from reconsume.delay_levels.errors import IllegalDelayLevels
from reconsume.delay_levels.rules.durations import format_duration
from reconsume.delay_levels.rules.levels import DEFAULT_LEVEL_TABLE, DelayLevels

__all__ = ["ExponentialRetryPolicy", "RetryPolicy", "parse_retry_policy", "spell_waits"]

_HIGHEST_EXPONENT = 32
_PARAMETERS = {
    "customizedRetryPolicy": {"next"},
    "exponentialRetryPolicy": {"initial", "max", "multiplier"},
}


class RetryPolicy(Protocol):
    """What the send-back rule asks: which level next, and how long is it."""

    @property
    def max_level(self) -> int:
        """The highest level there is."""

    def automatic_level(self, reconsume_times: int) -> int:
        """The level when nobody wishes one."""

    def capped(self, level: int) -> int:
        """`level`, cut to `max_level`."""

    def delay_ms(self, level: int) -> int:
        """How long a level from 1 to `max_level` lasts, in milliseconds."""

    def distinct_delays_ms(self) -> tuple[int, ...]:
        """Each duration once, shortest first."""


@dataclass(frozen=True, slots=True)
class ExponentialRetryPolicy:
    """`min(max, initial × multiplier^n)`, n cut to 0…32 (RocketMQ: GP-04); times in milliseconds.

    Level k waits as long as the k-th retry does. RocketMQ's arithmetic overflows for a large multiplier and
    then gives a negative delay (GP-05); ours cannot.
    """

    initial_ms: int = 5_000
    max_ms: int = 7_200_000
    multiplier: int = 2

    def __post_init__(self) -> None:
        format_duration(self.max_ms)
        if self.initial_ms < 1 or self.max_ms < self.initial_ms or self.multiplier < 1:
            raise IllegalDelayLevels(
                f"exponential retry policy initial={self.initial_ms} ms, max={self.max_ms} ms, "
                f"multiplier={self.multiplier}: initial must be at least 1, max at least initial, multiplier at least 1"
            )

    @property
    def max_level(self) -> int:
        """The exponent stops at 32, so there are 33 levels."""
        return _HIGHEST_EXPONENT + 1

    def automatic_level(self, reconsume_times: int) -> int:
        """Level n + 1 for a message that was sent back n times."""
        return self.capped(max(reconsume_times, 0) + 1)

    def capped(self, level: int) -> int:
        """`level`, or 33 where it is higher."""
        return min(level, self.max_level)

    def delay_ms(self, level: int) -> int:
        """`min(max, initial × multiplier^(level - 1))`.

        Raises:
            IllegalDelayLevels: the level is not in 1…33.
        """
        if not 1 <= level <= self.max_level:
            raise IllegalDelayLevels(f"delay level {level}: an exponential policy has levels 1 to {self.max_level}")
        return min(self.max_ms, self.initial_ms * int(self.multiplier ** (level - 1)))

    def distinct_delays_ms(self) -> tuple[int, ...]:
        """Each duration once, shortest first."""
        return tuple(sorted({self.delay_ms(level) for level in range(1, self.max_level + 1)}))

    def __str__(self) -> str:
        return (
            f"exponential: {format_duration(self.initial_ms)} × {self.multiplier}^n, "
            f"at most {format_duration(self.max_ms)}"
        )


def spell_waits(policy: RetryPolicy, max_times: int) -> str:
    """Return the wait before each retry of a message for which nobody wishes a level, such as `10s 30s 1m ×3`."""
    runs: list[tuple[int, int]] = []
    for times in range(max_times):
        level = policy.automatic_level(times)
        is_last = level == policy.max_level
        wait, count = policy.delay_ms(level), max_times - times if is_last else 1
        if runs and runs[-1][0] == wait:
            count += runs.pop()[1]
        runs.append((wait, count))
        if is_last:
            break
    return " ".join(format_duration(wait) + (f" ×{count:,}" if count > 1 else "") for wait, count in runs)


def parse_retry_policy(policy: Mapping[str, object]) -> RetryPolicy:
    """Read RocketMQ's `groupRetryPolicy`, whose times are milliseconds.

    `{"type": "CUSTOMIZED", "customizedRetryPolicy": {"next": [1000, …]}}` or
    `{"type": "EXPONENTIAL", "exponentialRetryPolicy": {"initial": 5000, "max": 7200000, "multiplier": 2}}`.
    A missing type, or a type without its parameters, is the default CUSTOMIZED policy (RocketMQ: GP-02, GP-06).

    Raises:
        IllegalDelayLevels: an unknown type or key, or a number that cannot be.
    """
    known = {"type", "customizedRetryPolicy", "exponentialRetryPolicy"}
    if unknown := sorted(set(policy) - known, key=repr):
        raise IllegalDelayLevels(f"groupRetryPolicy has unknown keys {unknown}; it knows {sorted(known)}")
    kind = policy.get("type")
    if kind not in (None, "CUSTOMIZED", "EXPONENTIAL"):
        raise IllegalDelayLevels(f"groupRetryPolicy type {kind!r} is unknown; use CUSTOMIZED or EXPONENTIAL")
    if kind == "EXPONENTIAL" and (parameters := _parameters(policy, "exponentialRetryPolicy")) is not None:
        return ExponentialRetryPolicy(
            initial_ms=_integer(parameters, "initial", 5_000),
            max_ms=_integer(parameters, "max", 7_200_000),
            multiplier=_integer(parameters, "multiplier", 2),
        )
    if kind == "CUSTOMIZED" and (parameters := _parameters(policy, "customizedRetryPolicy")) is not None:
        return DelayLevels(tuple(_integers(parameters, "next")))
    return DelayLevels.parse(DEFAULT_LEVEL_TABLE)


def _parameters(policy: Mapping[str, object], name: str) -> Mapping[str, object] | None:
    value = policy.get(name)
    if value is None:
        return None
    if not isinstance(value, Mapping):
        raise IllegalDelayLevels(f"groupRetryPolicy.{name} must be a JSON object, not {value!r}")
    if unknown := sorted(set(value) - _PARAMETERS[name], key=repr):
        raise IllegalDelayLevels(
            f"groupRetryPolicy.{name} has unknown keys {unknown}; it knows {sorted(_PARAMETERS[name])}"
        )
    return value


def _integer(parameters: Mapping[str, object], name: str, default: int) -> int:
    value = parameters.get(name, default)
    if not isinstance(value, int) or isinstance(value, bool):
        raise IllegalDelayLevels(f"groupRetryPolicy {name} must be a whole number, not {value!r}")
    return value


def _integers(parameters: Mapping[str, object], name: str) -> list[int]:
    value = parameters.get(name)
    if not isinstance(value, list) or any(not isinstance(one, int) or isinstance(one, bool) for one in value):
        raise IllegalDelayLevels(f"groupRetryPolicy {name} must be a list of milliseconds, not {value!r}")
    return value
