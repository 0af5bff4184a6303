"""Dashboards ask for metrics that exist, in PromQL, of the chosen installation."""

from __future__ import annotations

import json
import re
from typing import Any, Final

import promql_parser
import pytest

from deploy.generate.dashboards import DASHBOARDS, dashboard_json
from reconsume.bridge.metrics.catalogue import CATALOGUE
from tests.deploy.charts import render

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


@pytest.mark.parametrize(
    ("uid", "role"), [("scheduler", "scheduler"), ("sidecars", "sidecar"), ("console", ""), ("groups", "consumer")]
)
def test_the_namespaces_to_choose_from_are_those_of_the_processes_shown(uid: str, role: str) -> None:
    """Sidecars and consumers run in the namespaces of applications."""
    choices = {one["name"]: one for one in json.loads(dashboard_json(f"reconsume-{uid}"))["templating"]["list"]}
    names = {name: set(re.findall(r"reconsume_\w+", str(choices[name]["query"]))) for name in ("namespace", "release")}
    assert names["namespace"] == names["release"] <= EXPORTED
    assert any(one.startswith(f"reconsume_{role or 'build'}") for one in names["namespace"])


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
