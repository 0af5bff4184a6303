"""A producer that is of no use any more is replaced, and nothing that it had is forgotten."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from confluent_kafka import KafkaError, Producer

from reconsume.bridge.kafka.client_settings import producer_settings
from reconsume.bridge.kafka.lasting_producer import LastingProducer
from tests.support.brokers.fatal import fail_fatally
from tests.support.waiting import PATIENCE, wait_until


class One:
    """A producer that acknowledges nothing by itself."""

    def __init__(self, settings: dict[str, Any]) -> None:
        self.settings = settings
        self.open: list[Callable[[KafkaError | None, None], None]] = []
        self.purged = self.closed = False

    def __len__(self) -> int:
        return len(self.open)

    def produce(self, _topic: str, *, on_delivery: Callable[[KafkaError | None, None], None]) -> None:
        self.open.append(on_delivery)

    def poll(self, _seconds: float) -> None:
        while self.purged and self.open:
            self.open.pop()(KafkaError(KafkaError._PURGE_QUEUE), None)

    def purge(self) -> None:
        self.purged = True

    def close(self) -> None:
        self.closed = True


class Slow(One):
    """A poll gives one report, late."""

    def poll(self, seconds: float) -> None:
        threading.Event().wait(seconds)
        if self.purged and self.open:
            self.open.pop()(KafkaError(KafkaError._PURGE_QUEUE), None)


class Bench:
    """All producers that were made."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, kind: type[One] = One, **settings: Any) -> None:
        self.made: list[One] = []
        self.kind = kind
        self.now = 0.0
        monkeypatch.setattr("reconsume.bridge.kafka.lasting_producer.make_producer", self.make)
        self.producer = LastingProducer(settings)

    def make(self, settings: dict[str, Any]) -> Any:
        self.made.append(self.kind(settings))
        return self.made[-1]

    def is_left_alone(self, monkeypatch: pytest.MonkeyPatch) -> None:
        for _ in range(2):
            self.now += 10_000
            monkeypatch.setattr(self.producer._connections, "_clock", lambda: self.now)
            self.made[-1].settings["stats_cb"](json.dumps({"brokers": {}}))


def written(producer: LastingProducer) -> list[KafkaError | None]:
    reports: list[KafkaError | None] = []
    producer.produce("t", on_delivery=lambda error, _message: reports.append(error))
    return reports


def test_a_replaced_producer_stays_until_its_last_report(monkeypatch: pytest.MonkeyPatch) -> None:
    """Callbacks write records anew, so some ten thousand take longer than a moment."""
    monkeypatch.setattr("reconsume.bridge.kafka.lasting_producer._LAST_REPORTS_SECONDS", 0.01)
    bench = Bench(monkeypatch, Slow)
    reports = [written(bench.producer) for _ in range(20)]
    bench.is_left_alone(monkeypatch)
    bench.producer.serve(0)
    wait_until(lambda: all(reports), "each is told")
    wait_until(lambda: not bench.producer._given_up, "it is let go")


