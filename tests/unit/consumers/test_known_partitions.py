"""Which partitions a group knows when its subscription begins."""

from __future__ import annotations

import threading
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import pytest

from reconsume.bridge.admin import Partition
from reconsume.consumers import ConsumeFromWhere, PushConsumer, known_partitions, retry_topic
from reconsume.consumers.consume_from import ConsumeFrom
from reconsume.consumers.known_partitions import counts_of, with_known_partitions
from reconsume.consumers.process_queue import CommitPoint, ProcessQueue
from reconsume.consumers.subscription import Subscriptions
from reconsume.delay_levels.errors import KafkaNotReachable, KafkaRefused
from reconsume.delay_levels.names import TopicNames

LAST, FIRST = ConsumeFromWhere.CONSUME_FROM_LAST_OFFSET, ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET


@pytest.mark.parametrize(
    ("there", "committed", "known"),
    [
        ({}, [], {}),
        ({"flights": 4}, [], {"flights": 4}),
        ({"flights": 4}, [("flights", 0), ("flights", 2)], {"flights": 3}),
        ({"flights": 4, "trains": 2}, [("flights", 3)], {"flights": 4, "trains": 2}),
    ],
    ids=["no topic", "a new group", "partitions were added", "a new topic of an old group"],
)
def test_a_group_knows_the_partitions_up_to_its_last_offset(
    there: dict[str, int], committed: list[Partition], known: dict[str, int]
) -> None:
    assert counts_of(there, committed) == known


class FakeAdmin:
    """Has two partitions of `flights` and the offset of one; `away` questions get no answer."""

    def __init__(self, away: int = 0, *, may_not: bool = False) -> None:
        self.away = away
        self.may_not = may_not

    def partitions(self, topics: Iterable[str], refused: dict[str, Any]) -> dict[str, int]:
        assert refused == {}
        if self.away:
            self.away -= 1
            raise KafkaNotReachable("away")
        return {topic: 2 for topic in topics if topic == "flights"}

    def topics(self) -> dict[str, int]:
        return {"flights": 2, "trains": 1, "__consumer_offsets": 50}

    def committed(self, _group: str, _partitions: Iterable[Partition]) -> dict[Partition, int]:
        if self.may_not:
            raise KafkaRefused("no right")
        return {("flights", 0): 7}


@pytest.mark.parametrize(
    ("admin", "topics", "where", "known"),
    [
        (FakeAdmin(away=2), ["flights", "later"], LAST, {"flights": 1}),
        (FakeAdmin(), ["^.*"], LAST, {"flights": 1, "trains": 1}),
        (FakeAdmin(may_not=True), ["flights"], LAST, {"flights": 2}),
        (FakeAdmin(), ["flights"], FIRST, None),
    ],
    ids=["by name, after a while", "pattern", "no right to the offsets", "from the first offset nothing is asked"],
)
def test_the_cluster_is_asked_for_what_is_subscribed_to(
    monkeypatch: pytest.MonkeyPatch, admin: FakeAdmin, topics: list[str], where: ConsumeFromWhere, known: Any
) -> None:
    monkeypatch.setattr(known_partitions, "KafkaAdmin", lambda *_: admin)
    monkeypatch.setattr(retry_topic, "_AGAIN_SECONDS", 0.0)
    subscriptions = Subscriptions(TopicNames())
    for topic in topics:
        subscriptions.add(topic, "*")
    settings = replace(PushConsumer("departures")._settings, consume_from=ConsumeFrom(where))
    found = with_known_partitions(settings, {}, subscriptions, threading.Event())
    assert found.consume_from == ConsumeFrom(where, known=known)


@pytest.mark.parametrize(
    ("known", "partition", "was_there"),
    [(None, 5, True), ({}, 0, False), ({"flights": 2}, 1, True), ({"flights": 2}, 2, False)],
)
def test_a_partition_behind_the_known_ones_is_new(known: Any, partition: int, *, was_there: bool) -> None:
    assert ConsumeFrom(LAST, known=known).was_there("flights", partition) is was_there


def test_a_first_start_is_committed_before_there_is_a_message() -> None:
    queue = ProcessQueue("flights", 0, start=100)
    assert queue.to_commit == CommitPoint(100, "")
    queue.committed = CommitPoint(100, "")
    assert queue.to_commit is None
    assert ProcessQueue("flights", 0).to_commit is None
