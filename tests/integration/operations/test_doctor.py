"""The doctor finds each misconfiguration that is planted on a real Kafka, and names what fixes it."""

from __future__ import annotations

import json
import os
import pickle
import re
import shlex
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, ResourceType

from reconsume.bridge.groups.groups import Groups, SubscriptionGroupConfig, SystemConfig
from reconsume.bridge.groups.groups_store import read_groups, write_group, write_system
from reconsume.bridge.kafka.client_settings import transactional_settings
from reconsume.bridge.kafka.clients import close_producer, make_producer
from reconsume.bridge.kafka.cluster import Cluster
from reconsume.bridge.process.clock import Clock, now_ms
from reconsume.bridge.process.settings import Settings, TopicSettings
from reconsume.bridge.topics.topics import TopicMaker
from reconsume.bridge.writing.exclusive_writer import ExclusiveWriter
from reconsume.bridge.writing.new_record import NewRecord
from reconsume.cli.actions.doctor import run_doctor
from reconsume.operations.doctor.inspection import InspectedCluster
from reconsume.operations.doctor.report import Finding, Report
from reconsume.operations.doctor.run import examine
from reconsume.operations.rights import Right, Role, rights_of
from tests.integration.installation import LEVELS, Installation, scheduler, settings_for
from tests.support.brokers.kafka import local_kafka
from tests.support.brokers.kafka_tools import run_kafka_tool
from tests.support.brokers.secure_kafka import SecureKafka, secure_kafka
from tests.support.docs.pages import blocks
from tests.support.waiting import PATIENCE, wait_until

pytestmark = [pytest.mark.kafka, pytest.mark.early(4), pytest.mark.more]


@pytest.fixture(scope="module")
def kafka() -> Iterator[SecureKafka]:
    with secure_kafka() as one:
        yield one


@dataclass
class Ward:
    """An installation of its own, and what the doctor is given."""

    kafka: SecureKafka
    here: Installation
    settings: Settings
    clock: Clock = now_ms
    works: bool = True

    def examine(self, *, send_record: bool = False) -> Report:
        """All but the warning that the only broker of a Kafka 4 is due wherever it may be looked at."""
        rights = rights_of(Role.SCHEDULER, self.here.settings.names)
        report = examine(Cluster(self.settings, self.clock), "scheduler", lambda _: rights, send_record=send_record)
        report.findings = [one for one in report.findings if one.check != "coordinators"]
        return report

    def configure(self, topic: str, name: str, value: str) -> None:
        change = ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET)
        resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=[change])
        self.kafka.operator().incremental_alter_configs([resource])[resource].result(PATIENCE)

    def delete(self, topic: str) -> None:
        self.kafka.operator().delete_topics([topic])[topic].result(PATIENCE)

    def connect(self, bootstrap_servers: str, **conf: str) -> None:
        secrets = Settings(kafka={key.replace("_", "."): value for key, value in conf.items()}).kafka
        self.settings = self.settings.model_copy(update={"bootstrap_servers": bootstrap_servers, "kafka": secrets})

    def as_user(self, rights: Sequence[Right]) -> None:
        conf = self.kafka.user(f"u-{self.here.settings.topic_prefix}", "secret")
        self.kafka.grant(f"u-{self.here.settings.topic_prefix}", list(rights))
        self.settings = self.settings.model_copy(
            update={"bootstrap_servers": self.kafka.secure_bootstrap_servers, "kafka": Settings(kafka=conf).kafka}
        )


@pytest.fixture
def ward(kafka: SecureKafka) -> Ward:
    here = Installation(settings_for(kafka.bootstrap_servers))
    return Ward(kafka, here, here.settings)


@contextmanager
def installed(ward: Ward) -> Iterator[None]:
    """As `topics apply` makes it, with a worker."""
    maker = TopicMaker(ward.here.admin, ward.here.settings.names, ward.here.settings.topics)
    maker.make(maker.groups_topic())
    write_system(ward.here.cluster, SystemConfig(message_delay_level=LEVELS))
    ward.here.make_topics()
    with scheduler(ward.here.settings):
        inspector = InspectedCluster(ward.here.settings).admin
        group = f"{ward.here.settings.topic_prefix}scheduler"
        wait_until(lambda: inspector.members(group), "the worker is a member")
        yield


