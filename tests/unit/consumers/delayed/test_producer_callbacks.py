"""Callbacks in the settings of a DelayProducer: what they raise and call ends nothing and waits for nothing."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from reconsume.bridge.kafka.lasting_producer import LastingProducer
from reconsume.consumers import DelayProducer
from reconsume.delay_levels.errors import IllegalSetting
from reconsume.delay_levels.wire.withdrawals import make_uniq_key
from reconsume.testing import InMemoryKafka
from tests.support.waiting import wait_until

NOBODY = "127.0.0.1:1"
ID = make_uniq_key(2**42, bytes(10))


@pytest.mark.parametrize("name", ["stats_cb", "error_cb"])
def test_a_callback_that_raises_is_called_again(name: str) -> None:
    told: list[object] = []

    def callback(what: object) -> None:
        told.append(what)
        raise RuntimeError("a defect of the program")

    conf = {"statistics.interval.ms": 50, "reconnect.backoff.max.ms": 100, name: callback}
    with DelayProducer(bootstrap_servers=NOBODY, conf=conf):
        wait_until(lambda: len(told) > 2, "it is called again")


@pytest.mark.parametrize(
    "use", [lambda one: one.close(), lambda one: one.send("flights", b""), lambda one: one.cancel(ID)]
)
def test_a_callback_that_uses_its_producer_is_told_why_it_cannot(use: Any) -> None:
    told: list[str] = []
    made: list[DelayProducer] = []

    def callback(_statistics: str) -> None:
        for producer in made:
            try:
                use(producer)
            except IllegalSetting as error:
                told.append(str(error))

    conf = {"statistics.interval.ms": 50, "stats_cb": callback}
    with DelayProducer(bootstrap_servers=NOBODY, conf=conf) as producer:
        made.append(producer)
        wait_until(lambda: len(told) > 1, "it is refused")
        made.clear()
    assert "hand the work to another thread" in told[0]


def test_an_error_while_it_serves_ends_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    serve, failed = LastingProducer.serve, threading.Event()

    def fails_once(producer: LastingProducer, seconds: float) -> None:
        if not failed.is_set():
            failed.set()
            raise RuntimeError("a defect")
        serve(producer, seconds)

    monkeypatch.setattr(LastingProducer, "serve", fails_once)
    with InMemoryKafka() as kafka:
        kafka.produce("flights", b"makes the topic")
        with DelayProducer(bootstrap_servers=kafka.bootstrap_servers) as producer:
            wait_until(failed.is_set, "it has failed")
            assert producer.send("flights", b"UA1545").topic == "flights"


def test_several_threads_may_close_it_at_once() -> None:
    producer, gate, failed = DelayProducer(bootstrap_servers=NOBODY), threading.Barrier(4), list[BaseException]()

    def close() -> None:
        gate.wait()
        try:
            producer.close()
        except BaseException as error:  # noqa: BLE001 - reported below
            failed.append(error)

    threads = [threading.Thread(target=close) for _ in range(4)]
    for one in threads:
        one.start()
    for one in threads:
        one.join()
    assert failed == []
