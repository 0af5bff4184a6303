"""Records that are written at once, by hand or by a command."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest
from confluent_kafka import TIMESTAMP_LOG_APPEND_TIME, Message

from reconsume.bridge.kafka import single_records


class Full:
    """A producer with room for two records."""

    def __init__(self) -> None:
        self.queued: list[Any] = []
        self.stored: list[bytes] = []
        self.given: list[tuple[Any, ...]] = []

    def __len__(self) -> int:
        return len(self.queued)

    def produce(self, topic: str, value: bytes, key: str, partition: int, told: Any, *, headers: list[Any]) -> None:
        if len(self.queued) == 2:
            raise BufferError
        self.given.append((topic, key, partition, headers))
        self.queued.append((value, told))

    def poll(self, _seconds: float) -> None:
        queued, self.queued = self.queued, []
        for value, told in queued:
            self.stored.append(value)
            told(None, Message(topic="t", partition=0, offset=3, timestamp=(TIMESTAMP_LOG_APPEND_TIME, 7)))

    def close(self) -> None: ...


def test_more_records_than_the_producers_queue_holds_are_written(monkeypatch: pytest.MonkeyPatch) -> None:
    producer, values = Full(), [b"%d" % number for number in range(5)]
    monkeypatch.setattr(single_records, "make_producer", lambda _settings: producer)
    records = [(value, None, 0, ()) for value in values]
    written = single_records.write_at_once(cast("Any", SimpleNamespace(base={})), "me", "t", records)
    assert written == [("t", 0, 3, 7)] * 5
    assert producer.stored == values


def test_the_records_of_a_key_stay_in_one_partition_when_their_topic_gets_more(monkeypatch: pytest.MonkeyPatch) -> None:
    producer, cluster = Full(), SimpleNamespace(base={}, require=lambda topic: topic)
    monkeypatch.setattr(single_records, "make_producer", lambda _settings: producer)
    single_records.write_records(cast("Any", cluster), "t", [("a", "1"), ("b", None)])
    assert producer.given == [("t", "a", 0, []), ("t", "b", 0, [])]
