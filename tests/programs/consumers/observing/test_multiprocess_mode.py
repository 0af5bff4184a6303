"""Gauges in Prometheus' multiprocess mode, which a program with forked workers uses."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from prometheus_client import CollectorRegistry
from prometheus_client.multiprocess import MultiProcessCollector, mark_process_dead

CONSUMES = """
from prometheus_client import CollectorRegistry
from reconsume.consumers import CircuitMetrics, CircuitState
from reconsume.consumers.listeners.circuit_breaker import CircuitChange
from reconsume.consumers.observing.consumer_metrics import ConsumerMetrics
from reconsume.consumers.observing.hooks import ConsumeMessageContext, SendBackTarget, SendMessageBackContext
from tests.unit.consumers.doubles import message_at

metrics, message = ConsumerMetrics(CollectorRegistry()), message_at(0)
metrics.consume_message_before(ConsumeMessageContext("departures", None, (message,)))
share = 0.9
told = SendMessageBackContext("departures", message, SendBackTarget.RETRY, 3, 1, 1.0, waiting_share=lambda: share)
metrics.send_message_back_after(told)
CircuitMetrics(CollectorRegistry()).changed(CircuitChange("departures", CircuitState.OPEN))
print("consumes", flush=True)
while input():
    share = 0.0
    metrics.send_message_back_after(told)
    print("has no limit any more", flush=True)
"""


@pytest.fixture
def consuming(tmp_path: Path) -> Callable[[], subprocess.Popen[str]]:
    def start() -> subprocess.Popen[str]:
        env = os.environ | {"PROMETHEUS_MULTIPROC_DIR": str(tmp_path)}
        pipe = subprocess.PIPE
        one = subprocess.Popen([sys.executable, "-c", CONSUMES], stdin=pipe, stdout=pipe, text=True, env=env)
        assert one.stdout is not None
        assert one.stdout.readline() == "consumes\n"
        return one

    return start


def gauges(directory: Path) -> dict[str, float]:
    registry = CollectorRegistry()
    MultiProcessCollector(registry, path=str(directory))  # type: ignore[no-untyped-call]
    samples = [sample for family in registry.collect() if family.type == "gauge" for sample in family.samples]
    assert not [sample for sample in samples if "pid" in sample.labels]
    return {sample.name.removeprefix("reconsume_"): sample.value for sample in samples}


def test_processes_that_have_ended_leave_nothing_and_those_that_live_are_summed(
    tmp_path: Path, consuming: Callable[[], subprocess.Popen[str]]
) -> None:
    ended, one, other = consuming(), consuming(), consuming()
    ended.communicate("\n", timeout=60)
    mark_process_dead(ended.pid, str(tmp_path))  # type: ignore[no-untyped-call]
    assert gauges(tmp_path) == {
        "consumer_in_flight": 2,
        "consumer_waiting_ratio": 0.9,
        "circuit_breaker_state": 2,
    }
    for process in (one, other):
        process.communicate("limit 0\n\n", timeout=60)
    assert gauges(tmp_path)["consumer_waiting_ratio"] == 0
    for process in (one, other):
        mark_process_dead(process.pid, str(tmp_path))  # type: ignore[no-untyped-call]
    assert gauges(tmp_path) == {}
