"""When a waiting record is due, by the clock of the broker that stored it."""

from __future__ import annotations


def due_ms(append_ms: int, delay_ms: int) -> int:
    """Return append time plus delay, in milliseconds (RocketMQ: DP-05)."""
    return append_ms + delay_ms
