"""Alerts and rules: promtool's verdict, metrics that exist, a runbook for each."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path
from typing import Any, Final

import promql_parser
import pytest
import yaml

from deploy.generate.rocketmq_names import ROCKETMQ_NAMES
from deploy.generate.rules import read_alerts
from deploy.generate.values import CHART
from reconsume.bridge.metrics.catalogue import CATALOGUE
from tests.deploy.charts import find, helm_template, render
from tests.deploy.tools import ROOT, NotBrought, ToolMissing, promtool

pytestmark = pytest.mark.early(2)

ALERTS: Final = read_alerts()
NAMES: Final = [one["alert"] for one in ALERTS]
EXPORTED: Final = {sample for one in CATALOGUE for sample in one.samples}
OF_KUBERNETES: Final = {
    "kube_cronjob_next_schedule_time",
    "kube_job_complete",
    "kube_job_failed",
    "kube_job_status_failed",
    "kube_job_status_start_time",
}
TESTS: Final = Path(__file__).parent / "alerts.test.yaml"
PLAIN: Final = [ROOT / "deploy" / "alerts" / name for name in ("reconsume.yaml", "rocketmq-names.yaml")]
A_DAY: Final = 1_440
"""In minutes."""


def from_chart(*sets: str) -> dict[str, Any]:
    sets = ("metrics.prometheusRule.enabled=true", "metrics.prometheusRule.rocketmqNames=true", *sets)
    groups = find(render("minimal", *sets), "PrometheusRule")["spec"]["groups"]
    return {"groups": groups}


def rules() -> list[dict[str, Any]]:
    found = [from_chart(), *(yaml.safe_load(path.read_text()) for path in PLAIN)]
    return [rule for one in found for group in one["groups"] for rule in group["rules"]]


def run_promtool(*arguments: str) -> str:
    try:
        tool = promtool()
    except (ToolMissing, NotBrought) as missing:
        pytest.skip(str(missing))
    run = subprocess.run([str(tool), *arguments], capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stdout + run.stderr
    return run.stdout


def minutes(test: dict[str, Any]) -> int:
    return max(int(check["eval_time"].removesuffix("m")) for check in test["promql_expr_test"])


@pytest.mark.parametrize("lasts_a_day", [False, True])
def test_promtool_runs_the_tests(tmp_path: Path, lasts_a_day: bool) -> None:
    """Over days rules are evaluated every five minutes, without RocketMQ's names: each minute would show no more."""
    rules = from_chart(f"metrics.prometheusRule.rocketmqNames={'false' if lasts_a_day else 'true'}")
    (tmp_path / "rules.yaml").write_text(yaml.dump(rules))
    tests = yaml.safe_load(TESTS.read_text()) | {"rule_files": ["rules.yaml"]}
    tests["tests"] = [one for one in tests["tests"] if (minutes(one) >= A_DAY) is lasts_a_day]
    tests["evaluation_interval"] = "5m" if lasts_a_day else "1m"
    (tmp_path / "tests.yaml").write_text(yaml.dump(tests))
    assert "SUCCESS" in run_promtool("test", "rules", str(tmp_path / "tests.yaml"))


def test_the_plain_file_has_the_alerts_of_the_chart_for_all_installations() -> None:
    ours = re.compile(r',?(?:namespace="ns"|release="rel")(?=[,}])')
    jobs_here, jobs = "rel-reconsume-reconcile", ".*reconsume.*-reconcile"
    assert re.fullmatch(jobs, jobs_here)
    chart = [rule for group in from_chart()["groups"] for rule in group["rules"] if "alert" in rule]
    plain = [rule for group in yaml.safe_load(PLAIN[0].read_text())["groups"] for rule in group["rules"]]
    for_all = [ours.sub("", rule["expr"]).replace("{,", "{").replace("{}", "") for rule in chart]
    assert [expr.replace(jobs_here, jobs) for expr in for_all] == [rule["expr"] for rule in plain]
    assert [rule | {"expr": None} for rule in chart] == [rule | {"expr": None} for rule in plain]


@pytest.mark.parametrize("path", PLAIN, ids=lambda path: path.name)
def test_promtool_takes_the_plain_files(path: Path) -> None:
    assert "SUCCESS" in run_promtool("check", "rules", str(path))


def test_every_alert_is_seen_to_fire() -> None:
    tests = yaml.safe_load(TESTS.read_text())["tests"]
    fired = {
        match[1]
        for test in tests
        for check in test["promql_expr_test"]
        for sample in check["exp_samples"]
        if (match := re.search(r'alertname="(\w+)"', sample["labels"]))
    }
    assert sorted(fired) == sorted(NAMES)
    assert all(any(not check["exp_samples"] for check in tests[0]["promql_expr_test"]) for _ in NAMES)


@pytest.mark.parametrize("rule", rules(), ids=lambda rule: rule.get("alert", rule.get("record")))
def test_a_rule_asks_for_metrics_that_exist(rule: dict[str, Any]) -> None:
    assert promql_parser.parse(rule["expr"]) is not None
    asked = set(re.findall(r"\b(?:reconsume|kube|rocketmq)_\w+(?=[{\[), ]|$)", re.sub(r'"[^"]*"', '""', rule["expr"])))
    assert asked != set()
    assert sorted(asked - EXPORTED - OF_KUBERNETES) == []


