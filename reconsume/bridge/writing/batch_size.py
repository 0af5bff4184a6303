"""The size limit of the next transaction of a worker, a consumer's send-backs or a job."""

from __future__ import annotations

from typing import Final

MAX_BATCH_BYTES: Final = 4 * 1024 * 1024
"""The maximum size of a batch's values. A larger record goes alone."""
_FAILED_SLOWLY_MS: Final = 500.0
"""Less than any timeout. A batch that fails sooner, as in a rebalance, fails regardless of its size."""
_SLOW_MS: Final = 2_500.0
"""A batch that takes longer is slow: half of the time limit for one step of a transaction."""
_SLOW_PART: Final = 0.25
"""A batch that takes longer than this part of its transaction's time limit is slow, too."""
_QUICK_PART: Final = 0.4
"""A batch that takes at most this part of the time of a slow one is quick."""
_SLOW_GROWTH: Final = 1.25
_UNPROVEN: Final = 8
"""A batch smaller than the limit by this factor does not prove that the limit may grow."""


class BatchSize:
    """Limits batches to the size that the brokers accept in time.

    A slow batch, or one that fails late, halves the limit. A quick one doubles it. In between the limit grows slowly,
    because on a link with long round trips small batches are not quick either. So on a narrow link the limit oscillates
    below the size at which transactions fail, and after an outage it recovers within a dozen batches.

    Guarantees: no batch is tried forever only because it takes longer than a transaction may.
    Tests: tests/unit/bridge/writing/test_batch_size.py, tests/integration/scheduler/test_narrow_link.py,
    tests/integration/operations/test_jobs_killed.py.

    Args:
        max_records: maximum of records in a batch.
        max_bytes: maximum of bytes of a batch's values.
        transaction_ms: the time limit of a transaction.
    """

    def __init__(
        self, max_records: int, max_bytes: int = MAX_BATCH_BYTES, *, transaction_ms: float = _SLOW_MS / _SLOW_PART
    ) -> None:
        self._max_records = max_records
        self._max_bytes = max_bytes
        self._slow_ms = min(_SLOW_MS, transaction_ms * _SLOW_PART)
        self._part = 1.0

    @property
    def is_reduced(self) -> bool:
        """Whether batches were slow, or one of their records was refused."""
        return self._part < 1.0

    @property
    def records(self) -> int:
        """The maximum of records in the next batch."""
        return max(1, round(self._max_records * self._part))

    @property
    def bytes(self) -> int:
        """The maximum of bytes in the next batch, unless it is a single record."""
        return max(1, int(self._max_bytes * self._part))

    def took(self, records: int, size: int, took_ms: float, *, committed: bool) -> None:
        """Learn from a batch of this many records and bytes that ended after this time."""
        fill = max(records / self._max_records, size / self._max_bytes)
        if took_ms > (self._slow_ms if committed else _FAILED_SLOWLY_MS):
            self._shrink(fill / 2)
        elif committed and fill * _UNPROVEN >= self._part:
            self._part = min(1.0, self._part * (2.0 if took_ms <= self._slow_ms * _QUICK_PART else _SLOW_GROWTH))

    def halve(self, records: int) -> None:
        """Learn that one of this many records was refused."""
        self._shrink(max(1, records // 2) / self._max_records)

    def _shrink(self, part: float) -> None:
        self._part = max(1 / self._max_records, min(self._part, part))