def test_one_that_was_left_alone_is_replaced_and_what_it_had_gets_an_error(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    bench = Bench(monkeypatch)
    reports = written(bench.producer)
    bench.is_left_alone(monkeypatch)
    bench.producer.serve(0)
    assert len(bench.made) == 2
    wait_until(lambda: reports != [], "it is told")
    assert reports[0] is not None
    written(bench.producer)
    assert (len(bench.made[0]), len(bench.made[1]), len(bench.producer)) == (0, 1, 1)
    assert "producer replaced, retrying 1 records: librdkafka has looked for no" in caplog.text
    bench.producer.serve(0)
    assert len(bench.made) == 2


def test_close_tells_whoever_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    bench = Bench(monkeypatch)
    reports = written(bench.producer)
    bench.producer.close()
    assert (len(reports), bench.made[0].closed) == (1, True)


class Broken:
    """Real producers that reach nobody."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.made: list[Producer] = []
        self.errors: list[KafkaError] = []
        self.reports: list[KafkaError | None] = []
        monkeypatch.setattr("reconsume.bridge.kafka.lasting_producer.make_producer", self.make)
        self.producer = LastingProducer(
            producer_settings({"bootstrap.servers": "127.0.0.1:1", "log_level": 0}, "broken")
            | {"error_cb": self.errors.append}
        )

    def make(self, settings: dict[str, Any]) -> Producer:
        self.made.append(Producer(settings))
        return self.made[-1]

    def produce(self) -> None:
        self.producer.produce("t", value=b"x", on_delivery=lambda error, _message: self.reports.append(error))

    def serve_until(self, count: int) -> None:
        def made() -> bool:
            self.producer.serve(0.01)
            return len(self.made) == count

        wait_until(made, "a new producer")


@pytest.fixture
def broken(monkeypatch: pytest.MonkeyPatch) -> Iterator[Broken]:
    one = Broken(monkeypatch)
    yield one
    one.producer.close()


def test_a_fatal_error_replaces_it_and_what_it_had_gets_an_error(
    broken: Broken, caplog: pytest.LogCaptureFixture
) -> None:
    for _ in range(100):
        broken.produce()
    fail_fatally(broken.made[0])
    broken.serve_until(2)
    wait_until(lambda: len(broken.reports) == 100, "all are told")
    assert all(error is not None for error in broken.reports)
    assert "records: OUT_OF_ORDER_SEQUENCE_NUMBER" in caplog.text
    broken.produce()
    assert len(broken.made[1]) >= 1


def test_an_error_that_is_not_fatal_does_not_replace_it_and_the_users_callback_is_called(broken: Broken) -> None:
    def told() -> bool:
        broken.producer.serve(0.01)
        return broken.errors != []

    wait_until(told, "an error is told")
    assert not any(error.fatal() for error in broken.errors)
    assert len(broken.made) == 1


def test_until_it_is_replaced_a_record_is_not_taken_and_may_come_again(broken: Broken) -> None:
    fail_fatally(broken.made[0])
    with pytest.raises(BufferError, match="about to be replaced"):
        broken.produce()
    broken.serve_until(2)
    broken.produce()
    assert broken.reports == []
    assert len(broken.made[1]) >= 1


class Replaced(Producer):
    """Is replaced while a thread produces."""

    meanwhile: tuple[Callable[[], None], ...] = ()

    def produce(self, *args: Any, **kwargs: Any) -> None:
        actions, self.meanwhile = self.meanwhile, ()
        for act in actions:
            act()
        super().produce(*args, **kwargs)


def test_a_record_that_comes_while_the_producer_is_replaced_is_told_of(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody serves the old one any more."""
    made: list[Replaced] = []

    def make(settings: dict[str, Any]) -> Producer:
        made.append(Replaced(settings))
        return made[-1]

    monkeypatch.setattr("reconsume.bridge.kafka.lasting_producer.make_producer", make)
    producer = LastingProducer(producer_settings({"bootstrap.servers": "127.0.0.1:1", "log_level": 0}, "broken"))

    def replace() -> None:
        producer._replace("left alone")
        wait_until(lambda: producer._given_up == [], "the old one is let go")

    made[0].meanwhile = (replace,)
    reports: list[KafkaError | None] = []
    producer.produce("t", value=b"x", on_delivery=lambda error, _message: reports.append(error))
    wait_until(lambda: reports != [], "it is told")
    assert [error is not None for error in reports] == [True]
    producer.close()


def test_whoever_waits_for_all_hears_of_a_fatal_error_too(broken: Broken) -> None:
    """It takes the error away from the one that serves."""
    broken.produce()
    fail_fatally(broken.made[0])
    assert broken.producer.flush(PATIENCE) > 0
    broken.serve_until(2)
    wait_until(lambda: broken.producer.flush(PATIENCE) == 0, "all are told")
    assert len(broken.reports) == 1


def test_it_can_be_closed_with_a_fatal_error(monkeypatch: pytest.MonkeyPatch) -> None:
    broken = Broken(monkeypatch)
    broken.produce()
    fail_fatally(broken.made[0])
    broken.producer.close()
    assert len(broken.reports) == 1
