"""Waiting for a condition, never for a time."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Final, TypeVar

__all__ = ["wait_until"]

T = TypeVar("T")
_SHORTEST_SECONDS: Final = 0.02
_LONGEST_SECONDS: Final = 0.25
_SHARE: Final = 0.05
"""Of the time so far: a condition that reads a whole topic each time takes the CPU from what it waits for."""


def wait_until(condition: Callable[[], T], deadline: float = 90.0, what: str = "the condition") -> T:
    """Poll a condition until it holds.

    Args:
        condition: asked every 20 ms at first, later every 250 ms; an exception it raises ends the wait.
        deadline: seconds from now; the condition is asked at least once.
        what: said in the failure, as in "the record is on the retry topic".

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
