"""Polls for less than a millisecond, without a busy loop.

`Consumer.poll` of confluent-kafka (2.16) cuts its timeout to whole milliseconds. So loops that wait for a point in time
polled without a pause in the last millisecond, which cost up to a millisecond of CPU each time.
Test: tests/unit/bridge/librdkafka/test_short_polls.py.

Remove when: confluent-kafka waits for parts of milliseconds.
"""

from __future__ import annotations

from time import sleep
from typing import Final, Protocol

from reconsume.bridge.process.polled_records import PolledRecord

_SHORTEST_SECONDS: Final = 0.001


class Polled(Protocol):
    """A consumer that can be polled."""

    def poll(self, seconds: float, /) -> PolledRecord | None:
        """Return the next record or error; None if there is none within `seconds`."""


def poll_until(consumer: Polled, seconds: float) -> PolledRecord | None:
    """Return the next record or error; None if there is none within `seconds`, which may be a part of a millisecond."""
    if 0 < seconds < _SHORTEST_SECONDS:
        sleep(seconds)
        return consumer.poll(0)
    return consumer.poll(seconds)
