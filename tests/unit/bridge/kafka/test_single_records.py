"""Records that are written at once, by hand or by a command."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from reconsume.bridge.kafka import single_records


class Full:
    """A producer with room for two records."""

    def __init__(self) -> None:
        self.queued: list[Any] = []
        self.stored: list[bytes] = []
        self.given: list[dict[str, Any]] = []

    def produce(self, _topic: str, *, value: bytes, on_delivery: Any, **given: Any) -> None:
        if len(self.queued) == 2:
            raise BufferError
        self.given.append(given)
        self.queued.append((value, on_delivery))

    def poll(self, _seconds: float) -> None:
        queued, self.queued = self.queued, []
        for value, on_delivery in queued:
            self.stored.append(value)
            on_delivery(None, SimpleNamespace(timestamp=lambda: (2, 7), offset=lambda: 3))

    def flush(self) -> None:
        self.poll(0)

    def close(self) -> None: ...


def test_more_records_than_the_producers_queue_holds_are_written(monkeypatch: pytest.MonkeyPatch) -> None:
    producer, values = Full(), [b"%d" % number for number in range(5)]
    monkeypatch.setattr(single_records, "make_producer", lambda _settings: producer)
    records = [{"value": value} for value in values]
    assert single_records.write_at_once(cast("Any", SimpleNamespace(base={})), "me", "t", records) == [(7, 3)] * 5
    assert producer.stored == values


def test_the_records_of_a_key_stay_in_one_partition_when_their_topic_gets_more(monkeypatch: pytest.MonkeyPatch) -> None:
    producer, cluster = Full(), SimpleNamespace(base={}, require=lambda topic: topic)
    monkeypatch.setattr(single_records, "make_producer", lambda _settings: producer)
    single_records.write_records(cast("Any", cluster), "t", [("a", "1"), ("b", None)])
    assert producer.given == [{"key": "a", "partition": 0}, {"key": "b", "partition": 0}]
