"""Prometheus rules for use without the chart, generated from the chart's; and rules with RocketMQ's names."""

from __future__ import annotations

import re
from typing import Any, Final

import yaml

from deploy.generate.rocketmq_names import ROCKETMQ_NAMES
from deploy.generate.values import CHART
from reconsume.bridge.metrics.catalogue import BY_ROLE

__all__ = ["RUNBOOKS", "chart_rocketmq_rules", "plain_rocketmq_rules", "plain_rules", "read_alerts", "runbook_index"]

RUNBOOKS: Final = "docs/runbooks/"
_HEADER: Final = "# Generated from {source} by python -m deploy.generate\n"
_CATALOGUE: Final = "the catalogue of metrics"
_INDEX: Final = """# Runbooks

<!-- made by `make docs` from deploy/helm/reconsume/files/alerts.yaml; do not edit -->

One page for each alert of `deploy/alerts/reconsume.yaml` and of the chart: what it means at three in the morning, what
to do, what not to do. Records that wait for their time never cause one.

Run the commands where they reach Kafka, for example in a worker:
`kubectl -n NAMESPACE exec -it statefulset/reconsume-scheduler -- reconsume status`. Many commands that change something
ask first; without `-it`, add `--yes` to these.

If Kafka has ACLs, a worker's login may not do all of it. Reading needs the rights of the role `console`; resending,
resolving, releasing and pausing those of `resender`; `topics plan` and `topics apply` those of `admin`; `send-back`
those of `consumer` for that group and topic ([rights](../operate.md#rights)). Prepare a login before you need it.
"""
_METRIC: Final = re.compile(r"\b(reconsume_\w+)(\{)?")


def read_alerts() -> list[dict[str, Any]]:
    """Return the chart's alerts, with placeholders such as $SCHEDULER in their expressions."""
    text = (CHART / "files" / "alerts.yaml").read_text(encoding="utf-8")
    alerts: list[dict[str, Any]] = yaml.safe_load(text)["alerts"]
    return alerts


def runbook_index() -> str:
    """Return the index page of the runbooks."""
    rows = [
        f"| [{one['alert']}]({one['alert'].lower()}.md) | {one['severity']} "
        f"| {one['description'].strip().replace('$THRESHOLD', format(one['threshold'], 'g'))} |"
        for one in read_alerts()
    ]
    return "\n".join([_INDEX, "| alert | severity | fires when |", "|---|---|---|", *rows, ""])


def plain_rules() -> str:
    """Return a rules file for one installation, whose metrics have no labels of the chart."""
    rules = [_rule(one) for one in read_alerts()]
    group = {"groups": [{"name": "reconsume.alerts", "rules": rules}]}
    return _HEADER.format(source="deploy/helm/reconsume/files/alerts.yaml") + _dump(group)


def _rule(alert: dict[str, Any]) -> dict[str, Any]:
    threshold = f"{alert['threshold']:g}"
    expression = alert["expr"].strip().replace("$THRESHOLD", threshold)
    expression = expression.replace('namespace="$NAMESPACE",', "").replace("$FULLNAME", ".*reconsume.*")
    return {
        "alert": alert["alert"],
        "expr": _without_labels(expression),
        "for": alert["for"],
        "labels": {"severity": alert["severity"]},
        "annotations": {
            "summary": alert["summary"],
            "description": alert["description"].replace("$THRESHOLD", threshold),
            "console": alert["console"],
            "runbook": f"{RUNBOOKS}{alert['alert'].lower()}.md",
        },
    }


def chart_rocketmq_rules() -> str:
    """Return rules with RocketMQ's names, in which the chart sets its labels."""
    rules = [{"record": one.name, "expr": _with_labels(one.expression)} for one in ROCKETMQ_NAMES if one.expression]
    return _HEADER.format(source=_CATALOGUE) + _dump({"rules": rules})


def plain_rocketmq_rules() -> str:
    """Return the same rules for use without the chart."""
    rules = [{"record": one.name, "expr": one.expression} for one in ROCKETMQ_NAMES if one.expression]
    return _HEADER.format(source=_CATALOGUE) + _dump({"groups": [{"name": "reconsume.rocketmq", "rules": rules}]})


def _with_labels(expression: str) -> str:
    consumers = {sample for one in BY_ROLE["consumer"] for sample in one.samples}

    def labelled(match: re.Match[str]) -> str:
        label = "$CONSUMER" if match[1] in consumers else "$SCHEDULER"
        return f"{match[1]}{{{label}," if match[2] else f"{match[1]}{{{label}}}"

    return _METRIC.sub(labelled, expression)


def _without_labels(expression: str) -> str:
    for label in ("$SCHEDULER", "$CONSUMER", "$SIDECAR"):
        expression = expression.replace("," + label, "").replace("{" + label + "}", "")
    return expression


def _dump(rules: Any) -> str:
    return str(yaml.dump(rules, sort_keys=False, width=120, allow_unicode=True))
