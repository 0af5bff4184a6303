"""A password shows nowhere, whatever goes wrong; and no header leads where it may not."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import threading
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from reconsume.bridge.process.settings import Settings
from reconsume.operations.rights import Role, rights_of
from tests.integration.installation import Installation, scheduler, settings_for
from tests.support.brokers.secure_kafka import SecureKafka, secure_kafka
from tests.support.waiting import PATIENCE, wait_until

pytestmark = [pytest.mark.kafka, pytest.mark.early(3), pytest.mark.more]

SECRET = "open-sesame-7413"
WORKER = ("scheduler", "--log-level", "DEBUG", "--management", "127.0.0.1:0")


@pytest.fixture(scope="module")
def kafka() -> Iterator[SecureKafka]:
    with secure_kafka() as one:
        yield one


@pytest.fixture
def here(kafka: SecureKafka) -> Installation:
    one = Installation(settings_for(kafka.bootstrap_servers))
    one.make_topics()
    one.write_groups()
    return one


def environment(kafka: SecureKafka, here: Installation, folder: Path, password: str) -> dict[str, str]:
    user = f"u-{here.settings.topic_prefix}"
    conf = kafka.user(user, SECRET)
    kafka.grant(user, rights_of(Role.SCHEDULER, here.settings.names))
    file = folder / "password"
    file.write_text(password)
    variables = {f"RECONSUME_KAFKA_{name.upper().replace('.', '_')}": value for name, value in conf.items()}
    del variables["RECONSUME_KAFKA_SASL_PASSWORD"]
    return (
        os.environ
        | variables
        | {
            "RECONSUME_KAFKA_SASL_PASSWORD_FILE": str(file),
            "RECONSUME_BOOTSTRAP_SERVERS": kafka.secure_bootstrap_servers,
            "RECONSUME_TOPIC_PREFIX": here.settings.topic_prefix,
            # All that librdkafka has to say of its settings and of logging in.
            "RECONSUME_KAFKA_DEBUG": "conf,security,broker",
        }
    )


@pytest.mark.parametrize("command", [["doctor"], ["status"], ["topics", "plan"], ["groups", "list"]], ids=" ".join)
@pytest.mark.parametrize("password", [SECRET, f"{SECRET}-wrong"])
def test_no_command_prints_it(
    kafka: SecureKafka, here: Installation, tmp_path: Path, command: list[str], password: str
) -> None:
    ran = subprocess.run(
        [sys.executable, "-m", "reconsume", *command],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
        env=environment(kafka, here, tmp_path, password),
    )
    assert ran.stdout + ran.stderr
    assert SECRET not in ran.stdout + ran.stderr
    assert password == SECRET or ran.returncode == (1 if command == ["doctor"] else 2)


def test_no_log_metric_or_process_list_of_a_worker_holds_it(
    kafka: SecureKafka, here: Installation, tmp_path: Path
) -> None:
    worker = subprocess.Popen(
        [sys.executable, "-m", "reconsume", *WORKER, "-X", "log_level=7"],
        stderr=subprocess.PIPE,
        text=True,
        env=environment(kafka, here, tmp_path, SECRET),
    )
    lines: list[str] = []
    assert worker.stderr is not None
    reading = threading.Thread(target=lines.extend, args=(worker.stderr,))
    reading.start()
    try:
        found = wait_until(lambda: re.findall(r"management: (http://[0-9.:]+)", "".join(lines)), "its address")
        url = found[0]
        wait_until(lambda: b"reconsume_scheduler_partitions 4.0" in fetched(url), "it has all partitions")
        assert SECRET.encode() not in fetched(url)
        assert SECRET not in Path(f"/proc/{worker.pid}/cmdline").read_text()
    finally:
        worker.terminate()
        worker.wait(PATIENCE)
        reading.join(PATIENCE)
        worker.stderr.close()
    assert any("sasl.password" in line or "SASL" in line for line in lines)
    assert SECRET not in "".join(lines)


def fetched(url: str) -> bytes:
    with urllib.request.urlopen(f"{url}/metrics", timeout=10) as answer:  # noqa: S310 - our own address
        return bytes(answer.read())


def test_settings_and_errors_hide_it() -> None:
    settings = Settings(kafka={"sasl.password": SECRET})
    assert SECRET not in repr(settings) + str(settings) + settings.model_dump_json()


@pytest.mark.parametrize("allowed", [[], [".*"]])
def test_a_header_leads_into_no_topic_that_is_not_allowed_by_the_setting_and_the_rights(
    kafka: SecureKafka, here: Installation, allowed: list[str]
) -> None:
    names, user = here.settings.names, f"w-{here.settings.topic_prefix}"
    payroll = here.topic("payroll")
    conf = Settings(kafka=kafka.user(user, SECRET)).kafka
    kafka.grant(user, rights_of(Role.SCHEDULER, names))
    settings = here.settings.model_copy(
        update={
            "bootstrap_servers": kafka.secure_bootstrap_servers,
            "kafka": conf,
            "allowed_real_topics": allowed,
        }
    )
    targets = [payroll, names.groups, names.delay(1_000), "__consumer_offsets", "../x"]
    for target in targets:
        here.produce(names.delay(0), target.encode(), headers=[("REAL_TOPIC", target.encode())])
    with scheduler(settings):
        wait_until(lambda: len(here.read(names.quarantine)) == len(targets), "all in the quarantine")
    assert {record.value for record in here.read(names.quarantine)} == {target.encode() for target in targets}
    assert all((record["QUARANTINE_REASON"] or "") for record in here.read(names.quarantine))
    sent = {target.encode() for target in targets}
    for topic in (payroll, names.groups, names.delay(1_000)):
        assert sent.isdisjoint(record.value for record in here.read(topic)), topic
