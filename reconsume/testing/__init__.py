"""An in-memory Kafka and a manual clock, for unit tests of listeners."""

from reconsume.testing.kafka import InMemoryKafka, Record, Waiting
from reconsume.testing.steps import Call

__all__ = ["Call", "InMemoryKafka", "Record", "Waiting"]
