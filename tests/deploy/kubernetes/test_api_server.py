"""A real Kubernetes API server takes what the chart makes, and does with it what the chart means."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest

from deploy.generate.values import CHART
from reconsume.bridge.process.settings import load_settings
from reconsume.sidecar.push.settings import Profile
from reconsume.sidecar.settings import ProcessSettings
from tests.deploy.charts import SCENARIOS, find, render, run_helm
from tests.deploy.kubernetes.api_server import ApiServer, running
from tests.deploy.test_render import CUSTOM
from tests.deploy.tools import ToolMissing, kube_apiserver
from tests.support.waiting import wait_until

VERSION: Final = "1.36"
RESTRICTED: Final = {f"pod-security.kubernetes.io/{mode}": "restricted" for mode in ("enforce", "warn", "audit")}
SAFE: Final = {
    "runAsNonRoot": True,
    "runAsUser": 1000,
    "allowPrivilegeEscalation": False,
    "capabilities": {"drop": ["ALL"]},
    "seccompProfile": {"type": "RuntimeDefault"},
}

# The first time Go builds it.
pytestmark = [pytest.mark.timeout(1800), pytest.mark.early(3)]


@pytest.fixture(scope="module")
def server() -> Iterator[ApiServer]:
    """With the namespace `ns`, restricted, in which sidecars are added, and all kinds that the chart makes."""
    try:
        program = kube_apiserver()
    except ToolMissing as missing:
        pytest.skip(str(missing))
    with tempfile.TemporaryDirectory() as folder, running(program, Path(folder)) as one:
        make_namespace(one, "ns", {"shop": "true"})
        rendered = [made for scenario in SCENARIOS for made in render(scenario, kubernetes=VERSION)]
        for other in {made["metadata"].get("namespace", "ns") for made in rendered} - {"ns"}:
            make_namespace(one, other, {})
        priority = {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": "high"}}
        assert one.apply(priority | {"value": 1000}, dry=False).code == 201
        kinds = {(made["kind"], made["apiVersion"]) for made in rendered if made["kind"].lower() in CUSTOM}
        assert len(kinds) == len(CUSTOM)
        for kind, version in sorted(kinds):
            answer = one.apply(definition(kind, version), dry=False)
            assert answer.code == 201, answer
        for kind, version in sorted(kinds):
            served = f"/apis/{version}/{kind.lower()}s"
            wait_until(lambda served=served: one.ask(served).code == 200, f"{served} is served")  # type: ignore[misc]
        yield one


def make_namespace(server: ApiServer, name: str, labels: dict[str, str]) -> None:
    one = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": RESTRICTED | labels}}
    assert server.apply(one, dry=False).code == 201


def definition(kind: str, api_version: str) -> dict[str, Any]:
    """A CustomResourceDefinition with the schema that tests/deploy/crds has of it."""
    group, _, version = api_version.partition("/")
    names = {"kind": kind, "plural": f"{kind.lower()}s", "singular": kind.lower(), "listKind": f"{kind}List"}
    schema = structural(CUSTOM[kind.lower()])
    schema["properties"]["metadata"] = {"type": "object"}
    served = {"name": version, "served": True, "storage": True, "schema": {"openAPIV3Schema": schema}}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        # Asked for of groups that end in k8s.io, as that of the Spark operator does.
        "metadata": {"name": f"{names['plural']}.{group}", "annotations": {"api-approved.kubernetes.io": "unapproved"}},
        "spec": {"group": group, "scope": "Namespaced", "names": names, "versions": [served]},
    }


def structural(schema: dict[str, Any]) -> dict[str, Any]:
    """What a definition may hold of a JSON schema; unknown fields need no word there, they are errors anyway."""
    if "const" in schema:
        return {"type": "string", "enum": [schema["const"]]}
    if "type" not in schema:
        return {"x-kubernetes-preserve-unknown-fields": True}
    kept: dict[str, Any] = {key: schema[key] for key in ("type", "required", "enum", "pattern") if key in schema}
    if "properties" in schema:
        kept["properties"] = {name: structural(one) for name, one in schema["properties"].items()}
    elif isinstance(schema.get("additionalProperties"), dict):
        kept["additionalProperties"] = structural(schema["additionalProperties"])
    elif kept["type"] == "object":
        kept["x-kubernetes-preserve-unknown-fields"] = True
    if kept["type"] == "array":
        kept["items"] = structural(schema.get("items", {}))
    return kept


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_it_takes_every_object_of_a_scenario_without_a_warning(server: ApiServer, scenario: str) -> None:
    for one in render(scenario, kubernetes=VERSION):
        answer = server.apply(one)
        assert (answer.code, answer.warnings) == (201, []), (one, answer)


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_helm_installs_and_removes_a_scenario(server: ApiServer, scenario: str) -> None:
    """Without hooks: nothing runs the Job that they wait for. Strimzi's topics stay, with the messages in them."""
    values = "--values", str(CHART / "ci" / f"{scenario}-values.yaml")
    where = "--kubeconfig", str(server.kubeconfig), "--namespace", "ns"
    for again in (False, True):
        for verb in ("install", "upgrade"):
            made = run_helm(verb, "rel", str(CHART), *where, *values, "--no-hooks", "--wait=hookOnly")
            assert made.returncode == 0, (again, made.stderr)
            assert "arning" not in made.stderr, made.stderr
        installed = [one for one in render(scenario, kubernetes=VERSION) if not is_hook(one)]
        assert [one for one in installed if stored(server, one) != 200] == []
        removed = run_helm("uninstall", "rel", *where, "--no-hooks")
        assert removed.returncode == 0, removed.stderr
        kept = [one for one in installed if one["kind"] == "KafkaTopic"]
        assert [one for one in installed if stored(server, one) != 404] == kept
        if not kept:
            break


