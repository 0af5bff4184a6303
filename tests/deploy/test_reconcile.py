"""Reconcile in the chart: Spark gets what its pod has, exit codes differ, the operator's pods reach each other."""

from __future__ import annotations

from typing import Any

import pytest

from tests.deploy.charts import find, helm_template, pod_specs, render

ENABLED = "reconcile.enabled=true"
PLAIN = ("minimal", ENABLED)


def pod(*sets: str) -> dict[str, Any]:
    (found,) = [one for name, one in pod_specs(render(*PLAIN, *sets)).items() if name.startswith("CronJob/")]
    return found


def arguments(*sets: str) -> list[str]:
    (container,) = pod(*sets)["containers"]
    assert container["args"][0] == "reconcile"
    return [str(word) for word in container["args"][1:]]


@pytest.mark.parametrize(
    ("limit", "heap"),
    [("3Gi", "1843m"), ("8G", "4577m"), ("1536Mi", "921m"), ("2147483648", "1228m"), ("1.5Gi", "921m")],
)
def test_the_heap_is_a_part_of_the_memory(limit: str, heap: str) -> None:
    assert f"--spark-option=spark.driver.memory={heap}" in arguments(f"reconcile.resources.limits.memory={limit}")


def test_without_a_limit_the_request_counts() -> None:
    words = arguments("reconcile.resources.limits=null", "reconcile.resources.requests.cpu=1500m")
    assert words[:2] == ["--master=local[2]", "--spark-option=spark.driver.memory=1228m"]


@pytest.mark.parametrize(("cpu", "threads"), [("500m", 1), ("1", 1), ("2500m", 3), ("4", 4)])
def test_spark_takes_the_processors_of_its_pod_alone(cpu: str, threads: int) -> None:
    assert arguments(f"reconcile.resources.limits.cpu={cpu}")[0] == f"--master=local[{threads}]"


def test_without_resources_spark_decides() -> None:
    assert arguments("reconcile.resources=null") == ["--since", "25h"]
    (scratch,) = [one for one in pod("reconcile.resources=null")["volumes"] if one["name"] == "scratch"]
    assert scratch["emptyDir"] == {}


def test_scratch_space_is_that_of_the_pod() -> None:
    (scratch,) = [one for one in pod()["volumes"] if one["name"] == "scratch"]
    assert scratch["emptyDir"] == {"sizeLimit": "4Gi"}
    more = pod("reconcile.resources.limits.ephemeral-storage=20Gi")
    (scratch,) = [one for one in more["volumes"] if one["name"] == "scratch"]
    assert scratch["emptyDir"] == {"sizeLimit": "20Gi"}


def test_what_the_user_says_comes_last_and_wins() -> None:
    assert arguments("reconcile.args={--master,local[7]}")[-2:] == ["--master", "local[7]"]


@pytest.mark.parametrize(
    ("value", "said"),
    [
        ("limits.memory=3GB", 'reconcile.resources.limits.memory is "3GB": write it such as 3Gi'),
        ("requests.cpu=half", 'reconcile.resources.requests.cpu is "half": write it such as 2 or 1500m'),
    ],
)
def test_a_quantity_that_is_none_is_refused(value: str, said: str) -> None:
    run = helm_template(*PLAIN, f"reconcile.resources.{value}")
    assert run.returncode != 0
    assert said in run.stderr


def test_spark_logs_in_with_the_certificate_of_the_workers() -> None:
    keys = "keys.cert=user.crt,kafka.security.tls.keys.key=user.key"
    tls = f"kafka.security.protocol=SSL,kafka.security.tls.existingSecret=user,kafka.security.tls.{keys}"
    settings = find(render(*PLAIN, tls), "ConfigMap", "rel-reconsume-settings")["data"]["reconsume.toml"]
    assert '"ssl.key.location" = "/run/reconsume/tls/user.key"' in settings
    spec = pod(tls)
    (mount,) = [one for one in spec["containers"][0]["volumeMounts"] if one["mountPath"] == "/run/reconsume/tls"]
    (volume,) = [one for one in spec["volumes"] if one["name"] == mount["name"]]
    assert volume["secret"]["secretName"] == "user"


def test_findings_end_the_job_and_errors_are_tried_again() -> None:
    job = find(render(*PLAIN, "reconcile.backoffLimit=4"), "CronJob")["spec"]["jobTemplate"]["spec"]
    assert job["backoffLimit"] == 4
    (findings, moved) = job["podFailurePolicy"]["rules"]
    (container,) = job["template"]["spec"]["containers"]
    assert findings["action"] == "FailJob"
    assert findings["onExitCodes"] == {"containerName": container["name"], "operator": "In", "values": [1]}
    assert (moved["action"], moved["onPodConditions"][0]["type"]) == ("Ignore", "DisruptionTarget")


def test_the_pods_of_the_operator_reach_each_other() -> None:
    objects = render("spark-operator")
    application = find(objects, "ScheduledSparkApplication")["spec"]["template"]
    policy = find(objects, "NetworkPolicy", "-reconcile")["spec"]
    chosen = policy["podSelector"]["matchLabels"]
    for role in ("driver", "executor"):
        assert chosen.items() <= application[role]["labels"].items()
    peers = [{"podSelector": {"matchLabels": chosen}}]
    assert policy["ingress"] == [{"from": peers}]
    assert policy["egress"] == [{"to": peers}]
    workers = find(objects, "StatefulSet")["spec"]["template"]["metadata"]["labels"]
    assert not chosen.items() <= workers.items()


def test_the_pods_of_the_operator_run_where_those_of_the_chart_run() -> None:
    tolerated = {"key": "spot", "operator": "Exists"}
    objects = render(
        "spark-operator",
        *("imagePullSecrets[0].name=registry", "global.imagePullSecrets[0]=ours", "scheduler.nodeSelector.pool=batch"),
        *("scheduler.tolerations[0].key=spot", "scheduler.tolerations[0].operator=Exists"),
        *("scheduler.priorityClassName=low", "scheduler.affinity.nodeAffinity.x=y"),
    )
    application = find(objects, "ScheduledSparkApplication")["spec"]["template"]
    assert application["imagePullSecrets"] == ["ours", "registry"]
    for role in ("driver", "executor"):
        spec = application[role]
        assert (spec["nodeSelector"], spec["tolerations"]) == ({"pool": "batch"}, [tolerated])
        assert (spec["priorityClassName"], spec["affinity"]) == ("low", {"nodeAffinity": {"x": "y"}})


def test_where_all_may_go_out_the_pods_of_the_operator_may() -> None:
    policy = find(render("spark-operator", "networkPolicy.egress=null"), "NetworkPolicy", "-reconcile")
    assert policy["spec"]["egress"] == [{}]


def test_a_cronjob_needs_no_policy_of_its_own() -> None:
    policies = [one for one in render(*PLAIN, "networkPolicy.enabled=true") if one["kind"] == "NetworkPolicy"]
    assert [one["metadata"]["name"] for one in policies] == ["rel-reconsume-scheduler"]
