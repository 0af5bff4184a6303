"""How a message with its own due moment waits: on a cascade of delay topics, and at last in memory.

Guarantees: a lane that is `SLACK_MS` late does not make the message late.
Test: tests/unit/delay_levels/rules/test_cascade.py.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

SLACK_MS: Final = 500
"""The lateness of a lane that still lets the message reach its last stretch in time."""


def next_delay_ms(now_ms: float, deliver_ms: int, delays_ms: Iterable[int]) -> int | None:
    """Return the delay of the next lane: the largest that ends at least `SLACK_MS` before the message is due.

    None means that no lane fits: hold it in memory until it is due, which is at once for a moment in the past.
    With lanes that deliver at most `SLACK_MS` late the last stretch is shorter than the shortest delay and
    `SLACK_MS`.

    Args:
        now_ms: the current time.
        deliver_ms: when the message is due; never early.
        delays_ms: the delays of all lanes, in any order.
    """
    left = deliver_ms - now_ms - SLACK_MS
    return max((delay for delay in delays_ms if 0 < delay <= left), default=None)
