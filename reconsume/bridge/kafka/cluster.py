"""The handle to an installation for commands, operations and the console."""

from __future__ import annotations

from functools import cached_property

from reconsume.bridge.kafka.admin import KafkaAdmin
from reconsume.bridge.kafka.clients import clock_of
from reconsume.bridge.process.clock import Clock
from reconsume.bridge.process.settings import Settings
from reconsume.delay_levels.errors import TopicNotReady


class Cluster:
    """An installation on a Kafka cluster. It connects on first use of `admin`. Safe to use from several threads.

    Args:
        settings: the settings of this process.
        clock: returns milliseconds; None uses the clock of the address.

    Attributes:
        base: librdkafka settings that every client uses.
        names: the installation's topics.
    """

    def __init__(self, settings: Settings, clock: Clock | None = None) -> None:
        self.settings = settings
        self.base = settings.client_settings()
        self.names = settings.names
        self.clock = clock or clock_of(self.base)

    @cached_property
    def admin(self) -> KafkaAdmin:
        """Return the shared admin client."""
        return KafkaAdmin(self.base)

    def require(self, topic: str) -> str:
        """Return the topic if it exists.

        Raises:
            TopicNotReady: the topic does not exist.
        """
        if not self.admin.partitions([topic]):
            raise TopicNotReady(f"topic {topic} does not exist; {self.names.remedy_if_missing(topic)}")
        return topic
