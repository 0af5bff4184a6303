"""The sidecar: as an admission policy adds it, and as charts that depend on this one write it."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
import yaml

from deploy.generate.values import CHART
from reconsume.bridge.process.settings import load_settings
from reconsume.sidecar.process import api_part
from reconsume.sidecar.push import subscription
from reconsume.sidecar.settings import ProcessSettings
from tests.deploy.charts import find, helm_template, objects_of, pod_specs, render
from tests.deploy.test_render import problems, restricted

STABLE = "admissionregistration.k8s.io/v1/MutatingAdmissionPolicy"
BETA = "admissionregistration.k8s.io/v1beta1/MutatingAdmissionPolicy"
APPLICATION = """
apiVersion: v1
kind: Pod
metadata:
  name: shop
spec:
  terminationGracePeriodSeconds: {{ include "reconsume.sidecar.leastGrace" .Subcharts.reconsume }}
  initContainers:
    -
      {{- include "reconsume.sidecar.container" .Subcharts.reconsume | nindent 6 }}
  containers:
    - {name: shop, image: shop:1}
  volumes:
    {{- include "reconsume.sidecar.volumes" .Subcharts.reconsume | nindent 4 }}
"""
VALUES = {
    "reconsume": {
        "scheduler": {"enabled": False},
        "topics": {"manage": "none"},
        "config": {
            "topic_prefix": "shop.",
            "allowed_real_topics": ["a", "b"],
            "auto_create_subscription_group": False,
            "sidecar": {
                "groups": ["g"],
                "answer_seconds": 5,
                "limits": {"records_in_flight": 1000000},
                "dead_letter_on": {"g": ["a.B", "C"]},
            },
            "subscriptions": [
                {"group": "g", "topics": ["flights"], "url": "http://127.0.0.1:9000", "max_reconsume_times": 3},
                {"group": "h", "topics": {"gates": 'A || "B"'}, "exactly_once": True},
            ],
        },
        "kafka": {
            "bootstrapServers": "kafka:9093",
            "security": {
                "protocol": "SASL_SSL",
                "sasl": {"mechanism": "SCRAM-SHA-256", "existingSecret": "login"},
                "tls": {"existingSecret": "ca"},
            },
        },
    }
}


@pytest.fixture
def application(tmp_path: Path) -> dict[str, Any]:
    """A pod of a chart that depends on this one."""
    chart = tmp_path / "shop"
    (chart / "templates").mkdir(parents=True)
    shutil.copytree(CHART, chart / "charts" / "reconsume")
    dependency = {"name": "reconsume", "version": "*.*.*"}
    (chart / "Chart.yaml").write_text(
        yaml.dump({"apiVersion": "v2", "name": "shop", "version": "1.0.0", "dependencies": [dependency]})
    )
    (chart / "values.yaml").write_text(yaml.dump(VALUES))
    (chart / "templates" / "pod.yaml").write_text(APPLICATION)
    run = helm_template(None, chart=chart)
    assert run.returncode == 0, run.stderr
    return find(objects_of(run.stdout), "Pod", "shop")


def test_a_chart_that_depends_on_this_one_gets_a_native_sidecar(application: dict[str, Any]) -> None:
    assert problems(application, "1.28") == []
    spec = application["spec"]
    sidecar = spec["initContainers"][0]
    assert sidecar["restartPolicy"] == "Always"
    assert sidecar["args"][:3] == ["sidecar", "--listen=127.0.0.1:15080", "--management=[::]:15081"]
    assert {one["secret"]["secretName"] for one in spec["volumes"]} == {"login", "ca"}
    # In a pod that says nothing of security it is restricted all the same.
    assert restricted({}, sidecar) == []


def test_its_probes_and_hook_are_the_management_ports(application: dict[str, Any]) -> None:
    sidecar = application["spec"]["initContainers"][0]
    port = sidecar["ports"][0]
    assert port == {"name": "reconsume-mgmt", "containerPort": 15081}
    paths = {name: sidecar[name]["httpGet"] for name in ("startupProbe", "livenessProbe")}
    assert {one["port"] for one in paths.values()} == {port["name"]}
    assert {name: one["path"] for name, one in paths.items()} == {
        "startupProbe": "/startupz",
        "livenessProbe": "/livez",
    }
    assert "readinessProbe" not in sidecar, "without Kafka the whole pod would not be ready"
    seconds = {name: sidecar[name].get("timeoutSeconds", 1) for name in paths}
    assert min(seconds.values()) >= 3
    assert seconds["livenessProbe"] > max(api_part._ALIVE_SECONDS, subscription._ALIVE_SECONDS)
    # From inside: /quiesce answers its own machine alone, and the kubelet is another.
    command = sidecar["lifecycle"]["preStop"]["exec"]["command"]
    assert command[:2] == ["python", "-c"]
    assert "http://127.0.0.1:15081/quiesce" in command[2]
    compile(command[2], "preStop", "exec")


def test_its_settings_reach_it_by_the_environment(application: dict[str, Any], tmp_path: Path) -> None:
    (tmp_path / "username").write_text("me")
    (tmp_path / "password").write_text("secret")
    environment = {
        one["name"]: one["value"].replace("/run/reconsume/sasl", str(tmp_path))
        for one in application["spec"]["initContainers"][0]["env"]
    }
    settings = load_settings(ProcessSettings, None, environment, None)
    assert settings.client_settings() == {
        "bootstrap.servers": "kafka:9093",
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "SCRAM-SHA-256",
        "sasl.username": "me",
        "sasl.password": "secret",
        "ssl.ca.location": "/run/reconsume/tls/ca.crt",
    }
    assert settings.topic_prefix == "shop."
    assert settings.allowed_real_topics == ["a", "b"]
    assert settings.auto_create_subscription_group is False
    assert (settings.sidecar.groups, settings.sidecar.answer_seconds) == (["g"], 5)
    assert settings.sidecar.limits.records_in_flight == 1_000_000
    assert settings.sidecar.dead_letter_on == {"g": ("a.B", "C")}
    first, second = settings.subscriptions
    assert (first.group, first.topics, first.url) == ("g", {"flights": "*"}, "http://127.0.0.1:9000")
    assert (first.max_reconsume_times, second.exactly_once) == (3, True)
    assert second.topics == {"gates": 'A || "B"'}


@pytest.mark.parametrize(("quiesce", "timeout", "grace"), [(5, 30, 45), (0, 900, 910)])
def test_the_grace_period_covers_quiescing_and_the_longest_call(quiesce: int, timeout: int, grace: int) -> None:
    values = f"sidecar.quiesceSeconds={quiesce}", f"sidecar.consumeTimeoutSeconds={timeout}"
    policy = find(render("sidecar", *values), "MutatingAdmissionPolicy")
    expression = policy["spec"]["mutations"][0]["jsonPatch"]["expression"]
    assert f"terminationGracePeriodSeconds >= {grace} ? []" in expression


def test_quantities_are_texts_in_the_policy() -> None:
    """A number there would make the API server refuse every labelled pod."""
    policy = find(render("sidecar", "sidecar.resources.requests.cpu=0.5"), "MutatingAdmissionPolicy")
    expression = policy["spec"]["mutations"][0]["jsonPatch"]["expression"]
    assert 'limits: {"cpu": "1", ' in expression
    assert 'requests: {"cpu": "0.5", ' in expression


@pytest.mark.parametrize(
    ("kubernetes", "kinds", "version"),
    [
        ("1.34", (BETA,), "v1beta1"),
        ("1.35", (BETA, "v1/Pod"), "v1beta1"),
        ("1.36", (), "v1"),
        ("1.36", (BETA, STABLE, "v1/Pod"), "v1"),
    ],
)
def test_the_policy_is_of_the_api_version_that_the_server_has(
    kubernetes: str, kinds: tuple[str, ...], version: str
) -> None:
    objects = render("sidecar", kubernetes=kubernetes, kinds=kinds)
    policy, binding = (find(objects, f"MutatingAdmissionPolicy{one}") for one in ("", "Binding"))
    assert policy["apiVersion"] == binding["apiVersion"] == f"admissionregistration.k8s.io/{version}"
    assert problems(policy, kubernetes) == problems(binding, kubernetes) == []
    assert binding["spec"]["policyName"] == policy["metadata"]["name"]
    assert binding["spec"]["matchResources"]["namespaceSelector"] == {"matchLabels": {"shop": "true"}}


@pytest.mark.parametrize(("kubernetes", "kinds"), [("1.33", ()), ("1.35", ()), ("1.36", ("v1/Pod",))])
def test_no_policy_is_made_where_the_server_has_none(kubernetes: str, kinds: tuple[str, ...]) -> None:
    run = helm_template("sidecar", kubernetes=kubernetes, kinds=kinds)
    assert run.returncode != 0
    assert f"which this Kubernetes (v{kubernetes}) does not have: it is on by default from 1.36 on" in run.stderr


def test_pods_without_a_policy_have_no_sidecar() -> None:
    assert all("reconsume" not in str(one.get("initContainers")) for one in pod_specs(render("minimal")).values())
