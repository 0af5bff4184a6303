"""When a waiting record is due, by the clock of the broker that stored it."""

from __future__ import annotations

__all__ = ["countdown_ms", "due_ms"]


def due_ms(append_ms: int, delay_ms: int) -> int:
    """Append time plus delay, both in milliseconds (RocketMQ: DP-05)."""
    return append_ms + delay_ms


def countdown_ms(due: int, now_ms: float) -> float:
    """What is left to wait; 0 or less means due.

    A record from the future waits for its time. RocketMQ delivers it at once when the clock went back (SC-09,
    SC-10), which is early.
    """
    return due - now_ms
