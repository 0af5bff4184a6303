"""What the pages ask of Kafka: changes of dead letters take turns."""

from __future__ import annotations

import threading

import pytest

from reconsume.bridge.process.settings import Settings
from reconsume.console import cluster
from reconsume.console.cluster import ConsoleCluster
from reconsume.delay_levels.errors import KafkaNotReachable
from reconsume.operations.record_address import RecordAddress


def test_a_change_that_waits_for_another_one_for_too_long_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    begun, go_on = threading.Event(), threading.Event()

    def resolve(*_: object, **__: object) -> list[object]:
        begun.set()
        assert go_on.wait(60)
        return []

    monkeypatch.setattr(cluster, "resolve", resolve)
    monkeypatch.setattr(cluster, "_WAIT_SECONDS", 0.1)
    console, place = ConsoleCluster(Settings(bootstrap_servers="127.0.0.1:9")), [RecordAddress(0, 1)]
    first = threading.Thread(target=console.resolve, args=("departures", place, "alice", "x"))
    first.start()
    assert begun.wait(60)
    with pytest.raises(KafkaNotReachable, match="another change by this console"):
        console.reopen("arrivals", place)
    go_on.set()
    first.join(60)
    assert console.resolve("arrivals", place, "bob", "x") == []
