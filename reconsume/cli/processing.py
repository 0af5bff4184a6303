"""How demo and runs of faults process a message: they publish it."""

from __future__ import annotations

from typing import Final

from reconsume.bridge.kafka.client_settings import producer_settings
from reconsume.bridge.writing.lane_partitions import ANY_PARTITION
from reconsume.consumers.delayed.acknowledged_producer import AcknowledgedProducer
from reconsume.delay_levels.errors import KafkaNotReachable

PROCESSED_ORIGIN: Final = "origin"
"""Header of published messages: the place of the first copy, `<topic>/<partition>/<offset>`."""
_PATIENCE_SECONDS: Final = 3_600.0
"""Longer than any fault lasts: the producer itself never gives a message up."""


class Processing:
    """Publishes messages. Many threads share it; each waits for its own message.

    Args:
        bootstrap_servers: `host:port` of Kafka, comma-separated.
        topic: the topic for processed messages.
        may_repeat: whether publishing twice is harmless. Then a message is repeated after an unknown outcome, and
            without idempotence: librdkafka would spin while failing brokers do not answer.
    """

    def __init__(self, bootstrap_servers: str, topic: str, *, may_repeat: bool = False) -> None:
        self._topic, self._may_repeat = topic, may_repeat
        settings = producer_settings({"bootstrap.servers": bootstrap_servers}, "processing")
        settings |= {"linger.ms": 2, "enable.idempotence": not may_repeat}
        self._producer = AcknowledgedProducer(settings, _PATIENCE_SECONDS)

    def process(self, body: bytes | None, origin: str, key: bytes | None = None) -> None:
        """Publish a message with this origin (`<topic>/<partition>/<offset>`).

        Raises:
            KafkaRefused: Kafka refuses it; KafkaNotReachable: it may succeed later.
        """
        while True:
            try:
                self._producer.store(self._topic, ANY_PARTITION, key, body, [(PROCESSED_ORIGIN, origin.encode())])
            except KafkaNotReachable:
                if not self._may_repeat:
                    raise
            else:
                return

    def close(self) -> None:
        """Close the producer; call this when no message is being processed."""
        self._producer.close()