def nobody_listens(ward: Ward) -> None:
    ward.connect("127.0.0.1:1")


def wrong_password(ward: Ward) -> None:
    ward.as_user([])
    ward.connect(
        ward.kafka.secure_bootstrap_servers,
        security_protocol="SASL_SSL",
        ssl_ca_location=str(ward.kafka.certificate),
        sasl_mechanism="SCRAM-SHA-512",
        sasl_username=f"u-{ward.here.settings.topic_prefix}",
        sasl_password="wrong",
    )


def no_tls(ward: Ward) -> None:
    ward.connect(ward.kafka.secure_bootstrap_servers)


def unknown_authority(ward: Ward) -> None:
    ward.connect(ward.kafka.secure_bootstrap_servers, security_protocol="SSL")


def missing_topic(ward: Ward) -> None:
    """When the worker has begun: without its topics it does not."""
    admin, group = AdminClient(ward.here.settings.client_settings()), ward.here.settings.topic_prefix + "scheduler"

    def has_members() -> bool:
        try:
            return bool(admin.describe_consumer_groups([group])[group].result().members)
        except KafkaException:
            return False  # its coordinator has not begun either

    wait_until(has_members, "the worker has joined")
    ward.delete(ward.here.settings.names.cancel)


def level_without_topic(ward: Ward) -> None:
    write_system(ward.here.cluster, SystemConfig(message_delay_level=f"{LEVELS} 7m"))


def clock_of_producers(ward: Ward) -> None:
    ward.configure(ward.here.settings.names.delay(1_000), "message.timestamp.type", "CreateTime")


def groups_not_compacted(ward: Ward) -> None:
    ward.configure(ward.here.settings.names.groups, "cleanup.policy", "delete")


def short_retention(ward: Ward) -> None:
    ward.configure(ward.here.settings.names.delay(0), "retention.ms", "60000")


def no_room_for_headers(ward: Ward) -> None:
    ward.configure(ward.here.settings.names.delay(2_000), "max.message.bytes", "100000")


def too_many_replicas_wanted(ward: Ward) -> None:
    ward.configure(ward.here.settings.names.send_back, "min.insync.replicas", "2")


def topics_of(ward: Ward, group: str) -> None:
    """As a scheduler makes them with the defaults."""
    maker = TopicMaker(ward.here.admin, ward.here.settings.names, ward.here.settings.topics)
    for wanted in (maker.retry_topic(group, Groups()), maker.dead_letter_topic(group)):
        maker.make(wanted)


def few_partitions(ward: Ward) -> None:
    topics_of(ward, "wide")
    write_group(ward.here.cluster, SubscriptionGroupConfig(group_name="wide", retry_queue_nums=3))


def no_bulk_partitions(ward: Ward) -> None:
    system = read_groups(ward.here.cluster).system
    write_system(ward.here.cluster, system.publishing(TopicSettings(delay_partitions=1, bulk_partitions=2)))


def unreadable_group(ward: Ward) -> None:
    ward.here.produce(ward.here.settings.names.groups, b"{not json", key=b"broken")


def group_without_retries(ward: Ward) -> None:
    topics_of(ward, "none")
    write_group(ward.here.cluster, SubscriptionGroupConfig(group_name="none", retry_queue_nums=0))


def strange_topic(ward: Ward) -> None:
    ward.here.admin.create(f"{ward.here.settings.topic_prefix}DELAY.60s", 1, -1, {})


def no_worker(ward: Ward) -> None:
    ward.works = False


def a_right_less(ward: Ward) -> None:
    names = ward.here.settings.names
    rights = rights_of(Role.SCHEDULER, names)
    ward.as_user([one for one in rights if (one.resource, one.name) != ("topic", names.cancel)])


def no_transactions(ward: Ward) -> None:
    rights = rights_of(Role.SCHEDULER, ward.here.settings.names)
    ward.as_user([right for right in rights if right.resource != "transactional-id"])


