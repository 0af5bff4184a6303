"""The retry topic that a consumer makes before it begins."""

from __future__ import annotations

import threading
from collections.abc import Iterable
from typing import Any

import pytest

from reconsume.bridge.admin import ClusterFacts
from reconsume.bridge.groups import Groups
from reconsume.consumers import retry_topic
from reconsume.delay_levels.errors import KafkaNotReachable, KafkaRefused, ReconsumeError
from reconsume.delay_levels.names import TopicNames


class FakeAdmin:
    """Has no topics; `away` questions get no answer, `error` is the answer to whoever makes one."""

    def __init__(self, away: int = 0, error: ReconsumeError | None = None) -> None:
        self.away = away
        self.error = error
        self.facts = lambda: ClusterFacts(1, 1, 1_048_588)
        self.made: list[str] = []

    def partitions(self, _topics: Iterable[str]) -> dict[str, int]:
        if self.away:
            self.away -= 1
            raise KafkaNotReachable("away")
        return {}

    def create(self, topic: str, *_: Any) -> bool:
        self.made.append(topic)
        if self.error is not None:
            raise self.error
        return True


@pytest.mark.parametrize("error", [None, KafkaRefused("no right"), KafkaNotReachable("a broker is fenced")])
def test_a_consumer_waits_for_kafka_and_not_for_a_topic_that_cannot_be_made(
    monkeypatch: pytest.MonkeyPatch, error: ReconsumeError | None
) -> None:
    admin, names, stop = FakeAdmin(away=2, error=error), TopicNames(), threading.Event()
    monkeypatch.setattr(retry_topic, "KafkaAdmin", lambda _base: admin)
    monkeypatch.setattr(retry_topic, "_AGAIN_SECONDS", 0.0)
    retry_topic.make_retry_topic({}, names, "g", Groups(), stop)
    assert admin.made == [names.retry("g")]
