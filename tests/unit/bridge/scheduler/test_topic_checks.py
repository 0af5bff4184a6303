"""What a worker asks of Kafka about the topics that it is given."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, cast

from reconsume.bridge.process.settings import Settings
from reconsume.bridge.scheduler.topic_checks import TopicChecks
from reconsume.delay_levels.errors import KafkaNotReachable


class Unanswered:
    """A cluster that tells no settings."""

    def __init__(self) -> None:
        self.asked: list[str] = []

    def settings(self, topics: Iterable[str]) -> dict[str, dict[str, str]]:
        self.asked += topics
        raise KafkaNotReachable("no answer")


def test_a_rebalance_waits_for_one_question_without_an_answer_not_for_one_of_each_topic() -> None:
    """More than `max.poll.interval.ms` of them would put the worker out of its group."""
    settings = Settings(bootstrap_servers="127.0.0.1:1")
    cluster = cast("Any", Unanswered())
    checks = TopicChecks(settings, cluster, cluster)
    topics = [settings.names.delay(seconds * 1_000) for seconds in range(1, 100)]
    assert [checks.refused(topic) for topic in topics] == [None] * len(topics)
    assert cluster.asked == topics[:1]
