"""Values that are refused, with words that help; values that reach the program."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from deploy.generate.values import read_values
from reconsume.bridge.groups.groups import Groups
from reconsume.bridge.kafka.admin import KafkaAdmin
from reconsume.bridge.metrics.catalogue import CATALOGUE
from reconsume.bridge.process.ports import (
    CONSOLE_MANAGEMENT,
    CONSOLE_PAGES,
    SCHEDULER_MANAGEMENT,
    SIDECAR_API,
    SIDECAR_MANAGEMENT,
)
from reconsume.bridge.process.settings import Settings, TopicSettings, load_settings
from reconsume.bridge.topics.topics import TopicMaker, wanted_topics
from reconsume.delay_levels.rules.levels import DelayLevels
from reconsume.delay_levels.wire.names import TopicNames
from reconsume.operations.groups_file import parse_groups_file
from reconsume.operations.rights import Role, rights_of
from tests.deploy.charts import SCENARIOS, find, helm_template, render

CONSOLE = "console.enabled=true,console.auth.existingSecret=token"
REFUSED = {
    "schedulr.replicas=2": "additional properties 'schedulr' not allowed",
    "scheduler.replica=2": "at '/scheduler': additional properties 'replica' not allowed",
    "scheduler.replicas=two": "at '/scheduler/replicas': got string, want integer",
    "config.logging.level=LOUD": "'DEBUG', 'INFO', 'WARNING', 'ERROR'",
    "groups.departures.retryTimes=3": "at '/groups/departures': additional properties 'retryTimes' not allowed",
    "kafka.security.protocol=SASL": "'PLAINTEXT', 'SSL', 'SASL_PLAINTEXT', 'SASL_SSL'",
    "config.scheduler.max_batch=3": "at '/config/scheduler': additional properties 'max_batch' not allowed",
    "config.scheduler.delivery=twice": "'transactional', 'at_least_once'",
    "config.topics.delay_partitions=0": "got 0, want 1",
    "topics.manage=operator": "'none', 'job', 'strimziKafkaTopic'",
    "metrics.prometheusRule.overrides.ReconsumeHeld.limit=1": "additional properties 'limit' not allowed",
    "kafka.bootstrapServers=": "kafka.bootstrapServers is empty: set it to host:port of your brokers",
    "kafka.bootstrapServers=kafka": 'kafka.bootstrapServers is "kafka": write host:port',
    "delayLevels=1 2 3": "write durations separated by single spaces",
    "image.digest=latest": "write sha256: and 64 hexadecimal digits",
    "config.bootstrap_servers=a:1": "config.bootstrap_servers has a value of its own: set kafka.bootstrapServers",
    "config.management.port=1": "config.management has a value of its own: set scheduler.managementPort",
    "config.scheduler.instance_id=a": "config.scheduler.instance_id would be the same for all workers",
    "existingConfigMap=mine,config.topic_prefix=a.": "existingConfigMap replaces config",
    "kafka.bootstrapServers=,existingConfigMap=mine,sidecar.inject.policy.enabled=true": (
        "sidecars do not read existingConfigMap: set kafka.bootstrapServers, and kafka.security where it needs a login"
    ),
    "kafka.security.protocol=SASL_SSL": "name the Secret with the login in kafka.security.sasl.existingSecret",
    "kafka.security.tls.keys.cert=a": "kafka.security.tls.keys.cert and key go together",
    "scheduler.terminationGracePeriodSeconds=29": "a worker may need 30 s to finish its transaction",
    "scheduler.terminationGracePeriodSeconds=30,config.scheduler.transaction_timeout_ms=10001": "may need 31 s",
    "scheduler.autoscaling.keda.enabled=true": "to the address of Prometheus",
    "scheduler.replicas=9,scheduler.autoscaling.keda.enabled=true,scheduler.autoscaling.keda.serverAddress=a": (
        "scheduler.autoscaling.keda.maxReplicas is 4, less than scheduler.replicas, which is 9"
    ),
    "scheduler.replicas=0,scheduler.autoscaling.keda.enabled=true,scheduler.autoscaling.keda.serverAddress=a": (
        "workers alone tell what is overdue; set scheduler.replicas to 1 or more"
    ),
    "console.enabled=true": "name the Secret with its token in console.auth.existingSecret",
    "console.ingress.enabled=true": "without the console: set console.enabled",
    f"{CONSOLE},console.auth.oidc.issuer=https://a": "say who may do what in console.auth.access",
    f"{CONSOLE},console.auth.key=,console.auth.tokensKey=a,console.replicas=2": "no key in common that signs forms",
    "console.enabled=true,console.auth.proxy.port=1,console.replicas=2": "no key in common that signs forms",
    f"{CONSOLE},console.auth.oidc.issuer=https://a,console.replicas=2": "no key in common that signs forms",
    f"{CONSOLE},console.ingress.enabled=true": "set console.ingress.host to the console's host name",
    f"{CONSOLE},console.httpRoute.enabled=true": "name its gateways in console.httpRoute.parentRefs",
    f"{CONSOLE},console.port=15084": "console.managementPort is 15084, and so is console.port or console.service.port",
    f"{CONSOLE},console.kafka.sasl.username=a": "Secret with its password in console.kafka.sasl.existingSecret",
    f"{CONSOLE},console.kafka.tls.existingSecret=a": "kafka.security.tls.existingSecret, which is empty",
    "config.console.read_only=true": "additional properties 'console' not allowed",
    "topics.manage=strimziKafkaTopic": "name the Kafka resource in topics.strimzi.cluster",
    "topics.strimzi.kafkaUser.enabled=true": "name the Kafka resource in topics.strimzi.cluster",
    (
        "topics.strimzi.kafkaUser.enabled=true,topics.strimzi.cluster=a,kafka.security.protocol=SSL,"
        "kafka.security.tls.existingSecret=rel-reconsume-scheduler"
    ): "before Strimzi makes the Secret rel-reconsume-scheduler, and that user may not create topics",
    "topics.manage=none,delayLevels=1s": "written by the topics Job, and topics.manage is none",
    "scheduler=null": "at '': missing property 'scheduler'",
    "config=null": "at '': missing property 'config'",
    "topics.job=null": "at '/topics': missing property 'job'",
    "scheduler.resources.limits=2": "at '/scheduler/resources/limits': got number, want null or array or object",
    "fullnameOverride=Foo_Bar": "at '/fullnameOverride': 'Foo_Bar' does not match pattern",
    "nameOverride=My App": "at '/nameOverride': 'My App' does not match pattern",
    "commonLabels.team=7": "at '/commonLabels/team': got number, want null or string",
    "scheduler.podAnnotations.on=true": "at '/scheduler/podAnnotations/on': got boolean, want null or string",
    "scheduler.nodeSelector.ssd=true": "at '/scheduler/nodeSelector/ssd': got boolean, want null or string",
    r"commonLabels.app\.kubernetes\.io/name=a": "commonLabels has app.kubernetes.io/name, by which this chart selects",
    "console.enabled=true,console.auth.proxy.addresses={10.0.0.0/8},console.auth.tokensKey=people": (
        "are keys of a Secret: name it in console.auth.existingSecret"
    ),
    "fullnameOverride=a-name-of-more-than-forty-characters-is-too-long": "maxLength: got 48, want 40",
}

EVERYTHING = (
    f"{CONSOLE},console.httpRoute.enabled=true,console.httpRoute.parentRefs[0].name=a,console.ingress.enabled=true",
    "console.ingress.host=a,metrics.prometheusRule.enabled=true,metrics.serviceMonitor.enabled=true",
    "metrics.podMonitor.enabled=true,metrics.dashboards.enabled=true,sidecar.inject.policy.enabled=true",
    "reconcile.enabled=true,networkPolicy.enabled=true",
)


def test_its_ports_are_those_of_the_commands() -> None:
    values = {".".join(one.path): one.default for one in read_values().leaves()}
    assert {name: values[name] for name in values if re.search(r"(^|[.])(managementPort|port)$", name)} == {
        "scheduler.managementPort": SCHEDULER_MANAGEMENT,
        "sidecar.port": SIDECAR_API,
        "sidecar.managementPort": SIDECAR_MANAGEMENT,
        "console.port": CONSOLE_PAGES,
        "console.managementPort": CONSOLE_MANAGEMENT,
        "console.service.port": CONSOLE_PAGES,
    }


@pytest.mark.parametrize("wrong", REFUSED)
def test_a_wrong_value_is_refused_with_words_that_help(wrong: str) -> None:
    run = helm_template("minimal", *re.split(r",(?=\w+\.|\w+=)", wrong))
    assert run.returncode != 0
    assert REFUSED[wrong] in run.stderr


@pytest.mark.parametrize("allowed", ["global.anything=1", "x-anything.a=1", "sops.mac=1", "enabled=true"])
def test_values_that_others_put_there_are_allowed(allowed: str) -> None:
    assert helm_template("minimal", allowed).returncode == 0


@pytest.mark.parametrize("mode", ["cronjob", "sparkApplication"])
def test_null_is_an_empty_value(mode: str) -> None:
    emptied = [one.path for one in read_values().leaves() if isinstance(one.default, dict | list)]
    needed = [("config",), ("console", "httpRoute", "parentRefs")]
    nulls = [f"{'.'.join(path)}=null" for path in [*emptied, ("image", "digest")] if path not in needed]
    objects = render("minimal", *EVERYTHING, f"reconcile.mode={mode}", *nulls)
    for kind in ("StatefulSet", "Deployment"):
        assert "Probe" not in str(find(objects, kind))
    policy = find(objects, "MutatingAdmissionPolicy")["spec"]["mutations"][0]["jsonPatch"]["expression"]
    assert not re.search(r":\s*[,}]|<nil>", policy)


def test_every_value_is_described() -> None:
    leaves = list(read_values().leaves())
    assert len(leaves) > 100
    assert [one.path for one in leaves if not one.text and one.path[-2] != "sparkImage"] == []


def settings(scenario: str, tmp_path: Path, environment: dict[str, str] | None = None) -> Settings:
    """What a worker of the scenario would read."""
    file = tmp_path / "reconsume.toml"
    file.write_text(find(render(scenario), "ConfigMap", "-settings")["data"]["reconsume.toml"])
    return load_settings(Settings, file, environment or {})


@pytest.mark.parametrize("scenario", [one for one in SCENARIOS if one != "own-settings"])
def test_the_settings_file_is_one(scenario: str, tmp_path: Path) -> None:
    assert settings(scenario, tmp_path).bootstrap_servers != ""


def test_values_reach_the_settings_unchanged(tmp_path: Path) -> None:
    secrets = {"user.name": "me", "user.password": 'p"\n'}
    for name, text in secrets.items():
        (tmp_path / name).write_text(text)
    worker = find(render("sasl"), "StatefulSet")["spec"]["template"]["spec"]
    container = worker["containers"][0]
    environment = {one["name"]: one["value"] for one in container["env"] if one["name"].endswith("_FILE")}
    mounted = {one["name"]: one["mountPath"] for one in container["volumeMounts"]}
    assert {one["secret"]["secretName"] for one in worker["volumes"] if "secret" in one} == {"kafka-user", "cluster-ca"}
    assert mounted["reconsume-sasl"] == "/run/reconsume/sasl"
    here = {name: path.replace(mounted["reconsume-sasl"], str(tmp_path)) for name, path in environment.items()}
    found = settings("sasl", tmp_path, here)
    assert found.client_settings() == {
        "bootstrap.servers": "kafka-0.kafka:9093,kafka-1.kafka:9093",
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "SCRAM-SHA-512",
        "sasl.username": "me",
        "sasl.password": 'p"',
        "ssl.ca.location": "/run/reconsume/tls/ca.crt",
        "socket.keepalive.enable": "true",
        "metadata.max.age.ms": "1000000",
    }
    assert found.topic_prefix == "shop."
    assert found.allowed_real_topics == [r"orders\..*"]
    assert (found.scheduler.transaction_timeout_ms, found.scheduler.max_batch_records) == (15_000, 1_000)
    assert found.topics.retention_days == 3.5


@pytest.mark.parametrize("kind", ["StatefulSet", "MutatingAdmissionPolicy"])
def test_the_ca_and_the_clients_key_may_be_in_two_secrets(kind: str) -> None:
    """Strimzi's Secret of a user has the clients' CA; the one of the brokers' certificates is elsewhere."""
    tls = "kafka.security.tls"
    sets = f"{tls}.existingSecret=user,{tls}.caSecret=brokers-ca,{tls}.keys.cert=user.crt,{tls}.keys.key=user.key"
    pods = str([one for one in render("sidecar", sets) if one["kind"] in (kind, "ConfigMap")])
    assert all(one in pods for one in ("/run/reconsume/ca/ca.crt", "/run/reconsume/tls/user.crt"))
    assert re.findall(r"secretName\W+(user|brokers-ca)\W", pods) == ["user", "brokers-ca"]


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_no_password_is_in_the_objects(scenario: str) -> None:
    assert [one for one in render(scenario) if one["kind"] == "Secret"] == []
    assert "sasl.password" not in str(render(scenario))


