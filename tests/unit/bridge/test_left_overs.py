"""What an earlier assignment has left is known by the committed offset."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, cast

import pytest
from confluent_kafka import OFFSET_INVALID, KafkaError, KafkaException, TopicPartition
from confluent_kafka import Message as KafkaMessage

from reconsume.bridge.left_overs import LeftOvers
from reconsume.delay_levels.errors import KafkaNotReachable

FLIGHTS = TopicPartition("flights", 0)


@dataclass
class Group:
    """Answers as `Consumer.committed` does."""

    offset: int
    refusals: list[KafkaException] = field(default_factory=list)
    asked: int = 0

    def committed(self, partitions: list[TopicPartition], _timeout: float) -> list[TopicPartition]:
        self.asked += 1
        if self.refusals:
            raise self.refusals.pop()
        return [TopicPartition(one.topic, one.partition, self.offset) for one in partitions]

    def is_left_over(self, left_overs: LeftOvers, offset: int, error: KafkaError | None = None) -> bool:
        polled = KafkaMessage(topic="flights", partition=0, offset=offset, error=error)
        return left_overs.is_one(cast("Any", self), polled)


def owned(times: int, *, at_committed: bool = True) -> LeftOvers:
    left_overs = LeftOvers()
    for _ in range(times):
        left_overs.assigned([FLIGHTS], at_committed=at_committed)
    return left_overs


def test_what_is_below_the_committed_offset_is_left_over_until_something_is_not() -> None:
    group, left_overs = Group(38), owned(2)
    assert [group.is_left_over(left_overs, offset) for offset in (0, 37, 38, 39, 40)] == [
        True,
        True,
        False,
        False,
        False,
    ]
    assert group.asked == 3, "no more than it takes"
    assert left_overs.suspects == set()


@pytest.mark.parametrize("committed", [38, OFFSET_INVALID])
def test_the_first_record_may_be_left_over_too_and_then_comes_again(committed: int) -> None:
    """It was not committed yet when it came, and when librdkafka asked where the new assignment begins."""
    group, left_overs = Group(committed), owned(2)
    assert not group.is_left_over(left_overs, 38)
    group.offset = 39
    assert [group.is_left_over(left_overs, offset) for offset in (38, 39)] == [True, False]
    assert left_overs.suspects == set()


def test_what_stands_before_the_first_record_comes_after_all() -> None:
    """The record that was left over had been read ahead of what its old owner had finished."""
    group, left_overs = Group(38), owned(2)
    assert [group.is_left_over(left_overs, offset) for offset in (40, 38, 39, 40, 41)] == [
        *(False, False, False, True, False)
    ]


def test_with_a_new_assignment_it_begins_anew() -> None:
    group, left_overs = Group(38), owned(2)
    assert not group.is_left_over(left_overs, 38)
    left_overs.assigned([FLIGHTS])
    assert not group.is_left_over(left_overs, 38)


@pytest.mark.parametrize(
    ("times", "at_committed"), [(1, True), (2, False)], ids=["the first time", "chosen by the user"]
)
def test_elsewhere_nothing_is_left_over(times: int, *, at_committed: bool) -> None:
    group = Group(38)
    assert not group.is_left_over(owned(times, at_committed=at_committed), 0)
    assert group.asked == 0


def test_a_group_that_has_committed_nothing_has_left_nothing() -> None:
    assert not Group(OFFSET_INVALID).is_left_over(owned(2), 0)


def test_an_event_is_no_record() -> None:
    assert not Group(38).is_left_over(owned(2), 0, KafkaError(KafkaError._PARTITION_EOF))


def test_where_nobody_answers_it_is_asked_again_with_the_next() -> None:
    group, left_overs = Group(38, [KafkaException(KafkaError(KafkaError._TIMED_OUT))]), owned(2)
    with pytest.raises(KafkaNotReachable, match="asking what is committed"):
        group.is_left_over(left_overs, 0)
    assert group.is_left_over(left_overs, 0)
