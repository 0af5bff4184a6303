"""Topics that are made while one of three brokers is away, where Kafka's default is one replica."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, ResourceType

from reconsume.bridge.groups.groups import Groups
from reconsume.bridge.groups.groups_store import read_groups, write_allowed_topics
from reconsume.bridge.kafka.cluster import Cluster
from reconsume.bridge.topics.topics import TopicMaker, wanted_topics
from reconsume.cli.chaos.cluster.brokers import ChaosCluster
from reconsume.cli.commands.topics import make_plan, make_topics
from reconsume.cli.common import Here
from reconsume.delay_levels.errors import TopicNotReady
from reconsume.operations.doctor.inspection import InspectedCluster
from reconsume.operations.doctor.installation import check_topics, check_transactions
from reconsume.operations.doctor.report import Report
from tests.integration.installation import Installation, settings_for
from tests.support.brokers.kafka_tools import run_kafka_tool
from tests.support.docs.pages import blocks
from tests.support.waiting import PATIENCE, wait_until

pytestmark = [pytest.mark.kafka, pytest.mark.more]


@pytest.fixture(scope="module")
def three() -> Iterator[ChaosCluster]:
    cluster = ChaosCluster(3)
    for broker in cluster.brokers:
        for name in ("default.replication.factor", "min.insync.replicas", "offsets.topic.replication.factor"):
            broker.kafka._properties[name] = "1"
    with cluster:
        yield cluster


def look(here: Installation) -> Any:
    return AdminClient(here.settings.client_settings()).list_topics(timeout=10)


def replicas(here: Installation) -> dict[str, set[int]]:
    """The numbers of replicas in sync of each topic's partitions."""
    topics, ours = look(here).topics.items(), here.settings.topic_prefix
    return {name: {len(part.isrs) for part in one.partitions.values()} for name, one in topics if name.startswith(ours)}


def leaderless(here: Installation, topic: str) -> list[int]:
    return [number for number, one in look(here).topics[topic].partitions.items() if one.leader == -1]


def planned(here: Installation) -> dict[str, set[str]]:
    """What the plan says of each topic."""
    found: dict[str, set[str]] = {}
    for one in make_plan(here.cluster).topics.differences:
        found.setdefault(one.topic, set()).add(f"{one.setting} is {one.is_now}, it should be {one.should_be}")
    return found


def examined(here: Installation) -> dict[str, set[str]]:
    """What the doctor says of each topic."""
    report, found = Report(), dict[str, set[str]]()
    for check in (check_topics, check_transactions):
        check(InspectedCluster(here.settings), read_groups(here.cluster), report)
    for one in report.findings:
        topic, _, what = one.what.removeprefix("topic ").partition(": ")
        found.setdefault(topic, set()).add(what)
    return found


def wait_until_both_say(here: Installation, what: dict[str, set[str]]) -> None:
    """Brokers hear of a change one after the other; of a topic that one of three does not know yet there is no plan."""

    def both_say() -> bool:
        with suppress(TopicNotReady):
            return planned(here) == examined(here) == what
        return False

    wait_until(both_say, f"plan and doctor say {what}")


def configure(here: Installation, topic: str, name: str, value: str) -> None:
    change = ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=[change])
    client = AdminClient(here.settings.client_settings())
    client.incremental_alter_configs([resource])[resource].result(PATIENCE)