def test_pods_are_replaced_when_the_settings_change() -> None:
    def checksum(*sets: str) -> Any:
        worker = find(render("minimal", *sets), "StatefulSet")
        return worker["spec"]["template"]["metadata"]["annotations"]["checksum/config"]

    assert checksum() == checksum("scheduler.replicas=3")
    assert checksum() != checksum("kafka.bootstrapServers=other:9092")


@pytest.mark.parametrize(("timeout", "grace"), [(10_000, 30), (15_000, 35), (1_000, 21)])
def test_the_grace_period_covers_a_transaction(timeout: int, grace: int) -> None:
    worker = find(render("minimal", f"config.scheduler.transaction_timeout_ms={timeout}"), "StatefulSet")
    assert worker["spec"]["template"]["spec"]["terminationGracePeriodSeconds"] == grace


def test_workers_have_different_instance_ids_that_fit() -> None:
    worker = find(render("full"), "StatefulSet")
    arguments = worker["spec"]["template"]["spec"]["containers"][0]["args"]
    assert "--instance-id=eu-$(POD_NAMESPACE).$(POD_NAME)" in arguments
    too_long = helm_template("minimal", "scheduler.instanceIdPrefix=12345678901234567890")
    assert too_long.returncode == 0


@pytest.mark.parametrize(
    ("values", "budget"),
    [((), True), (("scheduler.replicas=1",), False), (("scheduler.pdb.enabled=false",), False)],
)
def test_a_disruption_budget_only_for_several_workers(values: tuple[str, ...], budget: bool) -> None:
    kinds = [one["kind"] for one in render("minimal", *values)]
    assert ("PodDisruptionBudget" in kinds) == budget