Planted = tuple[Callable[[Ward], None], str, str]
"""What plants it, what the doctor says, what mends it."""
UNCONNECTED: dict[str, Planted] = {
    "nobody listens": (nobody_listens, "no connection to 127.0.0.1:1", "nc -vz 127.0.0.1 1; .*--bootstrap-servers"),
    "wrong password": (wrong_password, "does not accept user 'u-", "RECONSUME_KAFKA_SASL_PASSWORD_FILE"),
    "no TLS": (no_tls, "no connection to", "security.protocol=SASL_SSL"),
    "unknown authority": (unknown_authority, "no TLS connection", "ssl.ca.location"),
}
TOGETHER: list[Planted] = [
    (
        clock_of_producers,
        r"DELAY\.1s: message.timestamp.type is CreateTime",
        r"kafka-configs.sh --bootstrap-server \S+ --alter .*1s --add-config message.timestamp.type=LogAppendTime",
    ),
    (
        groups_not_compacted,
        "GROUPS: cleanup.policy is delete",
        r"kafka-configs.sh .*GROUPS --add-config cleanup.policy=compact",
    ),
    (short_retention, r"DELAY\.0s: retention.ms is 60000", r"0s --add-config retention.ms=604800000"),
    (no_room_for_headers, r"DELAY\.2s: max.message.bytes is 100000", r"2s --add-config max.message.bytes=1114"),
    (
        too_many_replicas_wanted,
        "min.insync.replicas is 2, it has 1 replicas, so brokers before Kafka 3.7 refuse all writes",
        "SEND_BACK --add-config min.insync.replicas=1",
    ),
    (few_partitions, "partitions is 1, it should be 3", r"kafka-topics.sh .*RETRY.wide --partitions 3"),
    (unreadable_group, "group 'broken': the value is not JSON", "reconsume groups set broken"),
    (group_without_retries, "group none: retryQueueNums is 0", "groups set none --retry-queue-nums 1"),
]
ALONE: dict[str, Planted] = {
    "missing topic": (missing_topic, r"CANCEL is missing", "reconsume topics apply"),
    "level without topic": (level_without_topic, r"DELAY\.7m is missing", "reconsume topics apply"),
    "no bulk partitions": (
        no_bulk_partitions,
        r"DELAY.\w+ has 1 partition of 3, and \d+ other topics lack some too",
        "reconsume topics apply",
    ),
    "strange topic": (strange_topic, r"DELAY\.60s' is not a delay topic", r"kafka-topics.sh .*--delete --topic \S+60s"),
    "no worker": (no_worker, "no scheduler worker is a member", "reconsume scheduler --bootstrap-servers 127"),
    "a right less": (
        a_right_less,
        "role scheduler may not Read on topic .*CANCEL",
        "kafka-acls.sh .*--add --allow-principal User:u-.*--operation Read --topic .*CANCEL",
    ),
    "no transactions": (
        no_transactions,
        "may not Write on transactional-id .*scheduler-",
        "kafka-acls.sh .*--operation Write --transactional-id .* --resource-pattern-type prefixed",
    ),
}


def assert_found(found: Sequence[Finding], *planted: Planted) -> None:
    """Each thing that is planted has a finding, and each finding is of one of them and names its mending."""
    # Topics that are planted appear to the worker a little later.
    found = [one for one in found if "have no worker" not in one.what]
    for _, what, _ in planted:
        assert any(re.search(what, one.what) for one in found), (what, found)
    for one in found:
        assert any(re.search(what, one.what) and re.search(mend, one.mend) for _, what, mend in planted), one


@pytest.mark.parametrize("name", UNCONNECTED)
def test_what_keeps_it_from_kafka_is_found_and_its_mending_named(ward: Ward, name: str) -> None:
    plant, *_ = UNCONNECTED[name]
    plant(ward)
    assert_found(ward.examine().findings, UNCONNECTED[name])


