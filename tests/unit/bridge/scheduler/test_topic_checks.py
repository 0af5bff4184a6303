"""What a worker asks of Kafka about the topics that it is given."""

from __future__ import annotations

from collections.abc import Iterable
from types import SimpleNamespace
from typing import Any, cast

import pytest

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


@pytest.mark.parametrize(
    ("retention", "is_short"), [("3600000", True), ("0", True), ("7200000", False), ("-1", False), (None, False)]
)
def test_a_delay_topic_that_keeps_records_for_less_than_their_delay_is_told(
    caplog: pytest.LogCaptureFixture, retention: str | None, *, is_short: bool
) -> None:
    settings = Settings(bootstrap_servers="127.0.0.1:1")
    found = {"message.timestamp.type": "LogAppendTime"} | ({} if retention is None else {"retention.ms": retention})
    cluster = cast("Any", SimpleNamespace(settings=lambda topics: dict.fromkeys(topics, found)))
    checks = TopicChecks(settings, cluster, cluster)
    for topic in (settings.names.delay(7_200_000), settings.names.send_back, settings.names.parked("g")):
        assert checks.refused(topic) is None
    told = [one.getMessage() for one in caplog.records]
    line = (
        f"topic reconsume.DELAY.2h keeps records for {retention} ms and delays them by 7200000 ms; raise retention.ms"
    )
    assert told == [line] * is_short
