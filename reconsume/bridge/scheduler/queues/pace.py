"""When a worker starts its next transaction."""

from __future__ import annotations

from math import exp
from typing import Final

_MEMORY_MS: Final = 1_000.0
_FREE_RECORDS_PER_MS: Final = 0.4
"""At this rate each transaction has several records without any wait."""


class TransactionPace:
    """Lets records that are due one after the other share a transaction, which costs the same for one as for ten.

    The wait between two transactions is longest at the lowest rates and ends at 400 records per second. The first
    record after a pause never waits. Shown by `benchmarks/scheduler/lateness.py`.

    Args:
        longest_ms: the longest time between the starts of two transactions; 0 never waits.
    """

    def __init__(self, longest_ms: float) -> None:
        self._longest_ms = longest_ms
        self._records_per_ms = 0.0
        self._began_ms = float("-inf")

    def began(self, now_ms: float, records: int) -> None:
        """Note the start of a transaction."""
        passed_ms = max(0.0, now_ms - self._began_ms)
        self._records_per_ms = self._records_per_ms * exp(-passed_ms / _MEMORY_MS) + records / _MEMORY_MS
        self._began_ms = now_ms

    def wait_ms(self, now_ms: float) -> float:
        """Return how long the next transaction has to wait; 0 if not at all.

        A clock that was set back ends the wait.
        """
        if not self._longest_ms or now_ms < self._began_ms:
            return 0.0
        gap_ms = self._longest_ms * (1 - self._records_per_ms / _FREE_RECORDS_PER_MS)
        return max(0.0, gap_ms - (now_ms - self._began_ms))
