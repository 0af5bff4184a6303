"""The one real clock."""

from __future__ import annotations

import time
from collections.abc import Callable

Clock = Callable[[], float]
"""Gives the time as milliseconds since the epoch."""


def now_ms() -> float:
    """Milliseconds since the epoch, as Kafka's timestamps count."""
    return time.time() * 1000
