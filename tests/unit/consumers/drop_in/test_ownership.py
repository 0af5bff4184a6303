"""Messages that a transaction refused, read again by the same member."""

from __future__ import annotations

from typing import Any, cast

import pytest
from confluent_kafka import KafkaError, KafkaException, TopicPartition

from reconsume.consumers.drop_in.ownership import Ownership
from reconsume.delay_levels.errors import PartitionLost

HERE, THERE = ("flights", 0), ("flights", 1)


class Rebalanced:
    """A consumer with two partitions, of which the first has just come back and is not read yet."""

    def __init__(self) -> None:
        self.sought: list[tuple[int, int]] = []

    def assignment(self) -> list[TopicPartition]:
        return [TopicPartition("flights", 0), TopicPartition("flights", 1)]

    def consumer_group_metadata(self) -> str:
        return "metadata"

    def committed(self, partitions: list[TopicPartition], _timeout: float) -> list[TopicPartition]:
        return [TopicPartition(one.topic, one.partition, 7) for one in partitions]

    def seek(self, where: TopicPartition) -> None:
        if where.partition == 0:
            raise KafkaException(KafkaError(KafkaError._STATE))
        self.sought.append((where.partition, where.offset))


def test_a_partition_that_is_not_read_yet_begins_at_its_committed_offset(caplog: pytest.LogCaptureFixture) -> None:
    consumer = Rebalanced()
    Ownership().come_again(cast("Any", consumer), {HERE: 7, THERE: 8}, consumer.seek)
    assert consumer.sought == [(1, 8)]
    assert "reading flights-0 again from 7" in caplog.text


def test_reading_goes_back_to_what_is_left_of_a_list_that_was_committed_in_part() -> None:
    consumer = Rebalanced()
    Ownership().come_again(cast("Any", consumer), {THERE: 6}, consumer.seek)
    assert consumer.sought == [(1, 7)]


def test_what_the_group_has_passed_after_a_rebalance_is_not_sent_back() -> None:
    consumer, ownership = cast("Any", Rebalanced()), Ownership()
    ownership.assigned([TopicPartition(*THERE)])
    assert ownership.metadata(consumer, {THERE: 6}) == "metadata", "it has been ours ever since"
    ownership.assigned([TopicPartition(*THERE)])
    assert ownership.metadata(consumer, {THERE: 7}) == "metadata"
    with pytest.raises(PartitionLost, match=r"flights-1@6: .* or this member has committed beyond it"):
        ownership.metadata(consumer, {THERE: 6})
