"""Waiting for a condition, never for a time."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Final, TypeVar

__all__ = ["wait_until"]

T = TypeVar("T")
_PAUSE_SECONDS: Final = 0.02


def wait_until(condition: Callable[[], T], deadline: float = 30.0, what: str = "the condition") -> T:
    """Poll a condition until it holds.

    Args:
        condition: asked every 20 ms; an exception it raises ends the wait.
        deadline: seconds from now; the condition is asked at least once.
        what: said in the failure, as in "the record is on the retry topic".

    Returns:
        The condition's value, which is truthy.

    Raises:
        AssertionError: it did not hold in time.
    """
    end = time.monotonic() + deadline
    pause = threading.Event()
    while not (value := condition()):
        if time.monotonic() >= end:
            raise AssertionError(f"not within {deadline:g} s: {what}")
        pause.wait(_PAUSE_SECONDS)
    return value