def test_keda_scales_on_overdue_and_leaves_the_number_of_workers_to_it() -> None:
    objects = render("full")
    assert "replicas" not in find(objects, "StatefulSet")["spec"]
    scaled = find(objects, "ScaledObject")["spec"]
    assert (scaled["minReplicaCount"], scaled["maxReplicaCount"]) == (3, 8)
    assert "cooldownPeriod" not in scaled, "KEDA reads it only where it scales to zero"
    behavior = scaled["advanced"]["horizontalPodAutoscalerConfig"]["behavior"]
    assert behavior == {"scaleDown": {"stabilizationWindowSeconds": 300}}
    query = scaled["triggers"][0]["metadata"]["query"]
    assert 'reconsume_scheduler_overdue_seconds{namespace="ns",release="rel"}' in query
    assert "reconsume_scheduler_overdue_seconds" in {one.name for one in CATALOGUE}
    assert "lag" not in yaml.dump(scaled)


class Cluster(KafkaAdmin):
    """Three brokers with their defaults, as topics are planned for them."""

    def __init__(self) -> None:
        """No connection."""

    def facts(self) -> Any:
        from reconsume.bridge.kafka.admin import ClusterFacts  # noqa: PLC0415 - next to its only use

        return ClusterFacts(brokers=3, default_replication_factor=3, message_max_bytes=1_048_588)


