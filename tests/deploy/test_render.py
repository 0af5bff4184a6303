"""Every scenario of the chart is what Kubernetes takes, from 1.28 to 1.37."""

from __future__ import annotations

import functools
import json
import re
import subprocess
from pathlib import Path
from typing import Any, Final

import importlib_resources
import jsonschema
import pytest
from kubernetes_validate import utils
from referencing import Registry, Resource

from deploy.generate.values import CHART
from tests.deploy.charts import KUBERNETES, SCENARIOS, find, helm_template, objects_of, pod_specs, render, run_helm

CUSTOM: Final = {path.stem: json.loads(path.read_text()) for path in (Path(__file__).parent / "crds").glob("*.json")}
BEFORE_1_36: Final = [one for one in SCENARIOS if one != "sidecar"]
RENDERED: Final = [
    (scenario, version)
    for scenario in SCENARIOS
    for version in KUBERNETES
    if scenario in BEFORE_1_36 or int(version.removeprefix("1.")) >= 36
]


@functools.cache
def registry(version: str) -> Registry[Any]:
    definitions = json.loads(schema_file(version, "_definitions.json"))
    found: Registry[Any] = Resource.from_contents(definitions) @ Registry()
    return found


@functools.cache
def schema_file(version: str, name: str) -> str:
    folder = importlib_resources.files("kubernetes_validate").joinpath("kubernetes-json-schema")
    return str(folder.joinpath(f"v{version}.0-local-strict", name).read_text())


@functools.cache
def validator(version: str, kind: str, api_version: str) -> jsonschema.Draft202012Validator:
    """Of a kind as that version of Kubernetes has it; unknown fields are errors."""
    if kind.lower() in CUSTOM:
        return jsonschema.Draft202012Validator(CUSTOM[kind.lower()])
    group, _, number = api_version.rpartition("/")
    name = f"{kind.lower()}-{group.partition('.')[0] + '-' if group else ''}{number}.json"
    schema = json.loads(schema_file(version, name))
    return jsonschema.Draft202012Validator(schema, registry=Resource.from_contents(schema) @ registry(version))


def problems(rendered: dict[str, Any], version: str) -> list[str]:
    check = validator(version, rendered["kind"], rendered["apiVersion"])
    return [f"{rendered['kind']}: {error.json_path}: {error.message[:300]}" for error in check.iter_errors(rendered)]


def test_there_are_scenarios_and_versions() -> None:
    assert len(SCENARIOS) >= 7
    assert {f"{one}.0" for one in KUBERNETES} <= set(utils.all_versions())


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_a_scenario_passes_lint(scenario: str) -> None:
    values = CHART / "ci" / f"{scenario}-values.yaml"
    run = run_helm("lint", "--strict", str(CHART), "--values", str(values), "--kube-version", KUBERNETES[-1])
    assert run.returncode == 0, run.stdout + run.stderr


@pytest.mark.parametrize(("scenario", "version"), RENDERED)
def test_kubernetes_takes_it(scenario: str, version: str) -> None:
    found = render(scenario, kubernetes=version)
    assert [problem for one in found for problem in problems(one, version)] == []


def test_a_field_that_a_version_does_not_know_would_be_found() -> None:
    pod = find(render("minimal"), "Pod", "-test")
    broken = pod | {"spec": pod["spec"] | {"conteiners": []}}
    assert problems(broken, "1.28") != []
    topic = find(render("strimzi"), "KafkaTopic", "-delay-1s")
    assert problems(topic | {"spec": topic["spec"] | {"partition": 1}}, "1.28") != []


