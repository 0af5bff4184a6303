"""Metrics of a sidecar whose callers make up names."""

from __future__ import annotations

from prometheus_client import CollectorRegistry

from reconsume.consumers.observing.consumer_metrics import OTHERS
from reconsume.sidecar.metrics import SidecarMetrics


def test_made_up_groups_share_one_label() -> None:
    registry = CollectorRegistry()
    metrics = SidecarMetrics(registry)
    for number in range(300):
        metrics.sent_back(f"made-up-{number}", "DELAYED")
    metrics.sent_back("made-up-0", "DELAYED")
    found = {
        one.labels["group"]: one.value
        for family in registry.collect()
        for one in family.samples
        if one.name == "reconsume_sidecar_send_backs_total"
    }
    assert len(found) == 201
    assert (found["made-up-0"], found[OTHERS]) == (2, 100)
