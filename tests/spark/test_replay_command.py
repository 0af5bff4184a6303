"""`reconsume replay` as a user types it."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from reconsume.cli.spark.kafka_options import spark_kafka_options
from reconsume.delay_levels.errors import IllegalSetting
from tests.integration.installation import Installation
from tests.integration.test_cli import reconsume
from tests.spark.dead_letters import GROUP, replayed, with_dead_letters

pytestmark = [pytest.mark.kafka, pytest.mark.timeout(600)]


def run(one: Installation, *arguments: str) -> subprocess.CompletedProcess[str]:
    settings = one.settings
    return reconsume(
        "replay",
        *arguments,
        *("--master", "local[1]", "--spark-option", "spark.sql.shuffle.partitions=1"),
        RECONSUME_BOOTSTRAP_SERVERS=settings.bootstrap_servers,
        RECONSUME_TOPIC_PREFIX=settings.topic_prefix,
    )


def told(done: subprocess.CompletedProcess[str]) -> Any:
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_it_plans_asks_sends_and_reports(bootstrap_servers: str, tmp_path: Path) -> None:
    one = with_dead_letters(bootstrap_servers, 10)
    here = ("--plan", str(tmp_path / "plan"))
    dry = told(run(one, "--where", "cause = 'timeout'", *here, "--dry-run", "-o", "json"))
    assert (dry["counts"], dry["dry_run"], dry["report"]) == ({"send": 5}, True, {"not_sent": 5})
    assert dry["by_cause"] == [{"cause": "timeout", "status": "send", "count": 5}]
    assert dry["by_group"] == [{"group": GROUP, "status": "send", "count": 5}]
    refused = run(one, *here)
    assert refused.returncode == 1
    assert (
        "Send 5 dead letters to their groups' retry topics? Standard input is no terminal; say --yes" in refused.stderr
    )
    assert replayed(one) == {}
    shown = run(one, *here, "--yes")
    assert shown.returncode == 0, shown.stderr
    assert "sent 5 now, 0 before" in shown.stdout
    again = told(run(one, *here, "--yes", "-o", "json"))
    assert (again["sent"], again["before"], again["report"]) == (0, 5, {"sent": 5})
    assert sum(replayed(one).values()) == 5


def test_a_stream_has_its_folder_and_no_dry_run(bootstrap_servers: str, tmp_path: Path) -> None:
    one = with_dead_letters(bootstrap_servers, 4)
    done = told(run(one, "--stream", "nightly", "--plan", str(tmp_path), "--yes", "-o", "json"))
    assert (done["plans"], done["counts"]) == (["nightly-0"], {"send": 4})
    assert sum(replayed(one).values()) == 4


def test_what_cannot_work_is_said_in_a_sentence(bootstrap_servers: str, tmp_path: Path) -> None:
    one = with_dead_letters(bootstrap_servers, 1)
    plan = ("--plan", str(tmp_path))
    for arguments, message in (
        (("--stream", "nightly"), "--stream needs --plan"),
        (("--group", "never-seen"), "group 'never-seen' has no dead letters"),
        (("--topic", "no-such-topic"), "topic no-such-topic does not exist"),
        (("--where", "no_such_column = 1", *plan), "is no SQL expression over the dead letters"),
        (("--spark-option", "x"), "write KEY=VALUE"),
        (("-X", "sasl.username=me"), "it is known how to log in with PLAIN"),
    ):
        done = run(one, *arguments)
        assert (done.returncode, message in done.stderr, "Traceback" in done.stderr) == (1, True, False), done.stderr


def test_a_login_and_certificates_are_said_in_javas_words() -> None:
    assert spark_kafka_options(
        {
            "security.protocol": "SASL_SSL",
            "sasl.mechanisms": "SCRAM-SHA-512",
            "sasl.username": 'a"b',
            "sasl.password": "c\\d",
            "ssl.ca.location": "/ca.pem",
            "ssl.endpoint.identification.algorithm": "none",
        }
    ) == {
        "kafka.security.protocol": "SASL_SSL",
        "kafka.sasl.mechanism": "SCRAM-SHA-512",
        "kafka.sasl.jaas.config": "org.apache.kafka.common.security.scram.ScramLoginModule required "
        'username="a\\"b" password="c\\\\d";',
        "kafka.ssl.truststore.location": "/ca.pem",
        "kafka.ssl.truststore.type": "PEM",
        "kafka.ssl.endpoint.identification.algorithm": "",
    }
    with pytest.raises(IllegalSetting, match="certificate and key from one PEM file"):
        spark_kafka_options({"ssl.key.location": "/key.pem"})