@pytest.mark.parametrize("levels", ["", "1s 60s 1m 90s 24h 2d", "10d", "30d 10d 20d"])
def test_strimzi_makes_the_topics_that_reconsume_would_make(levels: str) -> None:
    topics = [one for one in render("strimzi", f"delayLevels={levels}") if one["kind"] == "KafkaTopic"]
    made = {
        one["spec"]["topicName"]: (one["spec"]["partitions"], one["spec"]["replicas"], one["spec"]["config"])
        for one in topics
    }
    groups = Groups(own_table=DelayLevels.parse(levels)) if levels else Groups()
    wanted = wanted_topics(TopicMaker(Cluster(), TopicNames(), TopicSettings(), lambda: groups), groups)
    assert made.keys() == {one.name for one in wanted}
    for one in wanted:
        partitions, replicas, config = made[one.name]
        assert (partitions, replicas) == (one.partitions, one.replication_factor), one.name
        assert {name: str(value) for name, value in config.items()} == dict(one.settings), one.name


@pytest.mark.parametrize(
    ("user", "roles", "values"),
    [
        ("scheduler", [Role.SCHEDULER], ()),
        ("scheduler", [Role.SCHEDULER, Role.SPARK], ("reconcile.enabled=true",)),
        ("console", [Role.RESENDER], (CONSOLE,)),
        ("console", [Role.CONSOLE], (CONSOLE, "console.readOnly=true")),
    ],
)
@pytest.mark.parametrize("prefix", ["reconsume.", "shop."])
def test_strimzi_gives_each_user_the_rights_of_its_roles(
    prefix: str, user: str, roles: list[Role], values: tuple[str, ...]
) -> None:
    allowed = ["shop-orders", r"eu\..*", r"a\-b", "a.b", "flights|gates", r"a\.*", ".*"]
    sets = (
        f"config.topic_prefix={prefix}",
        f"config.allowed_real_topics={{{','.join(allowed)}}}".replace("\\", "\\\\"),
    )
    made = find(render("strimzi", *sets, *values), "KafkaUser", f"-{user}")
    granted = {
        (
            one["resource"]["type"].lower(),
            one["resource"].get("name", "kafka-cluster"),
            one["resource"].get("patternType") == "prefix",
            frozenset(one["operations"]),
        )
        for one in made["spec"]["authorization"]["acls"]
    }
    needed = {
        (one.resource.replace("-", ""), one.name or "kafka-cluster", one.prefixed, frozenset(one.operations))
        for role in roles
        for one in rights_of(role, TopicNames(prefix), allowed_real_topics=allowed)
    }
    assert granted == needed


