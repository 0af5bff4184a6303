"""A Kafka consumer whose subscription follows the topics that match its patterns.

Patterns are resolved here and not by librdkafka: it searches with the C library's expressions in the classic group
protocol, and leaves it to the brokers' RE2/J, on the whole name, in the new one (KIP-848), where nothing can be
excluded. Here a pattern means the same in both, and never one of our own topics.
Test: tests/integration/test_subscriptions.py.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any

from confluent_kafka import Message as KafkaMessage

from reconsume.bridge.kafka.admin import KafkaAdmin
from reconsume.bridge.kafka.clients import DerivedConsumer
from reconsume.consumers.subscriptions.repeated_look import RepeatedLook
from reconsume.consumers.subscriptions.subscription import Subscriptions

__all__ = ["PatternConsumer", "matching_topics"]

logger = logging.getLogger(__name__)


def matching_topics(admin: KafkaAdmin, subscriptions: Subscriptions) -> RepeatedLook[list[str]]:
    """Looks for the topics that exist and are subscribed to."""
    return RepeatedLook(lambda: list(subscriptions.existing(admin)), "topics that match a pattern")


class PatternConsumer(DerivedConsumer):
    """Subscribes to the topics that it is told, and to those that the repeated look has found by now.

    Args:
        conf: for librdkafka.
        found: has been started.
    """

    def __init__(self, conf: Mapping[str, Any], found: RepeatedLook[list[str]]) -> None:
        super().__init__(dict(conf))
        self._found = found
        self._seen: list[str] | None = None
        self._always: list[str] = []
        self._callbacks: dict[str, Any] = {}
        self._subscribed: set[str] = set()

    def subscribe(self, topics: list[str], **callbacks: Any) -> None:  # type: ignore[override]
        """As in `confluent_kafka`, and to what the repeated look has found."""
        self._always, self._callbacks = topics, callbacks
        self._follow()

    def poll(self, timeout: float = -1) -> KafkaMessage | None:
        """As in `confluent_kafka`, after a look at what was found."""
        if self._found.latest is not self._seen:
            self._follow()
        return super().poll(timeout)

    def _follow(self) -> None:
        self._seen = self._found.latest
        wanted = {*self._always, *(self._seen or ())}
        if wanted == self._subscribed:
            return
        added, gone = sorted(wanted - self._subscribed), sorted(self._subscribed - wanted)
        if added:
            logger.info("subscribing to %s", ", ".join(added))
        if gone:
            logger.info("subscribing no longer to %s, which is gone", ", ".join(gone))
        self._subscribed = wanted
        super().subscribe(sorted(wanted), **self._callbacks)
