"""When a topic that someone has deleted may be made again."""

from __future__ import annotations

from typing import Final

from reconsume.bridge.process.brokers_clock import monotonic_ms
from reconsume.bridge.process.clock import Clock
from reconsume.delay_levels.errors import KafkaNotReachable

_NOTICED_MS: Final = 20_000.0
"""Our consumers look every 10 s (`topic.metadata.refresh.interval.ms`) whether their topics are still there."""


class DeletedTopics:
    """A topic that was deleted is not made again before its readers have noticed.

    One that finds a topic of the same name at its next question goes on at its old offset: librdkafka (2.16) resets it
    only where the new topic is shorter. What was stored before that offset would stay there forever.

    Args:
        clock: milliseconds that only grow.

    Threads may share it.
    """

    def __init__(self, clock: Clock = monotonic_ms) -> None:
        self._clock = clock
        self._seen: set[str] = set()
        self._missed_since: dict[str, float] = {}

    def saw(self, topic: str) -> None:
        """It is there."""
        self._seen.add(topic)
        self._missed_since.pop(topic, None)

    def missed(self, topic: str) -> None:
        """It is not there; returns if it may be made.

        Raises:
            KafkaNotReachable: it was there, and not everybody can know yet that it is gone.
        """
        if topic not in self._seen:
            return
        now = self._clock()
        left = self._missed_since.setdefault(topic, now) + _NOTICED_MS - now
        if left > 0:
            raise KafkaNotReachable(
                f"topic {topic} was deleted; it is created again in {left / 1000:.0f} s, when its readers have noticed"
            )
