"""A producer that is of no use any more is replaced, and nothing that it had is forgotten."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from confluent_kafka import KafkaError

from reconsume.bridge.lasting_producer import LastingProducer
from tests.support.waiting import wait_until


class One:
    """A producer that acknowledges nothing by itself."""

    def __init__(self, settings: dict[str, Any]) -> None:
        self.settings = settings
        self.open: list[Callable[[KafkaError | None, None], None]] = []
        self.closed = False

    def __len__(self) -> int:
        return len(self.open)

    def produce(self, _topic: str, *, on_delivery: Callable[[KafkaError | None, None], None]) -> None:
        self.open.append(on_delivery)

    def poll(self, _seconds: float) -> None: ...

    def purge(self) -> None: ...

    def flush(self, _seconds: float) -> int:
        while self.open:
            self.open.pop()(KafkaError(KafkaError._PURGE_QUEUE), None)
        return 0

    def close(self) -> None:
        self.closed = True


class Bench:
    """All producers that were made."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, **settings: Any) -> None:
        self.made: list[One] = []
        self.now = 0.0
        monkeypatch.setattr("reconsume.bridge.lasting_producer.make_producer", self.make)
        self.producer = LastingProducer(settings)

    def make(self, settings: dict[str, Any]) -> Any:
        self.made.append(One(settings))
        return self.made[-1]

    def is_left_alone(self, monkeypatch: pytest.MonkeyPatch) -> None:
        for _ in range(2):
            self.now += 10_000
            monkeypatch.setattr(self.producer._connections, "_clock", lambda: self.now)
            self.made[-1].settings["stats_cb"](json.dumps({"brokers": {}}))

    def fails(self, *, fatal: bool) -> None:
        self.made[-1].settings["error_cb"](KafkaError(KafkaError.INVALID_PRODUCER_EPOCH, "out of order", fatal))


def written(producer: LastingProducer) -> list[KafkaError | None]:
    reports: list[KafkaError | None] = []
    producer.produce("t", on_delivery=lambda error, _message: reports.append(error))
    return reports


def test_one_that_was_left_alone_is_replaced_and_what_it_had_gets_an_error(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    bench = Bench(monkeypatch)
    reports = written(bench.producer)
    bench.is_left_alone(monkeypatch)
    bench.producer.serve(0)
    assert len(bench.made) == 2
    wait_until(lambda: reports != [], what="it is told")
    assert reports[0] is not None
    written(bench.producer)
    assert (len(bench.made[0]), len(bench.made[1]), len(bench.producer)) == (0, 1, 1)
    assert "writing goes on with a new producer, 1 records are tried again: librdkafka has looked for no" in caplog.text
    bench.producer.serve(0)
    assert len(bench.made) == 2


def test_a_fatal_error_replaces_it_once_and_any_other_does_not(monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[KafkaError] = []
    bench = Bench(monkeypatch, error_cb=told.append)
    bench.fails(fatal=False)
    bench.producer.serve(0)
    assert len(bench.made) == 1
    bench.fails(fatal=True)
    bench.producer.serve(0)
    bench.producer.serve(0)
    assert len(bench.made) == 2
    assert len(told) == 2, "the user's own callback is called too"


def test_close_tells_whoever_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    bench = Bench(monkeypatch)
    reports = written(bench.producer)
    bench.producer.close()
    assert (len(reports), bench.made[0].closed) == (1, True)
