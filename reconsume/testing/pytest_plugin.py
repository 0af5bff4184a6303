"""A pytest fixture. Load it with `pytest_plugins = ["reconsume.testing.pytest_plugin"]`."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from reconsume.testing.kafka import InMemoryKafka

__all__ = ["in_memory_kafka"]


@pytest.fixture
def in_memory_kafka() -> Iterator[InMemoryKafka]:
    """Yield an in-memory Kafka for one test, with the default level table."""
    with InMemoryKafka() as kafka:
        yield kafka
