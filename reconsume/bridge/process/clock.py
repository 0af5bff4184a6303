"""The system clock."""

from __future__ import annotations

import time
from collections.abc import Callable

Clock = Callable[[], float]
"""Returns milliseconds since the epoch."""


def now_ms() -> float:
    """Return milliseconds since the epoch, as in Kafka's timestamps."""
    return time.time() * 1000
