"""Commits of which Kafka takes some and refuses others."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest
from confluent_kafka import KafkaError, TopicPartition

from reconsume.bridge.kafka.admin import Commit
from reconsume.bridge.kafka.group_consumer import GroupConsumer

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