def test_a_native_sidecar_needs_1_28() -> None:
    """Why the chart says so in kubeVersion."""
    sidecar = {"name": "a", "image": "a:1", "restartPolicy": "Always"}
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a"}}
    pod |= {"spec": {"initContainers": [sidecar], "containers": [{"name": "b", "image": "b:1"}]}}
    assert problems(pod, "1.27") != []
    assert problems(pod, "1.28") == []


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_names_fit_and_every_object_is_labelled(scenario: str) -> None:
    for one in render(scenario):
        name, labels = one["metadata"]["name"], one["metadata"].get("labels", {})
        # Controllers add 11 characters to the names of their pods, and labels hold those names.
        assert len(name) <= (52 if one["kind"] in ("StatefulSet", "CronJob", "Job") else 63), name
        assert all(len(str(value)) <= 63 for value in labels.values())
        if not name.startswith(("more", "text-")):
            assert labels["app.kubernetes.io/instance"] == "rel"


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_the_longest_names_fit_too(scenario: str) -> None:
    names = [
        one["metadata"]["name"] for one in released("release-with-the-fifty-three-characters-helm-allows-x", scenario)
    ]
    assert names != []
    assert [one for one in names if len(one) > 63] == []


def released(release: str, scenario: str, namespace: str = "ns", *more: str) -> list[dict[str, Any]]:
    """The objects of a scenario under another name than `rel`."""
    values = ["--values", str(CHART / "ci" / f"{scenario}-values.yaml"), "--kube-version", KUBERNETES[-1]]
    run = run_helm("template", release, str(CHART), "--namespace", namespace, *values, *more)
    assert run.returncode == 0, run.stderr
    return objects_of(run.stdout)


@pytest.mark.parametrize("scenario", ["full", "console", "sidecar", "reconcile", "strimzi"])
def test_names_that_are_numbers_of_yaml_stay_texts(scenario: str) -> None:
    texts = ["kafka.security.tls.existingSecret", "serviceAccount.name", "scheduler.priorityClassName"]
    more = [word for one in texts for word in ("--set-string", f"{one}=77")]
    # A Service's name begins with a letter, and true is one that YAML does not read as a text.
    names = "--set-string=nameOverride=99,fullnameOverride=true"
    objects = released("1234", scenario, "5678", names, *more)
    assert [problem for one in objects for problem in problems(one, KUBERNETES[-1])] == []


@pytest.mark.parametrize("release", ["shop.eu", "2024-shop"])
def test_a_release_whose_services_kubernetes_would_refuse_is_refused_before_its_hooks(release: str) -> None:
    def rendered(*sets: str) -> subprocess.CompletedProcess[str]:
        values = ("--namespace=ns", "--set=kafka.bootstrapServers=kafka:9092", *sets)
        return run_helm("template", release, str(CHART), *values)

    told = rendered().stderr
    assert f'names of Services would begin with "{release}-reconsume"' in told
    assert "must begin with a letter and have no dots: set fullnameOverride" in told
    services = [one for one in objects_of(rendered("--set=fullnameOverride=shop").stdout) if one["kind"] == "Service"]
    assert [one["metadata"]["name"] for one in services] == ["shop-scheduler"]
    assert rendered("--set=scheduler.enabled=false").returncode == 0
    assert rendered("--set=scheduler.enabled=false,console.enabled=true,console.auth.existingSecret=a").returncode != 0


def test_two_releases_in_one_namespace_share_no_name() -> None:
    more = ["--set=sidecar.inject.policy.enabled=true", "--set=console.enabled=true,console.auth.existingSecret=token"]
    one, other = (
        {(made["kind"], made["metadata"]["name"]) for made in released(name, "strimzi", "n" * 63, *more)}
        for name in ("one", "other")
    )
    assert one & other == set()


def test_a_large_number_is_written_as_one() -> None:
    cron = find(released("rel", "reconcile", "ns", "--set-json=reconcile.activeDeadlineSeconds=2000000"), "CronJob")
    assert cron["spec"]["jobTemplate"]["spec"]["activeDeadlineSeconds"] == 2_000_000


