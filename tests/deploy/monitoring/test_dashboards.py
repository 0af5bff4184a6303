"""Dashboards ask for metrics that exist, in PromQL, of the chosen installation."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import replace
from typing import Any, Final

import promql_parser
import pytest
from prometheus_client import CollectorRegistry

from deploy.generate.dashboards import DASHBOARDS, dashboard_json
from reconsume.bridge.metrics.catalogue import BY_ROLE, CATALOGUE
from reconsume.bridge.metrics.registry import SchedulerMetrics
from reconsume.console.metrics import ConsoleMetrics
from reconsume.consumers import MessageQueue
from reconsume.consumers.observing.consumer_metrics import ConsumerMetrics
from reconsume.consumers.observing.hooks import ConsumeMessageContext, ConsumeReturnType
from reconsume.sidecar.metrics import SidecarMetrics
from tests.deploy.charts import render
from tests.unit.consumers.doubles import message_at

EXPORTED: Final = {sample for one in CATALOGUE for sample in one.samples}


def panels(uid: str) -> list[dict[str, Any]]:
    return [one for one in json.loads(dashboard_json(uid))["panels"] if one["type"] != "row"]


PANELS: Final = [(uid, one) for uid in DASHBOARDS for one in panels(uid)]


@pytest.mark.parametrize(("uid", "panel"), PANELS, ids=[f"{uid}: {one['title']}" for uid, one in PANELS])
def test_a_panel_asks_for_metrics_that_exist(uid: str, panel: dict[str, Any]) -> None:
    assert panel["targets"] != [], uid
    for target in panel["targets"]:
        query = target["expr"].replace("$__rate_interval", "5m")
        assert promql_parser.parse(query) is not None
        assert set(re.findall(r"\breconsume_\w+(?=\{)", query)) <= EXPORTED
        selectors = re.findall(r"\breconsume_\w+(\{[^}]*\})", query)
        assert selectors != []
        assert all('namespace=~"$namespace",release=~"$release"' in one for one in selectors)
    assert panel["description"] in {one.help for one in CATALOGUE}


def choices(uid: str) -> dict[str, set[str]]:
    """Metrics by the variable that takes its values from them."""
    variables = json.loads(dashboard_json(uid))["templating"]["list"]
    found = {one["name"]: set(re.findall(r"reconsume_\w+", str(one.get("query")))) for one in variables}
    assert found["namespace"] == found["release"]
    return found


def scraped(registry: CollectorRegistry) -> set[str]:
    return {sample.name for family in registry.collect() for sample in family.samples}


@pytest.mark.parametrize(
    ("uid", "role", "start"),
    [
        ("scheduler", "scheduler", SchedulerMetrics),
        ("sidecars", "sidecar", SidecarMetrics),
        ("console", "console", ConsoleMetrics),
    ],
)
def test_the_namespaces_to_choose_from_are_those_of_the_processes_shown_from_their_start(
    uid: str, role: str, start: Callable[[CollectorRegistry], object]
) -> None:
    """Sidecars run in the namespaces of applications."""
    names, registry = choices(f"reconsume-{uid}")["namespace"], CollectorRegistry()
    start(registry)
    assert names & scraped(registry)
    assert names <= {sample for one in BY_ROLE[role] for sample in one.samples}


@pytest.mark.parametrize("variable", ["namespace", "release", "group"])
def test_a_consumer_whose_messages_all_fail_can_be_chosen(variable: str) -> None:
    registry = CollectorRegistry()
    metrics = ConsumerMetrics(registry)
    call = ConsumeMessageContext("departures", MessageQueue("flights", 0), (message_at(0),))
    metrics.consume_message_before(call)
    metrics.consume_message_after(replace(call, return_type=ConsumeReturnType.FAILED))
    assert choices("reconsume-groups")[variable] & scraped(registry)


def test_every_metric_is_on_a_dashboard() -> None:
    shown = " ".join(dashboard_json(uid) for uid in DASHBOARDS)
    assert sorted(one.name for one in CATALOGUE if one.exported not in shown and one.name not in shown) == []


def test_the_chart_has_them_where_grafana_looks() -> None:
    found = [one for one in render("minimal", "metrics.dashboards.enabled=true") if one["kind"] == "ConfigMap"]
    shown = {name: one for one in found for name in one["data"] if name.endswith(".json")}
    assert shown.keys() == {f"{uid}.json" for uid in DASHBOARDS}
    for name, one in shown.items():
        assert one["metadata"]["labels"]["grafana_dashboard"] == "1"
        assert json.loads(one["data"][name])["uid"] == name.removesuffix(".json")
