"""What a worker asks of Kafka about the topics that it is given."""

from __future__ import annotations

from collections.abc import Iterable
from types import SimpleNamespace
from typing import Any, cast

import pytest

from reconsume.bridge.process.settings import Settings
from reconsume.bridge.scheduler.topic_checks import TopicChecks
from reconsume.delay_levels.errors import KafkaNotReachable, KafkaRefused, ReconsumeError

SETTINGS = Settings(bootstrap_servers="127.0.0.1:1")
NAMES = SETTINGS.names
TOPICS = [NAMES.delay(seconds * 1_000) for seconds in range(1, 100)]


def checks_on(cluster: object) -> TopicChecks:
    return TopicChecks(SETTINGS, cast("Any", cluster), cast("Any", cluster))


class Cluster:
    """A cluster that tells no settings.

    Attributes:
        asked: the topics of each request.
        refusals: what requests raise, the last one again and again.
    """

    def __init__(self, *refusals: ReconsumeError) -> None:
        self.asked: list[list[str]] = []
        self.refusals = list(refusals)

    def settings(self, topics: Iterable[str]) -> dict[str, dict[str, str]]:
        self.asked.append(list(topics))
        raise self.refusals.pop(0) if len(self.refusals) > 1 else self.refusals[0]


def test_a_rebalance_asks_once_for_all_topics() -> None:
    """With one question for each, parked topics of 5,000 groups would put the worker out of its group."""
    cluster, topics = Cluster(KafkaNotReachable("no answer")), TOPICS
    assert checks_on(cluster).refused(topics) == {}
    assert cluster.asked == [topics]


def test_a_topic_that_may_not_be_described_leaves_the_others_checked(caplog: pytest.LogCaptureFixture) -> None:
    cluster = Cluster(KafkaRefused("no right"), KafkaRefused("no right"), KafkaNotReachable("no answer"))
    assert checks_on(cluster).refused(TOPICS[:5]) == {}
    assert cluster.asked == [TOPICS[:5], TOPICS[:1], TOPICS[1:2]]
    assert [one.getMessage() for one in caplog.records] == [
        f"settings of {TOPICS[0]} not checked: no right",
        f"settings of {', '.join(TOPICS[:5])} not checked: no answer",
    ]


@pytest.mark.parametrize(
    ("retention", "is_short"), [("3600000", True), ("0", True), ("7200000", False), ("-1", False), (None, False)]
)
def test_a_delay_topic_that_keeps_records_for_less_than_their_delay_is_told(
    caplog: pytest.LogCaptureFixture, retention: str | None, *, is_short: bool
) -> None:
    found = {"message.timestamp.type": "LogAppendTime"} | ({} if retention is None else {"retention.ms": retention})
    cluster = cast("Any", SimpleNamespace(settings=lambda topics: dict.fromkeys(topics, found)))
    assert checks_on(cluster).refused([NAMES.delay(7_200_000), NAMES.send_back, NAMES.parked("g")]) == {}
    told = [one.getMessage() for one in caplog.records]
    line = (
        f"topic reconsume.DELAY.2h keeps records for {retention} ms and delays them by 7200000 ms; raise retention.ms"
    )
    assert told == [line] * is_short
