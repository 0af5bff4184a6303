"""When a deleted topic may be recreated."""

from __future__ import annotations

from typing import Final

from reconsume.bridge.process.brokers_clock import monotonic_ms
from reconsume.bridge.process.clock import Clock
from reconsume.delay_levels.errors import KafkaNotReachable

_NOTICED_MS: Final = 20_000.0
"""Our consumers check every 10 s (`topic.metadata.refresh.interval.ms`) whether their topics still exist."""


class DeletedTopics:
    """Delays the recreation of a deleted topic until its readers have noticed the deletion.

    A reader that finds a topic of the same name at its next refresh continues at its old offset: librdkafka (2.16)
    resets the offset only if the new topic is shorter. Records before that offset would never be read, except by
    workers, which compare topic ids (`Assignment.check_ids`).

    Args:
        clock: monotonic milliseconds.

    Safe to use from several threads.
    """

    def __init__(self, clock: Clock = monotonic_ms) -> None:
        self._clock = clock
        self._seen: set[str] = set()
        self._missed_since: dict[str, float] = {}

    def saw(self, topic: str) -> None:
        """Note that the topic exists."""
        self._seen.add(topic)
        self._missed_since.pop(topic, None)

    def missed(self, topic: str) -> None:
        """Note that the topic does not exist; return if it may be created.

        Raises:
            KafkaNotReachable: it existed recently, and its readers may not have noticed the deletion.
        """
        if topic not in self._seen:
            return
        now = self._clock()
        left = self._missed_since.setdefault(topic, now) + _NOTICED_MS - now
        if left > 0:
            raise KafkaNotReachable(
                f"topic {topic} was deleted; it is created again in {left / 1000:.0f} s, when its readers have noticed"
            )
