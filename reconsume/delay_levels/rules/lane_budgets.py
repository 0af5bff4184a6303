"""Which records are a flood: a token bucket for each target and delay topic."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

BURST: Final = 500
"""Records of one target that may enter a delay topic at once."""
PER_SECOND: Final = 100
"""Records for which there is room again each second."""
MOST_BUCKETS: Final = 10_000
"""Headers name targets, and anybody may write headers."""


@dataclass(slots=True)
class _Bucket:
    """The budget of one target in one lane.

    Attributes:
        tokens: records for which there is room.
        at_ms: when that was so.
        is_flooded: whether it was empty, and has not been full since.
    """

    tokens: float
    at_ms: float
    is_flooded: bool = False


class LaneBudgets:
    """The budgets of one writer.

    A target that has emptied its bucket floods until the bucket is full again, so it does not change sides with each
    record.

    Guarantees: memory is bounded. While as many targets as are remembered are busy, each further one counts as a flood.
    Test: tests/unit/delay_levels/rules/test_lane_budgets.py.

    Several threads may share one: a race counts a record too few.
    """

    def __init__(self) -> None:
        self._buckets: dict[tuple[str, str], _Bucket] = {}

    def is_flood(self, lane: str, target: str, now_ms: float) -> bool:
        """Count a record that is written to a lane; whether it is part of a flood."""
        bucket = self._buckets.get((lane, target))
        if bucket is None:
            if len(self._buckets) >= MOST_BUCKETS and not self._forget_full(now_ms):
                return True
            bucket = self._buckets[lane, target] = _Bucket(BURST, now_ms)
        bucket.tokens = _tokens(bucket, now_ms)
        bucket.at_ms = now_ms
        if bucket.is_flooded:
            bucket.is_flooded = bucket.tokens < BURST
        else:
            bucket.is_flooded = bucket.tokens < 1
        bucket.tokens = max(0.0, bucket.tokens - 1)
        return bucket.is_flooded

    def _forget_full(self, now_ms: float) -> bool:
        self._buckets = {key: one for key, one in self._buckets.items() if _tokens(one, now_ms) < BURST}
        return len(self._buckets) < MOST_BUCKETS


def _tokens(bucket: _Bucket, now_ms: float) -> float:
    return min(float(BURST), bucket.tokens + max(0.0, now_ms - bucket.at_ms) * PER_SECOND / 1000)
