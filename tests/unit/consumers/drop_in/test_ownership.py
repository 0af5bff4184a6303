"""Messages that a transaction refused, read again by the same member."""

from __future__ import annotations

from typing import Any, cast

import pytest
from confluent_kafka import KafkaError, KafkaException, TopicPartition

from reconsume.consumers.drop_in.ownership import Ownership


class Rebalanced:
    """A consumer with two partitions, of which the first has just come back and is not read yet."""

    def __init__(self) -> None:
        self.sought: list[tuple[int, int]] = []

    def assignment(self) -> list[TopicPartition]:
        return [TopicPartition("flights", 0), TopicPartition("flights", 1)]

    def committed(self, partitions: list[TopicPartition], _timeout: float) -> list[TopicPartition]:
        return [TopicPartition(one.topic, one.partition, 7) for one in partitions]

    def seek(self, where: TopicPartition) -> None:
        if where.partition == 0:
            raise KafkaException(KafkaError(KafkaError._STATE))
        self.sought.append((where.partition, where.offset))


def test_a_partition_that_is_not_read_yet_begins_at_its_committed_offset(caplog: pytest.LogCaptureFixture) -> None:
    consumer = Rebalanced()
    Ownership().come_again(cast("Any", consumer), {("flights", 0): 7, ("flights", 1): 8})
    assert consumer.sought == [(1, 8)]
    assert "reading flights-0 again from 7" in caplog.text