@pytest.mark.parametrize("name", ALONE)
def test_what_is_planted_is_found_and_its_mending_named(ward: Ward, name: str) -> None:
    plant, *_ = ALONE[name]
    with installed(ward):
        plant(ward)
        if ward.works:
            found = ward.examine().findings
    if not ward.works:
        found = ward.examine().findings
    assert_found(found, ALONE[name])


def test_things_that_are_planted_together_are_all_found(ward: Ward) -> None:
    with installed(ward):
        for plant, *_ in TOGETHER:
            plant(ward)
        assert_found(ward.examine().findings, *TOGETHER)


def test_a_clean_installation_has_no_finding_and_a_record_comes_through(ward: Ward) -> None:
    with installed(ward):
        ward.as_user(rights_of(Role.SCHEDULER, ward.here.settings.names))
        report = ward.examine(send_record=True)
    assert report.findings == []
    for part in ("connection", "versions", "rights", "groups", "workers", "record", "clock"):
        assert any(line.startswith(part) for line in report.passed), (part, report)


def test_the_rights_of_a_resender_are_enough_and_looking_at_them_stops_no_resender(ward: Ward) -> None:
    rights = rights_of(Role.RESENDER, ward.here.settings.names)
    with installed(ward), ExclusiveWriter(ward.here.cluster, f"{ward.here.settings.topic_prefix}groups", "") as writer:
        writer.take_over()
        ward.as_user(rights)
        told = examine(Cluster(ward.settings), "resender", lambda _: rights, send_record=False)
        assert [one for one in told.findings if one.check == "rights"] == []
        writer.write_records([NewRecord(ward.here.settings.names.groups, b"{}", b"g", 0)])


def test_a_member_of_a_group_with_a_limit_should_see_its_parked_records(
    ward: Ward, capsys: pytest.CaptureFixture[str]
) -> None:
    names = ward.here.settings.names
    with installed(ward):
        ward.here.admin.create(names.parked("full"), 1, -1, {})
        ward.as_user(rights_of(Role.CONSUMER, names, group="full", topics=[]))
        told = []
        for limit in (None, 5):
            ward.here.write_groups([SubscriptionGroupConfig(group_name="full", max_waiting=limit)])
            run_doctor(Cluster(ward.settings), "consumer", group="full", topics=[], send_record=False, as_json=True)
            findings = json.loads(capsys.readouterr().out)["findings"]
            told.append([one["what"] for one in findings if one["check"] == "rights"])
    assert told[0] == []
    assert [what.partition(" (")[0] for what in told[1]] == [
        f"role consumer may not Describe on topic {names.parked('full')}",
        f"role consumer may not Describe on group {names.scheduler_group}",
    ]


@pytest.mark.parametrize(("ahead_ms", "said"), [(5_000, "behind.*at_least_once.*early"), (-5_000, "ahead of.*late")])
def test_a_machines_clock_that_is_wrong_is_found(ward: Ward, ahead_ms: int, said: str) -> None:
    ward.clock = lambda: now_ms() + ahead_ms
    with installed(ward):
        (found,) = ward.examine(send_record=True).findings
    assert (found.check, found.weight) == ("clock", "warning")
    assert re.search(said, found.what)
    assert "chronyc tracking" in found.mend


