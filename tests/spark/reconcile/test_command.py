"""`reconsume reconcile` as a user types it."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from reconsume.console.reports import list_reports
from reconsume.spark_connectors.reconcile.ledger import _command
from reconsume.spark_connectors.session import local_rows
from tests.integration.cli.test_cli import reconsume
from tests.spark.histories.copies import Copy, commit_to_end, write
from tests.spark.histories.lived import Lived

pytestmark = pytest.mark.kafka


def run(lived: Lived, prefix: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    return reconsume(
        "reconcile",
        *arguments,
        *("--master", "local[1]", "--spark-option", "spark.sql.shuffle.partitions=1"),
        RECONSUME_BOOTSTRAP_SERVERS=lived.bootstrap_servers,
        RECONSUME_TOPIC_PREFIX=prefix,
    )


def test_it_prints_figures_writes_report_and_tables_and_fails_on_findings(
    spark: SparkSession, lived: Lived, taken: Copy, tmp_path: Path
) -> None:
    copy = Copy(taken.partitions, list(taken.records))
    missing = copy.of("RETRY.")[3]
    copy.records.remove(missing)
    prefix = write(lived.bootstrap_servers, copy)
    # Copied times are producers', so only the schedulers' offsets tell that something is missing.
    commit_to_end(lived.bootstrap_servers, prefix, copy)
    report, out = tmp_path / "new" / "report.html", tmp_path / "out"
    done = run(lived, prefix, "-o", "json", "--report", str(report), "--lang", "zh", "--out", str(out))
    assert done.returncode == 1, done.stderr
    told = json.loads(done.stdout)
    assert (told["verdict"], told["findings"], told["lost"]) == ("findings", {"LOST": 1}, 1)
    assert told["attempts"] == told["moved"] + told["dead"] + 1 == len(copy.of("DELAY."))
    assert json.loads(report.with_suffix(".json").read_text("utf-8")) == told
    [listed], _ = list_reports(report.parent)
    assert (listed.verdict, listed.attempts, listed.findings) == ("findings", told["attempts"], {"LOST": 1})
    page = report.read_text(encoding="utf-8")
    assert 'lang="zh-CN"' in page
    assert missing["ORIGIN_MESSAGE_ID"] in page
    (row,) = spark.read.parquet(f"{out}/findings").collect()
    assert (row.kind, row.group, row.origin_message_id, row.attempt) == ("LOST", *missing.attempt)
    assert spark.read.parquet(f"{out}/ledger").count() == told["attempts"]
    assert json.loads(spark.read.text(f"{out}/summary").collect()[0][0]) == told


def test_topics_that_are_not_there_are_said_before_spark_starts(lived: Lived) -> None:
    done = run(lived, "nobody.")
    assert done.returncode == 2
    assert done.stderr.startswith("error: ")
    assert "has no topics nobody.DELAY.*; is topic_prefix right?" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_command_to_copy_holds_nothing_that_a_shell_obeys(spark: SparkSession) -> None:
    topics = ("flights", "x;reboot", "$(reboot)", "flights' -f '%s")
    rows = [{"topic": topic, "partition": 0, "offset": "1"} for topic in topics]
    rows += [
        {"topic": "flights", "partition": 0, "offset": "1\n;reboot"},
        {"topic": None, "partition": 0, "offset": "1"},
    ]
    found = local_rows(spark, rows, "topic STRING, partition INT, offset STRING").select(
        _command("a:1,b:2", F.col("topic"), F.col("partition"), F.col("offset")).alias("command")
    )
    commands = [row.command for row in found.collect()]
    assert commands[0] == r"kcat -C -e -b a:1,b:2 -t flights -p 0 -o 1 -c 1 -f '%t/%p/%o %T\n%h\n%k\n%s\n'"
    assert commands[1:] == [None] * 5
