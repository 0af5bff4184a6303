"""A reader of single records whose client librdkafka has left alone reads on with a new one."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import pytest
from confluent_kafka import Message

from reconsume.bridge.kafka.admin import Partition
from reconsume.bridge.librdkafka import connections
from reconsume.bridge.reading import record_reader
from reconsume.bridge.reading.record_reader import RecordReader
from reconsume.delay_levels.wire.send_back_copy import Position

AWAY = {"bootstrap.servers": "127.0.0.1:9"}


class Consumer:
    """Reads what it was started at, but the first one reads nothing, and reports that it asks no broker."""

    made: list[Consumer]

    def __init__(self, settings: Mapping[str, Any]) -> None:
        self.settings = settings
        self.at: dict[Partition, int] = {}
        self.polled = 0
        self.closed = 0
        self.made.append(self)

    def start(self, offsets: Mapping[Partition, int]) -> None:
        self.at |= offsets

    def stop(self, _partitions: object) -> None:
        self.at.clear()

    def poll(self, _seconds: float) -> Message | None:
        self.polled += 1
        if self is self.made[0]:
            self.settings["stats_cb"](json.dumps({"brokers": {}}))
            return None
        if not self.at:
            return None
        (topic, partition), offset = self.at.popitem()
        return Message(topic=topic, partition=partition, offset=offset, value=b"%d" % offset)

    def consume(self, _count: int) -> list[Message]:
        return []

    def close(self) -> None:
        self.closed += 1


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> list[Consumer]:
    consumers: list[Consumer] = []
    monkeypatch.setattr(Consumer, "made", consumers, raising=False)
    monkeypatch.setattr(record_reader, "GroupConsumer", Consumer)
    monkeypatch.setattr(record_reader, "_IDLE_SECONDS", 0.001)
    monkeypatch.setattr(connections, "_PATIENCE_MS", 0)
    return consumers


def test_a_record_that_is_wanted_is_read_by_the_new_client(made: list[Consumer]) -> None:
    one, found = RecordReader(AWAY, "test", 10), list[Any]()
    one.read(Position("orders", 0, 7), found.append)
    for _ in range(4):
        one.run_once()
    assert [message.value() for message in found] == [b"7"]
    one.close()
    assert [consumer.closed for consumer in made] == [1, 1]


def test_a_client_that_reads_nothing_is_polled_and_replaced_too(made: list[Consumer]) -> None:
    """Without polls its reports would pile up."""
    one = RecordReader(AWAY, "test", 10)
    for _ in range(4):
        one.run_once()
    one.close()
    assert [consumer.polled > 0 for consumer in made] == [True, True]