def restricted(spec: dict[str, Any], container: dict[str, Any]) -> list[str]:
    """What the restricted Pod Security Standard would say of a container."""
    pod, own = spec.get("securityContext", {}), container.get("securityContext", {})
    checks = {
        "runAsNonRoot": own.get("runAsNonRoot", pod.get("runAsNonRoot")) is True,
        "runAsUser": own.get("runAsUser", pod.get("runAsUser", 1)) != 0,
        "seccompProfile": own.get("seccompProfile", pod.get("seccompProfile", {})).get("type") == "RuntimeDefault",
        "allowPrivilegeEscalation": own.get("allowPrivilegeEscalation") is False,
        "capabilities": own.get("capabilities", {}) == {"drop": ["ALL"]},
        "privileged": not own.get("privileged"),
        "hostPort": not any("hostPort" in port for port in container.get("ports", [])),
        "hostNamespaces": not any(spec.get(one) for one in ("hostNetwork", "hostPID", "hostIPC")),
        "volumes": all(
            set(one) - {"name"} <= {"configMap", "secret", "emptyDir", "persistentVolumeClaim", "projected"}
            for one in spec.get("volumes", [])
        ),
    }
    return [f"{container['name']}: {name}" for name, well in checks.items() if not well]


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_pods_satisfy_the_restricted_standard_and_more(scenario: str) -> None:
    for name, spec in pod_specs(render(scenario)).items():
        containers = [*spec.get("initContainers", []), *spec["containers"]]
        assert [problem for one in containers for problem in restricted(spec, one)] == [], name
        assert spec["automountServiceAccountToken"] is False, name
        ours = [one for one in containers if one["name"] != "other"]
        assert all(one["securityContext"]["readOnlyRootFilesystem"] is True for one in ours), name
        assert all("limits" in one["resources"] for one in ours), name


def test_what_is_not_restricted_would_be_found() -> None:
    assert restricted({}, {"name": "a"}) == [
        f"a: {one}" for one in ("runAsNonRoot", "seccompProfile", "allowPrivilegeEscalation", "capabilities")
    ]


def test_notes_tell_the_next_commands_and_every_warning() -> None:
    run = helm_template("own-settings", notes=True)
    notes = run.stdout.partition("NOTES:")[2]
    assert "rollout status statefulset/a-name-of-forty-characters-that-is-long-scheduler" in notes
    for warning in ("topics.manage is none", "One worker", "PLAINTEXT", "diagnosticMode", "named by tag"):
        assert warning in notes, run.stdout + run.stderr
    assert "Warnings" not in helm_template("full", "scheduler.enabled=true", notes=True).stdout.partition("NOTES:")[2]
    published = [
        helm_template("strimzi", *more, notes=True).stdout for more in ((), ("config.topics.retention_days=9",))
    ]
    assert ["run `reconsume topics apply` once" in one for one in published] == [False, True]
    signs_in = [helm_template(one, notes=True).stdout for one in ("console", "console-people")]
    assert ["the token as the password" in one for one in signs_in] == [True, False]


def test_rights_that_the_chart_cannot_derive_are_warned_of_and_may_be_added() -> None:
    patterns, acl = "config.allowed_real_topics={orders,flights|gates}", "topics.strimzi.kafkaUser.acls[0]"
    added = f"{acl}.resource.type=topic,{acl}.resource.name=flights,{acl}.operations={{Write}}"
    warned, silent = (helm_template("strimzi", patterns, *more, notes=True) for more in ((), (added,)))
    assert re.findall(r"cannot express the pattern (\S+)", warned.stdout) == ["flights|gates"], warned.stderr
    assert silent.returncode == 0
    assert "cannot express" not in silent.stdout
    user = find(render("strimzi", patterns, added), "KafkaUser")
    right = {"resource": {"type": "topic", "name": "flights"}, "operations": ["Write"]}
    assert user["spec"]["authorization"]["acls"][-1] == right
    assert problems(user, KUBERNETES[-1]) == []