def test_every_rule_of_the_chart_looks_at_its_own_installation_only() -> None:
    for rule in (one for group in from_chart()["groups"] for one in group["rules"]):
        selectors = re.findall(r"\b(?:reconsume|kube)_\w+\{[^}]*\}", rule["expr"])
        assert selectors, rule["expr"]
        assert all('release="rel"' in one or 'namespace="ns"' in one for one in selectors), rule["expr"]
        assert "$" not in re.sub(r'"[^"]*"', "", rule["expr"]), rule["expr"]


@pytest.mark.parametrize("alert", ALERTS, ids=NAMES)
def test_an_alert_has_a_runbook(alert: dict[str, Any]) -> None:
    page = ROOT / "docs" / "runbooks" / f"{alert['alert'].lower()}.md"
    text = page.read_text()
    assert text.startswith(f"# {alert['alert']}\n")
    for part in ("## What it means", "## What to do", "## What not to do"):
        assert part in text, f"{page} has no part {part!r}"
    rule = next(one for one in from_chart()["groups"][0]["rules"] if one["alert"] == alert["alert"])
    assert rule["annotations"]["runbook"] == str(page.relative_to(ROOT))
    assert "runbook_url" not in rule["annotations"]
    assert re.fullmatch(r"/|/quarantine|/groups/\{\{.*\}\}", rule["annotations"]["console"])
    assert rule["labels"]["severity"] in ("page", "ticket")


def test_no_runbook_is_left_over() -> None:
    pages = {path.stem for path in (ROOT / "docs" / "runbooks").glob("*.md")} - {"README"}
    assert pages == {name.lower() for name in NAMES}


def test_overrides_change_one_alert_and_leave_out_another() -> None:
    overridden = find(render("full"), "PrometheusRule")["spec"]["groups"][0]["rules"]
    by_name = {one["alert"]: one for one in overridden}
    assert "ReconsumeDropped" not in by_name
    assert by_name["ReconsumeOverdue"]["expr"].endswith("> 60")
    assert by_name["ReconsumeOverdue"]["for"] == "10m"
    assert "longer than 60 s" in by_name["ReconsumeOverdue"]["annotations"]["description"]
    assert by_name["ReconsumeHeld"]["labels"] == {"severity": "ticket", "team": "platform"}
    assert by_name["ReconsumeHeld"]["annotations"]["runbook_url"] == "https://example.com/runbooks/reconsumeheld.md"


@pytest.mark.parametrize("folder", ["https://example.com/runbooks", "https://example.com/runbooks/"])
def test_a_link_to_a_runbook_is_one_that_a_browser_opens(folder: str) -> None:
    rules = from_chart(f"metrics.prometheusRule.runbookUrl={folder}")["groups"][0]["rules"]
    assert rules[0]["annotations"]["runbook_url"] == "https://example.com/runbooks/reconsumeoverdue.md"
    wrong = helm_template("minimal", "metrics.prometheusRule.runbookUrl=docs/runbooks/")
    assert 'metrics.prometheusRule.runbookUrl is "docs/runbooks/": write an address' in wrong.stderr


def test_a_release_without_workers_does_not_page_for_their_absence() -> None:
    rules = from_chart("scheduler.enabled=false")["groups"][0]["rules"]
    assert {one["alert"] for one in rules} == set(NAMES) - {"ReconsumeSchedulerAbsent"}
    overrides = "metrics.prometheusRule.overrides.ReconsumeSchedulerAbsent.for=10m"
    assert from_chart("scheduler.enabled=false", overrides)["groups"][0]["rules"] == rules


def test_an_override_of_no_alert_is_refused() -> None:
    wrong = "metrics.prometheusRule.overrides.ReconsumeOverDue.threshold=5"
    run = helm_template("minimal", "metrics.prometheusRule.enabled=true", wrong)
    assert run.returncode != 0
    assert "ReconsumeOverDue: the alert does not exist; there are ReconsumeOverdue," in run.stderr


def test_consumers_may_be_chosen_by_other_labels() -> None:
    chosen = from_chart('metrics.prometheusRule.consumerSelector=namespace=~"shop-.*"')
    rules = {one["alert"]: one["expr"] for one in chosen["groups"][0]["rules"]}
    assert (
        rules["ReconsumeHeld"]
        == 'max by (namespace, group) (reconsume_circuit_breaker_state{namespace=~"shop-.*"}) > 0'
    )
    assert '_timestamp_seconds{release="' in rules["ReconsumePushAppDown"], (
        "the chart's own PodMonitor scrapes sidecars"
    )


def test_names_of_rocketmq_are_recorded_as_the_catalogue_says() -> None:
    recorded = {one["record"] for group in from_chart()["groups"] for one in group["rules"] if "record" in one}
    assert recorded == {one.name for one in ROCKETMQ_NAMES if one.expression}
    assert "rocketmq" not in (CHART / "files" / "alerts.yaml").read_text()
