"""For unit tests of listeners: a Kafka in memory, and a clock that goes on when it is told to."""

from reconsume.testing.kafka import InMemoryKafka, Record, Waiting
from reconsume.testing.steps import Call

__all__ = ["Call", "InMemoryKafka", "Record", "Waiting"]
