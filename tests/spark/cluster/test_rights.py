"""`reconsume reconcile` and `replay` with the rights of their roles (TLS, SCRAM, ACLs), and with one less."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from reconsume.operations.rights import Right, Role, rights_of
from tests.integration.installation import Installation, scheduler, settings_for
from tests.spark.few_records import FEW_RECORDS
from tests.support.brokers.secure_kafka import SecureKafka, secure_kafka
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.kafka, pytest.mark.more, pytest.mark.early(4)]

SECRET = "open-sesame-2208"


@pytest.fixture(scope="module")
def kafka() -> Iterator[SecureKafka]:
    with secure_kafka() as one:
        yield one


@pytest.fixture(scope="module")
def lived_once(kafka: SecureKafka) -> Installation:
    """One message was sent back and came."""
    one = Installation(settings_for(kafka.bootstrap_servers))
    one.make_topics()
    one.write_groups()
    group = one.name("g")
    back = [("REAL_TOPIC", f"%RETRY%{group}".encode()), ("ORIGIN_MESSAGE_ID", b"flights/0/1")]
    with scheduler(one.settings):
        one.produce(one.settings.names.send_back, b"v", headers=back)
        wait_until(lambda: one.retries(group), "the retry")
    return one


def ran(kafka: SecureKafka, one: Installation, rights: list[Right], *arguments: str) -> tuple[int, str, str]:
    conf = kafka.user("spark", SECRET)
    kafka.grant("spark", rights)
    variables = {f"RECONSUME_KAFKA_{name.upper().replace('.', '_')}": value for name, value in conf.items()}
    done = subprocess.run(
        [
            *(sys.executable, "-m", "reconsume", *arguments, "-o", "json"),
            *("--master", "local[1]"),
            *(word for name, value in FEW_RECORDS.items() for word in ("--spark-option", f"{name}={value}")),
        ],
        capture_output=True,
        text=True,
        timeout=800,
        check=False,
        env=os.environ
        | variables
        | {
            "RECONSUME_BOOTSTRAP_SERVERS": kafka.secure_bootstrap_servers,
            "RECONSUME_TOPIC_PREFIX": one.settings.topic_prefix,
        },
    )
    assert SECRET not in done.stdout + done.stderr
    return done.returncode, done.stdout, done.stderr


def test_it_runs_with_the_rights_that_are_printed(kafka: SecureKafka, lived_once: Installation) -> None:
    code, out, err = ran(kafka, lived_once, rights_of(Role.SPARK, lived_once.settings.names), "reconcile")
    assert code == 0, err
    assert json.loads(out)["moved"] == 1


@pytest.mark.parametrize(("resource", "said"), [("topic", "has no topics"), ("group", "the consumer group")])
def test_it_fails_with_one_less(kafka: SecureKafka, lived_once: Installation, resource: str, said: str) -> None:
    rights = rights_of(Role.SPARK, lived_once.settings.names)
    code, _, err = ran(kafka, lived_once, [right for right in rights if right.resource != resource], "reconcile")
    assert code == 2
    assert said in err


@pytest.mark.parametrize("to", ["retry", pytest.param("origin", marks=pytest.mark.long)])
def test_replay_writes_where_its_role_may_and_nowhere_else(
    kafka: SecureKafka, lived_once: Installation, tmp_path: Path, to: str
) -> None:
    one = lived_once
    group = one.unique("dead")
    topic = one.settings.names.dead_letter(group)
    one.admin.create(topic, 1, -1, {"message.timestamp.type": "LogAppendTime"})
    one.produce(
        topic,
        b"v",
        headers=[
            ("RETRY_TOPIC", b"flights"),
            ("ORIGIN_MESSAGE_ID", f"flights/0/{to}".encode()),
            ("RECONSUME_TIME", b"17"),
            ("REAL_TOPIC", f"%DLQ%{group}".encode()),
        ],
    )
    one.admin.create("flights", 1, -1, {})
    rights = rights_of(Role.REPLAY, one.settings.names, topics=["flights"] if to == "origin" else [])
    command = ("replay", "--group", group, "--to", to, "--plan", str(tmp_path / "plan"), "--yes")
    code, _, err = ran(kafka, one, [right for right in rights if "Write" not in right.operations], *command)
    assert code == 2
    assert "authorization failed" in err
    assert "Traceback" not in err
    code, out, err = ran(kafka, one, rights, *command)
    assert code == 0, err
    assert json.loads(out)["sent"] == 1
