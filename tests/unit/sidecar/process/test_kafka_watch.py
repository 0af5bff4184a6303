"""Readiness of a sidecar, whatever an answer of Kafka raises."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from types import SimpleNamespace
from typing import Any

import pytest
from prometheus_client import CollectorRegistry

from reconsume.delay_levels.errors import KafkaNotReachable
from reconsume.delay_levels.wire.names import TopicNames
from reconsume.sidecar.metrics import SidecarMetrics
from reconsume.sidecar.process import api_part, kafka_watch
from reconsume.sidecar.process.api_part import ApiPart
from reconsume.sidecar.process.kafka_watch import KafkaWatch
from reconsume.sidecar.settings import ProcessSettings
from tests.support.waiting import wait_until
from tests.unit.consumers.doubles import Clock


def watch_on(partitions: Callable[[Iterable[str]], Any], clock: Clock) -> KafkaWatch:
    watch = KafkaWatch({"bootstrap.servers": "127.0.0.1:1"}, TopicNames(), clock)
    watch._admin = SimpleNamespace(partitions=partitions)  # type: ignore[assignment]
    return watch


@pytest.mark.parametrize("error", [RuntimeError("a defect"), KafkaNotReachable("away")])
def test_a_watch_goes_on_after_any_error_and_tells_it(monkeypatch: pytest.MonkeyPatch, error: Exception) -> None:
    monkeypatch.setattr(kafka_watch, "_EVERY_SECONDS", 0.01)
    clock, fails = Clock(), threading.Event()

    def partitions(topics: Iterable[str]) -> dict[str, int]:
        if fails.is_set():
            raise error
        return dict.fromkeys(topics, 1)

    watch = watch_on(partitions, clock)
    watch.start()
    try:
        wait_until(lambda: watch.checks() == {"kafka": None, "topics": None})
        fails.set()
        wait_until(lambda: error.args[0] in watch._error)
        clock.now = 60_000
        assert error.args[0] in str(watch.checks()["kafka"])
        fails.clear()
        wait_until(lambda: watch.checks()["kafka"] is None)
    finally:
        watch.close()


def test_a_start_goes_on_after_any_error_and_tells_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(api_part, "_AGAIN_SECONDS", 0.0)
    settings = ProcessSettings(
        bootstrap_servers="127.0.0.1:1",
        sidecar={"listen": {"port": 0}, "remember_minutes": 0},
    )
    part = ApiPart(settings, SidecarMetrics(CollectorRegistry()))
    told: list[str | None] = []

    def load(_stop: threading.Event) -> bool:
        told.append(part.checks()["earlier-send-backs"])
        if len(told) == 1:
            raise RuntimeError("a defect")
        return True

    monkeypatch.setattr(part._follower, "wait_until_loaded", load)
    try:
        part._prepare()
        assert "a defect" in str(told[1])
        assert part.checks()["earlier-send-backs"] is None
    finally:
        part.close(0)
