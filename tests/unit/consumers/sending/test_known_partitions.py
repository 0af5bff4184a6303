"""Which partitions are there when a subscription begins."""

from __future__ import annotations

import threading
from collections.abc import Iterable
from typing import Any

import pytest

from reconsume.consumers import ConsumeFromWhere, PushConsumer
from reconsume.consumers.partitions.consume_from import ConsumeFrom
from reconsume.consumers.sending import retry_topic
from reconsume.consumers.subscriptions.subscription import Subscriptions
from reconsume.delay_levels.errors import KafkaNotReachable
from reconsume.delay_levels.wire.names import TopicNames

LAST, FIRST = ConsumeFromWhere.CONSUME_FROM_LAST_OFFSET, ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET


class FakeAdmin:
    """Has two partitions of `flights`; `away` questions get no answer."""

    def __init__(self, away: int = 0) -> None:
        self.away = away

    def partitions(self, topics: Iterable[str], refused: dict[str, Any]) -> dict[str, int]:
        assert refused == {}
        if self.away:
            self.away -= 1
            raise KafkaNotReachable("away")
        return {topic: 2 for topic in topics if topic == "flights"}

    def topic_ids(self, topics: Iterable[str], refused: dict[str, Any]) -> dict[str, str]:
        assert refused == {}
        return {topic: f"id of {topic}" for topic in topics}

    def topics(self) -> dict[str, int]:
        return {"flights": 2, "trains": 1, "__consumer_offsets": 50}


@pytest.mark.parametrize(
    ("admin", "topics", "where", "known"),
    [
        (FakeAdmin(away=2), ["flights", "later"], LAST, {"flights": 2}),
        (FakeAdmin(), ["^.*"], LAST, {"flights": 2, "trains": 1}),
        (FakeAdmin(), ["flights"], FIRST, None),
    ],
    ids=["by name, after a while", "pattern", "from the first offset nothing is asked"],
)
def test_the_cluster_is_asked_for_what_is_subscribed_to(
    monkeypatch: pytest.MonkeyPatch, admin: FakeAdmin, topics: list[str], where: ConsumeFromWhere, known: Any
) -> None:
    monkeypatch.setattr(retry_topic, "KafkaAdmin", lambda *_, **__: admin)
    monkeypatch.setattr(retry_topic, "_AGAIN_SECONDS", 0.0)
    subscriptions = Subscriptions(TopicNames())
    for topic in topics:
        subscriptions.add(topic, "*")
    settings = PushConsumer("departures")._settings
    found = retry_topic.with_known_partitions(ConsumeFrom(where), settings, subscriptions, threading.Event())
    assert found == ConsumeFrom(where, known=known, ids={topic: f"id of {topic}" for topic in known or ()})


@pytest.mark.parametrize(
    ("known", "partition", "was_there"),
    [(None, 5, True), ({}, 0, False), ({"flights": 2}, 1, True), ({"flights": 2}, 2, False)],
)
def test_a_partition_behind_the_known_ones_is_new(known: Any, partition: int, *, was_there: bool) -> None:
    assert ConsumeFrom(LAST, known=known).was_there("flights", partition) is was_there