def test_pods_are_replaced_when_what_they_read_has_changed(server: ApiServer) -> None:
    where = "--kubeconfig", str(server.kubeconfig), "--namespace", "ns"
    sets = ("existingConfigMap=own", "kafka.security.tls.existingSecret=ca", "console.auth.existingSecret=word")
    chosen = [word for one in (*sets, "console.enabled=true") for word in ("--set", one)]

    def annotations() -> dict[str, dict[str, str]]:
        made = run_helm("upgrade", "--install", "rel", str(CHART), *where, *chosen, "--no-hooks", "--wait=hookOnly")
        assert made.returncode == 0, made.stderr
        paths = {"scheduler": "statefulsets/rel-reconsume-scheduler", "console": "deployments/rel-reconsume-console"}
        told = {name: server.ask(f"/apis/apps/v1/namespaces/ns/{path}").told for name, path in paths.items()}
        return {name: one["spec"]["template"]["metadata"]["annotations"] for name, one in told.items()}

    def put(kind: str, name: str, data: dict[str, str]) -> None:
        one = {"apiVersion": "v1", "kind": kind, "metadata": {"name": name, "namespace": "ns"}}
        assert server.apply(one | {"stringData" if kind == "Secret" else "data": data}, dry=False).code in (200, 201)

    try:
        assert [one for one in annotations().values() if "checksum/secrets" in one] == []
        put("Secret", "ca", {"ca.crt": "1"})
        first = annotations()
        assert all("checksum/secrets" in one for one in first.values())
        assert annotations() == first
        put("Secret", "word", {"token": "1"})
        second = annotations()
        assert [name for name in first if first[name] != second[name]] == ["console"]
        for kind, name, data in (("Secret", "ca", {"ca.crt": "2"}), ("ConfigMap", "own", {"reconsume.toml": ""})):
            put(kind, name, data)
            third = annotations()
            assert [name for name in second if second[name] != third[name]] == ["scheduler", "console"]
            second = third
    finally:
        run_helm("uninstall", "rel", *where, "--no-hooks")


def is_hook(one: dict[str, Any]) -> bool:
    return "helm.sh/hook" in one["metadata"].get("annotations", {})


def stored(server: ApiServer, one: dict[str, Any]) -> int:
    return server.ask(f"{server.path(one)}/{one['metadata']['name']}").code


def test_what_is_wrong_would_be_found(server: ApiServer) -> None:
    scheduler = find(render("minimal", kubernetes=VERSION), "StatefulSet")
    template = scheduler["spec"]["template"]
    pod = template["spec"]
    unsafe = pod | {"hostNetwork": True}
    answer = server.apply(scheduler | {"spec": scheduler["spec"] | {"template": template | {"spec": unsafe}}})
    assert answer.code == 201
    assert "host namespaces" in str(answer.warnings)
    unknown = pod | {"conteiners": []}
    answer = server.apply(scheduler | {"spec": scheduler["spec"] | {"template": template | {"spec": unknown}}})
    assert "conteiners" in answer.told["message"]
    monitor = find(render("sidecar", kubernetes=VERSION), "PodMonitor")
    answer = server.apply(monitor | {"spec": monitor["spec"] | {"selecter": {}}})
    assert "selecter" in answer.told["message"]


@pytest.fixture(scope="module")
def policy(server: ApiServer) -> None:
    """Sidecars are added from now on, to the pods with the label."""
    for one in render("sidecar", kubernetes=VERSION):
        if one["kind"].startswith("MutatingAdmissionPolicy"):
            assert server.apply(one, dry=False).code == 201
    wait_until(lambda: "reconsume" in names(admitted(server, pod())), "the policy is at work")


def pod(labels: dict[str, str] | None = None, **spec: Any) -> dict[str, Any]:
    shop = {"name": "shop", "image": "shop:1", "securityContext": SAFE}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "shop", "labels": {"reconsume.io/inject": "true"} if labels is None else labels},
        "spec": {"containers": [shop]} | spec,
    }


def admitted(server: ApiServer, what: dict[str, Any]) -> dict[str, Any]:
    """The pod as the server would store it, in a namespace that takes restricted ones only."""
    answer = server.create(what)
    assert (answer.code, answer.warnings) == (201, []), answer
    return answer.told


def names(made: dict[str, Any]) -> list[str]:
    return [one["name"] for one in made["spec"].get("initContainers", [])]


