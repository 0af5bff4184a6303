"""`/metrics`, `/livez`, `/readyz` over a real socket."""

from __future__ import annotations

import urllib.error
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from reconsume.bridge.http.management import ManagementServer
from reconsume.bridge.metrics.registry import SchedulerMetrics
from reconsume.delay_levels.errors import IllegalSetting


@dataclass
class Health:
    alive: bool = True
    ready: bool = False

    def is_alive(self) -> bool:
        return self.alive

    def is_ready(self) -> bool:
        return self.ready


@pytest.fixture
def served() -> Iterator[tuple[ManagementServer, Health, SchedulerMetrics]]:
    metrics, health = SchedulerMetrics(), Health()
    server = ManagementServer("127.0.0.1", 0, metrics.registry, health)
    yield server, health, metrics
    server.close()


def get(server: ManagementServer, path: str) -> tuple[int, str]:
    try:
        with urllib.request.urlopen(f"http://{server.address}{path}", timeout=10) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read().decode()


def test_health_is_what_the_worker_says(served: tuple[ManagementServer, Health, SchedulerMetrics]) -> None:
    server, health, _ = served
    assert (get(server, "/livez")[0], get(server, "/readyz")[0]) == (200, 503)
    health.alive, health.ready = False, True
    assert (get(server, "/livez")[0], get(server, "/readyz")[0]) == (503, 200)
    assert get(server, "/")[0] == 404


def test_metrics_are_cumulative_and_in_seconds(served: tuple[ManagementServer, Health, SchedulerMetrics]) -> None:
    server, _, metrics = served
    metrics.count({("delivered", "g"): 3, ("quarantined", ""): 1})
    metrics.lateness.observe("DELAY.1s", 1_000, [998, 997, 900, 0, 1_000])
    text = get(server, "/metrics")[1]
    assert 'reconsume_scheduler_records_total{group="g",outcome="delivered"} 3.0' in text
    buckets = {"0.002": 2, "0.005": 3, "0.1": 4, "0.5": 4, "1.0": 5, "+Inf": 5}
    for bound, count in buckets.items():
        assert f'reconsume_delivery_lateness_seconds_bucket{{le="{bound}",level="DELAY.1s"}} {count}.0' in text
    assert 'reconsume_delivery_lateness_seconds_sum{level="DELAY.1s"} 1.105' in text


def test_a_taken_port_is_told() -> None:
    first = ManagementServer("127.0.0.1", 0, SchedulerMetrics().registry, Health())
    try:
        with pytest.raises(IllegalSetting, match=r"is taken by another process; choose another port with --management"):
            ManagementServer("127.0.0.1", int(first.address.rpartition(":")[2]), SchedulerMetrics().registry, Health())
    finally:
        first.close()
