"""The handle to an installation that commands, operations and the console are given."""

from __future__ import annotations

from functools import cached_property

from reconsume.bridge.kafka.admin import KafkaAdmin
from reconsume.bridge.kafka.clients import clock_of
from reconsume.bridge.process.clock import Clock
from reconsume.bridge.process.settings import Settings
from reconsume.delay_levels.errors import TopicNotReady


class Cluster:
    """An installation on a Kafka cluster. Nothing connects before `admin` is used. Safe to use from several threads.

    Args:
        settings: of this process.
        clock: gives the time in milliseconds; None takes the one that holds where the settings lead.

    Attributes:
        base: librdkafka's settings for any client.
        names: the installation's topics.
    """

    def __init__(self, settings: Settings, clock: Clock | None = None) -> None:
        self.settings = settings
        self.base = settings.client_settings()
        self.names = settings.names
        self.clock = clock or clock_of(self.base)

    @cached_property
    def admin(self) -> KafkaAdmin:
        """One client for all questions."""
        return KafkaAdmin(self.base)

    def require(self, topic: str) -> str:
        """Return the topic.

        Raises:
            TopicNotReady: it does not exist.
        """
        if not self.admin.partitions([topic]):
            raise TopicNotReady(f"topic {topic} does not exist; {self.names.remedy_if_missing(topic)}")
        return topic
