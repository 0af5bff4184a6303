"""Floods: a token bucket for each target and delay topic."""

from __future__ import annotations

from dataclasses import dataclass
from threading import Lock
from typing import Final

BURST: Final = 500
"""The number of records of one target that may enter a delay topic at once."""
PER_SECOND: Final = 100
"""The number of records per second that refill the bucket."""
MOST_BUCKETS: Final = 10_000
"""The maximum of remembered targets: headers name them, and anyone may write headers."""


@dataclass(slots=True)
class _Bucket:
    """The budget of one target in one lane.

    Attributes:
        tokens: the number of records that still fit.
        at_ms: the time of that number.
        is_flooded: whether it was empty, and has not been full since.
    """

    tokens: float
    at_ms: float
    is_flooded: bool = False


class LaneBudgets:
    """The budgets of one writer.

    A target that has emptied its bucket counts as a flood until the bucket is full again, so it does not alternate with
    each record.

    Guarantees: memory is bounded. If the maximum of targets is busy, each further one counts as a flood.
    Test: tests/unit/delay_levels/rules/test_lane_budgets.py.

    Safe to use from several threads.
    """

    def __init__(self) -> None:
        self._buckets: dict[tuple[str, str], _Bucket] = {}
        self._lock = Lock()

    def is_flood(self, lane: str, target: str, now_ms: float) -> bool:
        """Count a record that is written to a lane; return whether it is part of a flood."""
        with self._lock:
            return self._count(lane, target, now_ms)

    def _count(self, lane: str, target: str, now_ms: float) -> bool:
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
