"""Waiting for a condition, never for a time."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Final, TypeVar

__all__ = ["PATIENCE", "wait_until"]

T = TypeVar("T")
PATIENCE: Final = 300.0
"""Seconds until a wait has failed: only a failing test lasts so long, and a busy machine may stand still for long."""
_SHORTEST_SECONDS: Final = 0.02
_LONGEST_SECONDS: Final = 0.25
_SHARE: Final = 0.05
"""Of the time so far: a condition that reads a whole topic each time takes the CPU from what it waits for."""


def wait_until(condition: Callable[[], T], what: str = "the condition", deadline: float = PATIENCE) -> T:
    """Poll a condition until it holds.

    Args:
        condition: asked every 20 ms at first, later every 250 ms; an exception it raises ends the wait.
        what: said in the failure, as in "the record is on the retry topic".
        deadline: seconds from now; the condition is asked at least once.

    Returns:
        The condition's value, which is truthy.

    Raises:
        AssertionError: it did not hold in time.
    """
    began = time.monotonic()
    pause = threading.Event()
    while not (value := condition()):
        waited = time.monotonic() - began
        if waited >= deadline:
            raise AssertionError(f"not within {deadline:g} s: {what}")
        pause.wait(min(_LONGEST_SECONDS, max(_SHORTEST_SECONDS, waited * _SHARE)))
    return value