def test_an_open_transaction_is_found_and_the_page_that_is_named_saves_its_records(
    ward: Ward, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """As Kafka 4.2 and 4.3 leave one where a broker was lost (KAFKA-20734)."""
    topic, servers = ward.here.settings.names.delay(1_000), ward.here.settings.bootstrap_servers
    with installed(ward):
        settings = transactional_settings(ward.here.settings.client_settings(), f"{topic}.forgotten", 600_000)
        producer = make_producer(settings)
        producer.init_transactions()
        producer.begin_transaction()
        producer.produce(topic, b"in an open transaction", b"key", partition=0, headers=[("a", b"1"), ("b", None)])
        producer.flush()
        ward.here.produce(topic, b"behind it", partition=0)

        def findings() -> list[Finding]:
            """By a clock that is ahead, a worker's own transactions seem old too."""
            found = ward.examine().findings
            return [one for one in found if one.check == "transactions" and f"in {topic}-0" in one.what]

        assert findings() == [], "it is young"
        ward.clock = lambda: now_ms() + 120_000
        (found,) = findings()
        assert found.weight == "problem"
        assert f"in {topic}-0 has been open for over 60 s, since offset 0" in found.what
        told, _, command = found.mend.partition("kafka-transactions.sh ")
        assert "docs/reliability.md#an-open-transaction" in told
        assert re.search(r"\s0\s*$", run_kafka_tool("TransactionsCommand", *shlex.split(command)), re.MULTILINE)

        def abort_and_refuse(asked: str) -> str:
            assert asked.startswith("2 records are saved")
            options = f"--bootstrap-server {servers} abort --topic {topic} --partition 0 --start-offset 0"
            run_kafka_tool("TransactionsCommand", *options.split())
            ward.configure(topic, "max.message.bytes", "10")
            return ""

        user = f"rescue-{ward.here.settings.topic_prefix}"
        login = {"bootstrap.servers": ward.kafka.secure_bootstrap_servers, **ward.kafka.user(user, "secret")}
        rights = Right("topic", topic, ("Read", "Write"), ""), Right("group", "reconsume-rescue", ("Describe",), "")
        ward.kafka.grant(user, list(rights))
        (program,) = (one for one in blocks("docs/reliability.md", "python") if "read_uncommitted" in one)
        program = program.replace('{"bootstrap.servers": "127.0.0.1:9092"}', repr(login))
        program = program.replace("reconsume.DELAY.10s", topic)
        monkeypatch.chdir(tmp_path)
        monkeypatch.setattr("builtins.input", abort_and_refuse)
        with pytest.raises(SystemExit, match=r"not all were written .*size too large.* all are in"):
            exec(compile(program, "docs/reliability.md", "exec"), {})  # noqa: S102
        (saved,) = tmp_path.iterdir()
        assert [value for value, _, _ in pickle.loads(saved.read_bytes()).values()] == [  # noqa: S301
            *(b"in an open transaction", b"behind it"),
        ]
        ward.configure(topic, "max.message.bytes", "1000000")
        monkeypatch.setattr("builtins.input", lambda _: "")
        exec(compile(program, "docs/reliability.md", "exec"), {})  # noqa: S102
        assert findings() == []
        assert [one.value for one in ward.here.read(topic)] == [b"behind it", b"in an open transaction"]
    close_producer(producer)


def test_a_broker_that_gives_an_address_where_nobody_is(ward: Ward) -> None:
    with local_kafka(properties={"advertised.listeners": "PLAINTEXT://127.0.0.1:1"}) as kafka:
        ward.connect(kafka.bootstrap_servers)
        (found,) = ward.examine().findings
    assert "a broker is at 127.0.0.1:1" in found.what
    assert "advertised.listeners" in found.mend


def test_the_command_prints_json_and_its_exit_code_tells(ward: Ward) -> None:
    def doctor(*arguments: str) -> tuple[int, dict[str, Any]]:
        settings = ward.here.settings
        ran = subprocess.run(
            [sys.executable, "-m", "reconsume", "doctor", "-o", "json", *arguments],
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
            env=os.environ
            | {
                "RECONSUME_TOPIC_PREFIX": settings.topic_prefix,
                "RECONSUME_BOOTSTRAP_SERVERS": settings.bootstrap_servers,
                "RECONSUME_TOPICS__DELAY_PARTITIONS": "1",
                "RECONSUME_TOPICS__BULK_PARTITIONS": "0",
            },
        )
        assert not re.search(r"Traceback|\[thrd:", ran.stderr), ran.stderr
        return ran.returncode, json.loads(ran.stdout)

    with installed(ward):
        code, said = doctor()
        (found,) = said["findings"]
        assert (code, said["healthy"], found["check"], found["weight"]) == (0, True, "coordinators", "warning")
        assert "__consumer_offsets has one replica" in found["what"]
        assert "offsets.topic.replication.factor=3" in found["mend"]
    code, said = doctor("--no-send-record")
    assert (code, said["healthy"]) == (1, False)