@pytest.mark.usefixtures("policy")
def test_a_labelled_pod_gets_the_sidecar_that_the_template_writes(server: ApiServer) -> None:
    made = admitted(server, pod())
    (sidecar,) = made["spec"]["initContainers"]
    assert sidecar["restartPolicy"] == "Always"
    assert sidecar["args"][:3] == ["sidecar", "--listen=127.0.0.1:15080", "--management=[::]:15081"]
    assert sidecar["startupProbe"]["httpGet"]["port"] == "reconsume-mgmt"
    assert sidecar["resources"]["limits"]["memory"] != ""
    assert {one["name"] for one in sidecar["volumeMounts"]} <= {one["name"] for one in made["spec"]["volumes"]}
    secret = {one["secret"]["secretName"] for one in made["spec"]["volumes"]}
    assert secret == {"kafka-user", "cluster-ca"}
    assert made["metadata"]["labels"]["reconsume.io/sidecar"] == "rel"
    assert made["spec"]["terminationGracePeriodSeconds"] >= 45
    assert [one["name"] for one in made["spec"]["containers"]] == ["shop"]


def settings_of(made: dict[str, Any]) -> ProcessSettings:
    """The settings that the process in the sidecar would read."""
    (sidecar,) = made["spec"]["initContainers"]
    environment = {one["name"]: one["value"] for one in sidecar["env"] if not one["name"].endswith("_FILE")}
    assert len(environment) == len([one for one in sidecar["env"] if not one["name"].endswith("_FILE")])
    return load_settings(ProcessSettings, None, environment, None)


@pytest.mark.usefixtures("policy")
def test_without_annotations_the_release_says_what_is_pushed(server: ApiServer) -> None:
    found = settings_of(admitted(server, pod()))
    assert found.sidecar.groups == []
    assert [(one.group, one.topics) for one in found.subscriptions] == [("arrivals", {"gates": "*"})]


@pytest.mark.usefixtures("policy")
def test_annotations_give_a_pod_its_group_its_topics_its_app_and_its_port(server: ApiServer) -> None:
    one = pod()
    one["metadata"]["annotations"] = {
        "reconsume.io/group": "departures",
        "reconsume.io/topics": " flights  gates ",
        "reconsume.io/app-url": "http://127.0.0.1:3000",
        "reconsume.io/port": "18080",
    }
    made = admitted(server, one)
    found = settings_of(made)
    assert found.sidecar.groups == ["departures"]
    (pushed,) = found.subscriptions
    assert (pushed.group, pushed.topics) == ("departures", {"flights": "*", "gates": "*"})
    assert pushed.url == "http://127.0.0.1:3000"
    assert "--listen=127.0.0.1:18080" in made["spec"]["initContainers"][0]["args"]


@pytest.mark.usefixtures("policy")
def test_an_annotation_may_hold_whole_subscriptions(server: ApiServer) -> None:
    one = pod()
    said = '[{"group": "departures", "profile": "dapr", "url": "http://127.0.0.1:3000"}]'
    one["metadata"]["annotations"] = {"reconsume.io/subscriptions": said}
    (pushed,) = settings_of(admitted(server, one)).subscriptions
    assert (pushed.group, pushed.profile, pushed.topics) == ("departures", Profile.DAPR, {})


@pytest.mark.usefixtures("policy")
def test_a_group_alone_is_served_and_nothing_more_is_pushed(server: ApiServer) -> None:
    one = pod()
    one["metadata"]["annotations"] = {"reconsume.io/group": "departures", "reconsume.io/subscriptions": "[]"}
    found = settings_of(admitted(server, one))
    assert (found.sidecar.groups, found.subscriptions) == (["departures"], ())


@pytest.mark.usefixtures("policy")
def test_it_comes_first_and_takes_nothing_away(server: ApiServer) -> None:
    migrate = {"name": "migrate", "image": "shop:1", "securityContext": SAFE}
    own = pod(initContainers=[migrate], volumes=[{"name": "own", "emptyDir": {}}], terminationGracePeriodSeconds=3000)
    made = admitted(server, own)
    assert names(made) == ["reconsume", "migrate"]
    assert made["spec"]["volumes"][0]["name"] == "own"
    assert made["spec"]["terminationGracePeriodSeconds"] == 3000


@pytest.mark.usefixtures("policy")
def test_pods_that_did_not_ask_or_have_one_are_left_alone(server: ApiServer) -> None:
    assert names(admitted(server, pod({"app": "shop"}))) == []
    assert names(admitted(server, pod({"reconsume.io/inject": "false"}))) == []
    mine = {"name": "reconsume", "image": "mine:1", "securityContext": SAFE}
    (only,) = admitted(server, pod(initContainers=[mine]))["spec"]["initContainers"]
    assert only["image"] == "mine:1"


@pytest.mark.usefixtures("policy")
def test_pods_of_other_namespaces_are_left_alone(server: ApiServer) -> None:
    make_namespace(server, "elsewhere", {})
    one = pod()
    one["metadata"]["namespace"] = "elsewhere"
    assert names(admitted(server, one)) == []
