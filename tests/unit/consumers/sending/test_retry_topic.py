"""The retry topic that a consumer makes before it begins."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Sequence
from typing import Any

import pytest

from reconsume.bridge.groups.groups import Groups
from reconsume.bridge.kafka.admin import ClusterFacts, WantedTopic
from reconsume.consumers import DelayProducer, PushConsumer
from reconsume.consumers.group_settings import GroupSettings
from reconsume.consumers.sending import retry_topic
from reconsume.delay_levels.errors import KafkaNotReachable, KafkaRefused, ReconsumeError, TopicNotReady
from reconsume.delay_levels.wire.names import TopicNames
from reconsume.testing import InMemoryKafka


class FakeAdmin:
    """Has no topics but some; `away` questions get no answer, `error` is the answer to whoever makes one."""

    def __init__(self, away: int = 0, error: ReconsumeError | None = None, has: Iterable[str] = ()) -> None:
        self.away = away
        self.error = error
        self.has = set(has)
        self.facts = lambda: ClusterFacts(1, 1, 1_048_588)
        self.made: list[str] = []

    def partitions(self, topics: Iterable[str]) -> dict[str, int]:
        if self.away:
            self.away -= 1
            raise KafkaNotReachable("away")
        return dict.fromkeys(self.has & set(topics), 4)

    def create_all(self, topics: Sequence[WantedTopic]) -> dict[str, Any]:
        self.made += [one.name for one in topics]
        if isinstance(self.error, KafkaNotReachable):
            raise self.error
        return dict.fromkeys(self.made, True if self.error is None else self.error)

    def brokers(self) -> list[int]:
        return [1]


def settings_of(group: str, delay_levels: str | None = None) -> GroupSettings:
    return PushConsumer(group, delay_levels=delay_levels)._settings


@pytest.mark.parametrize("error", [None, KafkaRefused("no right"), KafkaNotReachable("a broker is fenced")])
def test_a_consumer_waits_for_kafka_and_not_for_a_topic_that_cannot_be_made(
    monkeypatch: pytest.MonkeyPatch, error: ReconsumeError | None
) -> None:
    admin, names, stop = FakeAdmin(away=2, error=error), TopicNames(), threading.Event()
    monkeypatch.setattr(retry_topic, "KafkaAdmin", lambda *_, **__: admin)
    monkeypatch.setattr(retry_topic, "_AGAIN_SECONDS", 0.0)
    retry_topic.make_retry_topic(settings_of("g"), Groups(), stop)
    assert admin.made == [names.retry("g")]


def test_the_delay_topics_of_an_own_table_are_made(monkeypatch: pytest.MonkeyPatch) -> None:
    names, stop = TopicNames(), threading.Event()
    admin = FakeAdmin(away=2, has=[names.delay(1_000)])
    monkeypatch.setattr(retry_topic, "KafkaAdmin", lambda *_, **__: admin)
    monkeypatch.setattr(retry_topic, "_AGAIN_SECONDS", 0.0)
    retry_topic.make_delay_topics(settings_of("g", "1s 2s 5s 2s"), Groups(), stop)
    assert sorted(admin.made) == [names.delay(2_000), names.delay(5_000)]


def test_delay_topics_that_cannot_be_made_are_an_error_with_the_command(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(retry_topic, "KafkaAdmin", lambda *_, **__: FakeAdmin(error=KafkaRefused("no right")))
    command = "RECONSUME_MESSAGE_DELAY_LEVEL='2s 5s' reconsume topics apply"
    with pytest.raises(TopicNotReady, match=rf"delay_levels '2s 5s': .*\(no right\); run: {command}"):
        retry_topic.make_delay_topics(settings_of("g", "2s 5s"), Groups(), threading.Event())


def test_a_delay_producer_with_an_own_table_names_the_same_command() -> None:
    with InMemoryKafka(allowed_real_topics=["reminders", "nowhere"]) as kafka:
        kafka.create_topic("reminders")
        with DelayProducer(bootstrap_servers=kafka.bootstrap_servers, delay_levels="7s") as producer:
            command = "RECONSUME_MESSAGE_DELAY_LEVEL='7s' reconsume topics apply"
            with pytest.raises(TopicNotReady, match=rf"reconsume\.DELAY\.7s does not exist \(run: {command}\)"):
                producer.send("reminders", b"", delay_level=1)
            with pytest.raises(TopicNotReady, match=r"`kafka-topics\.sh --create --topic nowhere`"):
                producer.send("nowhere", b"", delay_level=1)
