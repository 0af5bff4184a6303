"""Detects when a producer has seen so many topics that a new producer is cheaper."""

from __future__ import annotations

from collections.abc import Sequence
from operator import itemgetter
from typing import Final

from reconsume.bridge.scheduler.targets.routing import Delivery

_MANY: Final = 1_000
_STEPS: Final = 100_000_000
"""About a second of searching, ten times the cost of a new producer."""
_TOPIC: Final = itemgetter(0)


class TopicsSeen:
    """Counts the cost of librdkafka's search for topics.

    librdkafka 2.16 forgets no topic, and searches all of them for each record: 3 µs with one topic, 58 µs with 5,000. A
    producer that has seen more than 1,000 topics and uses few of them is replaced.

    Tests: tests/unit/bridge/scheduler/targets/test_topics_seen.py, benchmarks/scheduler/many_topics.py.
    Remove when: librdkafka finds a topic in constant time, or forgets topics.
    """

    def __init__(self) -> None:
        self._seen: set[str] = set()
        self._steps = 0

    def are_too_many(self, batch: Sequence[Delivery]) -> bool:
        """Count a written batch; True if its producer should be replaced, after which counting restarts.

        A producer that still uses most of its topics is kept: the next one would see them too.
        """
        topics = set(map(_TOPIC, batch))
        self._seen |= topics
        self._steps += len(batch) * len(self._seen)
        if len(self._seen) <= _MANY or self._steps <= _STEPS or 2 * len(topics) > len(self._seen):
            return False
        self._seen, self._steps = set(), 0
        return True