def test_a_topic_has_three_replicas_or_as_many_as_can_be_and_plan_and_doctor_say_so(three: ChaosCluster) -> None:
    here, away = Installation(settings_for(three.direct)), three.brokers[2].kafka
    flights, gates = here.unique("flights"), here.unique("gates")
    here.admin.create(flights, 3, 1, {})  # one of the partitions is on the broker that leaves
    here.admin.create(gates, 1, 3, {"min.insync.replicas": "3"})
    away.shut_down()
    try:
        wait_until(lambda: len(look(here).brokers) == 2, "a broker is away")
        here.make_topics()
        here.write_groups()
        wait_until_both_say(here, {})
        assert {len(part.replicas) for part in look(here).topics[here.settings.names.groups].partitions.values()} == {3}
        run_kafka_tool("ClusterTool", "unregister", "--bootstrap-server", three.direct, "--id", "3")
        names = here.settings.names
        maker = TopicMaker(here.admin, names, here.settings.topics)
        here.delete(names.cancel)
        maker.make(maker.cancel_topic())
        here.produce(names.cancel, b"a record that waits for no broker")
        assert here.admin.settings([names.cancel])[names.cancel]["min.insync.replicas"] == "1"
        wait_until_both_say(here, {names.cancel: {"replicas is 2, it should be 3"}})
        write_allowed_topics(Cluster(here.settings.model_copy(update={"allowed_real_topics": [flights, gates]})))
        wait_until(lambda: gates in examined(here), "the doctor knows the topics of delayed messages")
        assert examined(here).pop(gates) == {"2 of 3 replicas are in sync, 3 are needed to write"}
        (lost,) = (f"1 partition has no leader, such as {flights}-{one}" for one in leaderless(here, flights))
        assert lost in examined(here)
    finally:
        away.start()
    wait_until(lambda: len(look(here).brokers) == 3, "the broker is back")
    maker.make(maker.retry_topic("departures", Groups()))
    wait_until(lambda: replicas(here).get(names.retry("departures")) == {3}, "a replica on each broker")


def test_plan_and_doctor_name_missing_replicas_then_the_setting_and_then_nothing(
    three: ChaosCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    here = Installation(settings_for(three.direct))
    names, single = here.settings.names, here.settings.topics.model_copy(update={"replication_factor": 1})
    Installation(here.settings.model_copy(update={"topics": single})).make_topics()
    here.write_groups()
    groups = read_groups(here.cluster)
    maker = TopicMaker(here.admin, names, here.settings.topics, lambda: groups)
    topics = {one.name for one in wanted_topics(maker, groups)}
    wait_until_both_say(here, {topic: {"replicas is 1, it should be 3"} for topic in topics})

    configure(here, names.send_back, "min.insync.replicas", "2")  # as a plan of an earlier version said
    problem = "min.insync.replicas is 2, it has 1 replicas, so brokers before Kafka 3.7 refuse all writes"
    wait_until(lambda: problem in str(examined(here)[names.send_back]), "the doctor names it")
    assert planned(here)[names.send_back] == {"replicas is 1, it should be 3"}

    make_topics(Here(here.cluster, as_json=False), yes=True)
    assert f"differs: {names.groups}: replicas is 1, should be 3\n" in capsys.readouterr().out
    monkeypatch.chdir(tmp_path)
    (program,) = (one for one in blocks("docs/operate.md", "python") if "replicas.json" in one)
    program = program.replace("127.0.0.1:9092", three.direct).replace("reconsume.", here.settings.topic_prefix)
    exec(compile(program, "docs/operate.md", "exec"), {})  # noqa: S102
    remedies = {one.remedy(three.direct).partition("then: ")[2] for one in make_plan(here.cluster).topics.differences}
    (remedy,) = remedies
    command, *options = shlex.split(remedy)
    assert command == "kafka-reassign-partitions.sh"
    run_kafka_tool("org.apache.kafka.tools.reassign.ReassignPartitionsCommand", *options)
    wait_until(lambda: all(found == {3} for found in replicas(here).values()), "the replicas are in sync")
    others = topics - {names.send_back}
    wait_until_both_say(here, {topic: {"min.insync.replicas is 1, it should be 2"} for topic in others})

    for one in make_plan(here.cluster).topics.differences:
        assert one.remedy(three.direct).endswith(f"--entity-name {one.topic} --add-config min.insync.replicas=2")
        configure(here, one.topic, one.setting, one.should_be)
    wait_until_both_say(here, {})
