"""Retry policies: how long a group's failed messages wait, by the level table, a list, or exponentially.

RocketMQ 5 stores a policy with the group (`groupRetryPolicy`). CUSTOMIZED is a level table of the group;
EXPONENTIAL is a computed one. `DelayLevels` serves both.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache

from reconsume.delay_levels.errors import IllegalDelayLevels
from reconsume.delay_levels.foreign_values import shown
from reconsume.delay_levels.rules.durations import format_duration
from reconsume.delay_levels.rules.levels import DEFAULT_LEVEL_TABLE, DelayLevels

_HIGHEST_EXPONENT = 32
_PARAMETERS = {
    "customizedRetryPolicy": {"next"},
    "exponentialRetryPolicy": {"initial", "max", "multiplier"},
}


RetryPolicy = DelayLevels
"""Returns the next level and its duration for the send-back rule: the common table, or a group's own."""


@lru_cache(maxsize=256)
def exponential_policy(initial_ms: int = 5_000, max_ms: int = 7_200_000, multiplier: int = 2) -> RetryPolicy:
    """`min(max, initial × multiplier^n)`, n from 0 to 32 (RocketMQ: GP-04); level k waits as long as the k-th retry.

    RocketMQ's arithmetic overflows for a large multiplier and then gives a negative delay (GP-05); ours cannot.

    Raises:
        IllegalDelayLevels: an invalid number.
    """
    if initial_ms < 1 or max_ms < initial_ms or multiplier < 1:
        raise IllegalDelayLevels(
            f"exponential retry policy initial={initial_ms} ms, max={max_ms} ms, "
            f"multiplier={multiplier}: initial must be at least 1, max at least initial, multiplier at least 1"
        )
    delays_ms = tuple(min(max_ms, initial_ms * multiplier**n) for n in range(_HIGHEST_EXPONENT + 1))
    formula = f"exponential: {format_duration(initial_ms)} × {multiplier}^n, at most {format_duration(max_ms)}"
    return DelayLevels(delays_ms, 1, formula)


def spell_waits(policy: RetryPolicy, max_times: int) -> str:
    """Return the wait before each retry of a message for which nobody requests a level, such as `10s 30s 1m ×3`."""
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
        IllegalDelayLevels: an unknown type or key, or an invalid number.
    """
    known = {"type", "customizedRetryPolicy", "exponentialRetryPolicy"}
    if unknown := sorted(set(policy) - known, key=repr):
        raise IllegalDelayLevels(f"groupRetryPolicy has unknown keys {shown(unknown)}; it knows {sorted(known)}")
    kind = policy.get("type")
    if kind not in (None, "CUSTOMIZED", "EXPONENTIAL"):
        raise IllegalDelayLevels(f"groupRetryPolicy type {shown(kind)} is unknown; use CUSTOMIZED or EXPONENTIAL")
    if kind == "EXPONENTIAL" and (parameters := _parameters(policy, "exponentialRetryPolicy")) is not None:
        return exponential_policy(
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
        raise IllegalDelayLevels(f"groupRetryPolicy.{name} must be a JSON object, not {shown(value)}")
    if unknown := sorted(set(value) - _PARAMETERS[name], key=repr):
        raise IllegalDelayLevels(
            f"groupRetryPolicy.{name} has unknown keys {shown(unknown)}; it knows {sorted(_PARAMETERS[name])}"
        )
    return value


def _integer(parameters: Mapping[str, object], name: str, default: int) -> int:
    value = parameters.get(name, default)
    if not isinstance(value, int) or isinstance(value, bool):
        raise IllegalDelayLevels(f"groupRetryPolicy {name} must be a whole number, not {shown(value)}")
    return value


def _integers(parameters: Mapping[str, object], name: str) -> list[int]:
    value = parameters.get(name)
    if not isinstance(value, list) or any(not isinstance(one, int) or isinstance(one, bool) for one in value):
        raise IllegalDelayLevels(f"groupRetryPolicy {name} must be a list of milliseconds, not {shown(value)}")
    return value
