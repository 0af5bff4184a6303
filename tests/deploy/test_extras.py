"""What users add: every pod takes the same, so that a proxy or an authority reaches all, and their labels win."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any, Final

import pytest
import yaml

from deploy.generate.values import CHART
from tests.deploy.charts import find, objects_of, pod_specs, render, run_helm

CONSOLE: Final = ("console.enabled=true", "console.auth.existingSecret=token")
PODS: Final = {
    "scheduler": "StatefulSet/rel-reconsume-scheduler",
    "console": "Deployment/rel-reconsume-console",
    "reconcile": "CronJob/rel-reconsume-reconcile",
    "topics.job": "Job/rel-reconsume-topics",
    "tests": "Pod/rel-reconsume-test",
}
EXTRAS: Final = {
    "extraEnv": [{"name": "HTTPS_PROXY", "value": "http://proxy:3128"}],
    "extraEnvFrom": [{"secretRef": {"name": "more"}}],
    "extraVolumes": [{"name": "authority", "secret": {"secretName": "authority"}}],
    "extraVolumeMounts": [{"name": "authority", "mountPath": "/authority"}],
}


def with_values(values: dict[str, Any]) -> dict[str, dict[str, Any]]:
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "values.yaml"
        file.write_text(yaml.dump(values))
        run = run_helm("template", "rel", str(CHART), "--namespace", "ns", "--values", str(file))
    assert run.returncode == 0, run.stderr
    return pod_specs(objects_of(run.stdout))


@pytest.mark.parametrize("part", PODS)
def test_a_pod_takes_environment_and_volumes(part: str) -> None:
    values: dict[str, Any] = {
        "kafka": {"bootstrapServers": "kafka:9092"},
        "console": {"enabled": True, "auth": {"existingSecret": "token"}},
        "reconcile": {"enabled": True},
    }
    section = values
    for name in part.split("."):
        section = section.setdefault(name, {})
    section |= EXTRAS
    pods = with_values(values)
    assert pods.keys() == set(PODS.values())
    for name, pod in pods.items():
        (container,) = pod["containers"]
        expected = EXTRAS if name == PODS[part] else {key: [] for key in EXTRAS}
        assert [one for one in container["env"] if one["name"] == "HTTPS_PROXY"] == expected["extraEnv"]
        assert container.get("envFrom", []) == expected["extraEnvFrom"]
        assert [one for one in pod["volumes"] if one["name"] == "authority"] == expected["extraVolumes"]
        assert [one for one in container["volumeMounts"] if one["name"] == "authority"] == expected["extraVolumeMounts"]
        assert {one["name"] for one in container["volumeMounts"]} <= {one["name"] for one in pod["volumes"]}


def test_what_users_label_takes_the_place_of_the_charts_own() -> None:
    objects = render(
        "minimal",
        *CONSOLE,
        r"commonLabels.app\.kubernetes\.io/part-of=shop,commonLabels.team=a",
        "scheduler.podLabels.team=b,console.podLabels.team=c",
        r"metrics.serviceMonitor.enabled=true,metrics.serviceMonitor.labels.app\.kubernetes\.io/instance=prometheus",
        "metrics.prometheusRule.enabled=true,metrics.prometheusRule.alertLabels.severity=page",
        "metrics.prometheusRule.overrides.ReconsumeHeld.severity=info",
    )
    for kind, team in {"StatefulSet": "b", "Deployment": "c"}.items():
        made = find(objects, kind)
        pod = made["spec"]["template"]["metadata"]["labels"]
        assert (made["metadata"]["labels"]["team"], pod["team"]) == ("a", team)
        assert pod["app.kubernetes.io/part-of"] == "shop"
        assert made["spec"]["selector"]["matchLabels"].items() <= pod.items()
    monitor = find(objects, "ServiceMonitor", "-scheduler")
    assert monitor["metadata"]["labels"]["app.kubernetes.io/instance"] == "prometheus"
    rules = find(objects, "PrometheusRule")["spec"]["groups"][0]["rules"]
    assert {one["labels"]["severity"] for one in rules if one["alert"] != "ReconsumeHeld"} == {"page"}
    assert [one["labels"]["severity"] for one in rules if one["alert"] == "ReconsumeHeld"] == ["info"]


def test_what_users_say_of_a_pod_takes_the_place_of_what_the_chart_says() -> None:
    more = r"scheduler.podAnnotations.checksum/config=a,scheduler.startupProbe.httpGet.path=/readyz"
    pod = find(render("minimal", more), "StatefulSet")["spec"]["template"]
    assert pod["metadata"]["annotations"]["checksum/config"] == "a"
    assert pod["spec"]["containers"][0]["startupProbe"]["httpGet"] == {"path": "/readyz", "port": "management"}


def test_probes_spread_and_strategy_of_the_console_are_its_users() -> None:
    made = find(render("console"), "Deployment")["spec"]
    pod = made["template"]["spec"]
    assert made["strategy"] == {"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": 0}}
    assert pod["containers"][0]["livenessProbe"]["timeoutSeconds"] == 10
    assert pod["topologySpreadConstraints"] == []
    plain = find(render("minimal", *CONSOLE), "Deployment")["spec"]["template"]
    assert len(plain["spec"]["topologySpreadConstraints"]) == 2
    for one in plain["spec"]["topologySpreadConstraints"]:
        assert one["labelSelector"]["matchLabels"].items() <= plain["metadata"]["labels"].items()


@pytest.mark.parametrize(
    ("values", "budget"),
    [((), False), (("console.replicas=2",), True), (("console.replicas=2", "console.pdb.enabled=false"), False)],
)
def test_a_console_of_several_pods_has_a_disruption_budget(values: tuple[str, ...], budget: bool) -> None:
    objects = render("minimal", *CONSOLE, *values)
    names = [one["metadata"]["name"] for one in objects if one["kind"] == "PodDisruptionBudget"]
    assert ("rel-reconsume-console" in names) == budget
    if budget:
        chosen = find(objects, "PodDisruptionBudget", "-console")["spec"]["selector"]["matchLabels"]
        assert chosen.items() <= find(objects, "Deployment")["spec"]["template"]["metadata"]["labels"].items()


def test_workers_are_replaced_as_the_user_says() -> None:
    assert find(render("minimal"), "StatefulSet")["spec"]["updateStrategy"] == {"type": "RollingUpdate"}
    strategy = find(render("full"), "StatefulSet")["spec"]["updateStrategy"]
    assert strategy == {"type": "RollingUpdate", "rollingUpdate": {"partition": 1}}


@pytest.mark.parametrize("kind", ["StatefulSet", "Deployment"])
def test_without_a_cluster_nothing_is_said_of_secrets(kind: str) -> None:
    annotations = find(render("console"), kind)["spec"]["template"]["metadata"]["annotations"]
    assert "checksum/config" in annotations
    assert "checksum/secrets" not in annotations
