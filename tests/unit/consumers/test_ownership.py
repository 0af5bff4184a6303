"""What an earlier assignment has left is not given to the program."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, cast

import pytest
from confluent_kafka import OFFSET_INVALID, KafkaError, KafkaException, TopicPartition
from confluent_kafka import Message as KafkaMessage

from reconsume.consumers.ownership import Ownership

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

    def is_left_over(self, ownership: Ownership, offset: int, error: KafkaError | None = None) -> bool:
        polled = KafkaMessage(topic="flights", partition=0, offset=offset, error=error)
        return ownership.is_left_over(cast("Any", self), polled)


def owned(times: int, *, at_committed: bool = True) -> Ownership:
    ownership = Ownership()
    for _ in range(times):
        ownership.assigned([FLIGHTS], at_committed=at_committed)
    return ownership


def test_what_is_below_the_committed_offset_is_left_over_until_something_is_not() -> None:
    group, ownership = Group(38), owned(2)
    assert [group.is_left_over(ownership, offset) for offset in (0, 37, 38, 39)] == [True, True, False, False]
    assert group.asked == 3, "no more than it takes"
    assert ownership.suspects == set()


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


def test_where_nobody_answers_it_is_taken_as_it_comes_and_asked_again(caplog: pytest.LogCaptureFixture) -> None:
    group, ownership = Group(38, [KafkaException(KafkaError(KafkaError._TIMED_OUT))]), owned(2)
    assert not group.is_left_over(ownership, 0)
    assert "taking flights-0 as it comes" in caplog.text
    assert group.is_left_over(ownership, 0)
