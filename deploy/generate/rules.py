"""Rules for a Prometheus that knows no chart, from those of the chart; and rules with RocketMQ's names."""

from __future__ import annotations

from typing import Any, Final

import yaml

from deploy.generate.values import CHART

__all__ = ["RUNBOOKS", "plain_rules", "read_alerts"]

RUNBOOKS: Final = "docs/runbooks/"
_HEADER: Final = "# Generated from deploy/helm/reconsume/files/{source} by python -m deploy.generate\n"


def read_alerts() -> list[dict[str, Any]]:
    """The alerts of the chart, with $SCHEDULER and so on in their expressions."""
    text = (CHART / "files" / "alerts.yaml").read_text(encoding="utf-8")
    alerts: list[dict[str, Any]] = yaml.safe_load(text)["alerts"]
    return alerts


def plain_rules() -> str:
    """A rules file for one installation whose metrics carry no labels of its own."""
    rules = [_rule(one) for one in read_alerts()]
    group = {"groups": [{"name": "reconsume.alerts", "rules": rules}]}
    return _HEADER.format(source="alerts.yaml") + yaml.dump(group, sort_keys=False, width=120, allow_unicode=True)


def _rule(alert: dict[str, Any]) -> dict[str, Any]:
    threshold = f"{alert['threshold']:g}"
    expression = alert["expr"].strip().replace("$THRESHOLD", threshold)
    for label in ("$SCHEDULER", "$CONSUMER"):
        expression = expression.replace("," + label, "").replace("{" + label + "}", "")
    expression = expression.replace('namespace="$NAMESPACE",', "").replace("$FULLNAME", ".*reconsume.*")
    return {
        "alert": alert["alert"],
        "expr": expression,
        "for": alert["for"],
        "labels": {"severity": alert["severity"]},
        "annotations": {
            "summary": alert["summary"],
            "description": alert["description"].replace("$THRESHOLD", threshold),
            "runbook_url": f"{RUNBOOKS}{alert['alert'].lower()}.md",
        },
    }