def test_the_topics_job_runs_before_workers() -> None:
    job = find(render("minimal"), "Job", "-topics")
    assert job["metadata"]["annotations"]["helm.sh/hook"] == "pre-install,pre-upgrade"
    spec = job["spec"]["template"]["spec"]
    assert [one["args"] for one in spec["containers"]] == [["topics", "apply", "--yes"]]
    used = find(render("minimal"), "ConfigMap", "-topics")["metadata"]
    assert used["annotations"]["helm.sh/hook-weight"] == "-5"
    assert {"name": "settings", "configMap": {"name": used["name"]}} in spec["volumes"]


@pytest.mark.parametrize("scenario", ["full", "groups"])
def test_the_topics_job_writes_level_table_and_groups(scenario: str) -> None:
    spec = find(render(scenario), "Job", "-topics")["spec"]["template"]["spec"]
    (container,) = spec["containers"]
    assert container["args"] == ["groups", "apply", "--file=/etc/reconsume-groups/groups.yaml", "--yes"]
    mounts = {one["name"]: one["mountPath"] for one in container["volumeMounts"]}
    assert mounts == mounts | {"groups": "/etc/reconsume-groups", "settings": "/etc/reconsume"}
    assert {one["name"] for one in spec["volumes"]} >= mounts.keys()


def test_the_groups_file_is_one() -> None:
    text = find(render("groups"), "ConfigMap", "-topics")["data"]["groups.yaml"]
    found = parse_groups_file(yaml.safe_load(text))
    assert found.system == {"messageDelayLevel": "1s 10s 1m"}
    assert {name: (one.retry_max_times, one.retry_queue_nums) for name, one in found.groups.items()} == {
        "departures": (3, 1),
        "shop%arrivals": (10, 4),
    }
