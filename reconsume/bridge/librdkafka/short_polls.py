"""Polls that end within a millisecond.

`Consumer.poll` of confluent-kafka (2.16) cuts its time-out to whole milliseconds. A loop that waits for a moment asked
again and again in the last one, which took up to a millisecond of CPU for each moment.
Test: tests/unit/bridge/librdkafka/test_short_polls.py.

Remove when: confluent-kafka waits for parts of milliseconds.
"""

from __future__ import annotations

from time import sleep
from typing import Final, Protocol

from reconsume.bridge.process.polled_records import PolledRecord

_SHORTEST_SECONDS: Final = 0.001


class Polled(Protocol):
    """A consumer."""

    def poll(self, seconds: float, /) -> PolledRecord | None:
        """One record or error."""


def poll_until(consumer: Polled, seconds: float) -> PolledRecord | None:
    """Return one record or error that comes within this time, or has come after less than a millisecond."""
    if 0 < seconds < _SHORTEST_SECONDS:
        sleep(seconds)
        return consumer.poll(0)
    return consumer.poll(seconds)
