"""A Kafka consumer whose subscription follows the topics that match its patterns.

Patterns are resolved here, not by librdkafka. In the classic group protocol librdkafka searches with the C library's
expressions; in the new one (KIP-848) brokers match whole names with RE2/J and cannot exclude topics. Here a pattern
means the same in both, and never matches a topic of reconsume.
Test: tests/integration/consumers/test_subscriptions.py.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final

from reconsume.bridge.kafka.group_consumer import GroupConsumer
from reconsume.bridge.process.safe_logger import SafeLogger
from reconsume.bridge.topics.missing_topics import MissingTopics
from reconsume.consumers.subscriptions.repeated_look import RepeatedLook

logger = SafeLogger(__name__)

_LOOKS_WITHOUT: Final = 3
"""After so many looks a topic counts as deleted."""


class MatchingTopics:
    """The topics that match, with those that have been missing only for a moment (see `MissingTopics`).

    Args:
        look: asks a broker for the topics that match now.
    """

    def __init__(self, look: Callable[[], Iterable[str]]) -> None:
        self._look = look
        self._missing = MissingTopics()
        self._topics: set[str] = set()

    def __call__(self) -> list[str]:
        """Return the topics; each call is a look."""
        found = set(self._look())
        looks_without = self._missing.look(self._topics - found)
        self._topics = found | {topic for topic, looks in looks_without.items() if looks < _LOOKS_WITHOUT}
        return sorted(self._topics)


class PatternConsumer(GroupConsumer):
    """Subscribes to the given topics, and to those that the repeated look has found by now.

    Args:
        settings: for librdkafka.
        found: must be started.
    """

    def __init__(self, settings: Mapping[str, Any], found: RepeatedLook[list[str]]) -> None:
        super().__init__(settings)
        self._found = found
        self._seen: list[str] | None = None
        self._always: Sequence[str] = ()
        self._subscribed: set[str] = set()

    def subscribe(self, topics: Sequence[str]) -> None:
        """Join the group with these topics and the found ones."""
        self._always = topics
        self._follow()

    def follow(self) -> None:
        """Subscribe again when other topics match."""
        if self._found.latest is not self._seen:
            self._follow()

    def _follow(self) -> None:
        self._seen = self._found.latest
        wanted = {*self._always, *(self._seen or ())}
        if wanted == self._subscribed:
            return
        added, gone = sorted(wanted - self._subscribed), sorted(self._subscribed - wanted)
        if added:
            logger.info("subscribing to %s", ", ".join(added))
        if gone:
            logger.info("unsubscribed from %s, which is gone", ", ".join(gone))
        self._subscribed = wanted
        super().subscribe(sorted(wanted))
