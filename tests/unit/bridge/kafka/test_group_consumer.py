"""Commits of which Kafka takes some and refuses others, or does not answer."""

from __future__ import annotations

import threading
from collections.abc import Collection
from contextlib import closing
from types import SimpleNamespace
from typing import Any, cast

import pytest
from confluent_kafka import KafkaError, TopicPartition

from reconsume.bridge.kafka.admin import Commit
from reconsume.bridge.kafka.group_consumer import GroupConsumer
from tests.support.waiting import PATIENCE

POINTS = {("flights", 0): Commit(7, ""), ("trains", 0): Commit(8, "")}


class Refusing:
    """A consumer whose coordinator does not let it use one topic."""

    def commit(self, *, offsets: list[TopicPartition], asynchronous: bool) -> list[Any]:
        assert not asynchronous
        errors = {"trains": KafkaError(KafkaError.TOPIC_AUTHORIZATION_FAILED)}
        return [SimpleNamespace(topic=one.topic, partition=0, error=errors.get(one.topic)) for one in offsets]


def test_each_refused_partition_is_told(caplog: pytest.LogCaptureFixture) -> None:
    consumer = GroupConsumer({}, lambda _settings: cast("Any", Refusing()))
    assert set(consumer.commit(POINTS, wait=True)) == {("trains", 0)}
    consumer.restore(POINTS)
    assert [one.partition(":")[0] for one in caplog.messages] == [
        "committing offsets of trains-0",
        "restoring offsets of trains-0",
    ]


def test_a_commit_does_not_wait_for_the_session_to_find_a_coordinator(caplog: pytest.LogCaptureFixture) -> None:
    settings = {"bootstrap.servers": "127.0.0.1:1", "group.id": "departures", "session.timeout.ms": 3_600_000}
    consumer, refused = GroupConsumer(settings | {"max.poll.interval.ms": 3_600_000}), list[Collection[Any]]()
    committing = threading.Thread(
        target=lambda: refused.append(consumer.commit(POINTS, wait=True, within=0.1)), daemon=True
    )
    with closing(consumer):
        committing.start()
        committing.join(PATIENCE)
        assert refused == [POINTS.keys()]
    assert "committing offsets" in caplog.text
