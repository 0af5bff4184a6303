"""The send-back rule: where a failed message goes.

The counter is in the record, and only this rule increments it (RocketMQ: BR-17, BR-18).
"""

from __future__ import annotations

from functools import lru_cache
from typing import Final, NamedTuple

from reconsume.delay_levels.rules.retry_policies import RetryPolicy

DEFAULT_MAX_RECONSUME_TIMES: Final = 16
"""16 send-backs, so 17 deliveries (RocketMQ: GP-01, SB-03)."""


class Delayed(NamedTuple):
    """Wait on `level` for `delay_ms`, then return on the group's retry topic."""

    level: int
    delay_ms: int
    reconsume_times: int


class DeadLetter(NamedTuple):
    """Go to the group's dead-letter topic at once."""

    reason: str
    reconsume_times: int


@lru_cache(maxsize=1_024)
def decide_send_back(
    reconsume_times: int, delay_level: int, max_reconsume_times: int, policy: RetryPolicy
) -> Delayed | DeadLetter:
    """Return where a failed message goes (RocketMQ: BR-13, BR-15, BR-17, DP-01).

    Args:
        reconsume_times: how often it was sent back before, as stored in the record.
        delay_level: the requested level: 0 lets the policy choose, below 0 requests the dead-letter topic.
        max_reconsume_times: at this count or above it is a dead letter. With 0 the first failure makes a dead letter.
        policy: the level table, or the group's own retry policy.
    """
    if delay_level < 0:
        return DeadLetter("asked for by the consumer", reconsume_times + 1)
    if reconsume_times >= max_reconsume_times:
        return DeadLetter(
            f"sent back {reconsume_times} times, the maximum is {max_reconsume_times}", reconsume_times + 1
        )
    level = policy.capped(delay_level) if delay_level > 0 else policy.automatic_level(reconsume_times)
    return Delayed(level, policy.delay_ms(level), reconsume_times + 1)
