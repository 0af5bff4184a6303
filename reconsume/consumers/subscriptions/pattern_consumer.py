"""A Kafka consumer whose subscription follows the topics that match its patterns.

Patterns are resolved here and not by librdkafka: it searches with the C library's expressions in the classic group
protocol, and leaves it to the brokers' RE2/J, on the whole name, in the new one (KIP-848), where nothing can be
excluded. Here a pattern means the same in both, and never one of our own topics.
Test: tests/integration/test_subscriptions.py.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import Any

from reconsume.bridge.kafka.group_consumer import GroupConsumer
from reconsume.consumers.subscriptions.repeated_look import RepeatedLook

logger = logging.getLogger(__name__)


class PatternConsumer(GroupConsumer):
    """Subscribes to the topics that it is told, and to those that the repeated look has found by now.

    Args:
        settings: for librdkafka.
        found: has been started.
    """

    def __init__(self, settings: Mapping[str, Any], found: RepeatedLook[list[str]]) -> None:
        super().__init__(settings)
        self._found = found
        self._seen: list[str] | None = None
        self._always: Sequence[str] = ()
        self._subscribed: set[str] = set()

    def subscribe(self, topics: Sequence[str]) -> None:
        """Take part in the group with these topics, and with what is found."""
        self._always = topics
        self._follow()

    def follow(self) -> None:
        """Subscribe anew when other topics match."""
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
