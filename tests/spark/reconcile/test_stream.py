"""Reconcile as a stream: run after run into a ledger, with a checkpoint."""

from __future__ import annotations

import datetime as dt
import json
import os
import signal
import subprocess
import sys
from collections import defaultdict
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery
from typer.testing import CliRunner

from reconsume.cli.main import app
from reconsume.delay_levels.errors import IllegalSetting
from reconsume.spark_connectors.failures import explained
from reconsume.spark_connectors.reconcile import Tolerances, ledger_runs, read_ledger, reconcile_stream
from tests.spark.histories.copies import Copied, Copy, add, write
from tests.spark.histories.lived import Lived
from tests.support.waiting import PATIENCE, wait_until

pytestmark = [pytest.mark.kafka, pytest.mark.early(2), pytest.mark.more]


def part(taken: Copy) -> tuple[Copy, list[Copied], Copied]:
    """A copy up to the middle of the history, what comes later, and a delivery that is in neither.

    The first run has the delivery of a later record of the same partition: it proves that the lost one is not waiting.
    """
    records = sorted(taken.records, key=lambda one: one.timestamp)
    retries = [one for one in records if one.topic.startswith("RETRY.")]
    early = {one.attempt: one for one in retries[: len(retries) // 4]}
    sends = defaultdict[tuple[str, int], list[Copied]](list)
    for one in records:
        if one.topic.startswith("DELAY.") and one.attempt in early:
            sends[one.topic, one.partition].append(one)
    sent, _later, *_ = max(sends.values(), key=len)
    lost = early[sent.attempt]
    rest = [one for one in records if one is not lost]
    middle = len(rest) // 2
    return Copy(taken.partitions, rest[:middle]), rest[middle:], lost


def once(query: StreamingQuery) -> None:
    assert query.awaitTermination(400)
    assert query.exception() is None


def findings(ledger: DataFrame) -> list[tuple[str, str, str, int]]:
    rows = ledger.selectExpr("explode(findings) AS kind", "`group`", "origin_message_id", "attempt").collect()
    return [tuple(row) for row in rows]


def test_each_run_takes_what_came_since_the_last_one_and_the_ledger_has_each_attempt_once(
    spark: SparkSession, lived: Lived, taken: Copy, tmp_path: Path
) -> None:
    first, later, lost = part(taken)
    prefix = write(lived.bootstrap_servers, first)
    folder = str(tmp_path / "ledger")

    def run() -> None:
        # What was sent back an hour ago in the first part may be delivered in the second.
        late = Tolerances(late=dt.timedelta(hours=2))
        once(reconcile_stream(spark, lived.bootstrap_servers, folder, topic_prefix=prefix, tolerances=late))

    run()
    add(lived.bootstrap_servers, prefix, later)
    run()
    runs = ledger_runs(spark, folder)
    assert len(runs) == 2
    sizes = [read_ledger(spark, folder, run=one).where("target_offset is not null").count() for one in runs]
    deliveries = [one for one in taken.records if one.topic.startswith(("RETRY.", "DLQ."))]
    assert sizes[0] > 0
    assert sum(sizes) == len(deliveries) - 1
    for one in runs:  # it is open still, and stays what it is
        assert findings(read_ledger(spark, folder, run=one)) == [("LOST", *lost.attempt)]
    assert findings(read_ledger(spark, folder)) == [("LOST", *lost.attempt)]
    assert read_ledger(spark, folder).count() == len(taken.of("DELAY."))


@pytest.mark.long
def test_a_stream_goes_on_by_the_clock_though_nothing_comes(
    spark: SparkSession, lived: Lived, taken: Copy, tmp_path: Path
) -> None:
    prefix = write(lived.bootstrap_servers, taken)
    folder = str(tmp_path / "ledger")
    every = dt.timedelta(milliseconds=100)
    query = reconcile_stream(spark, lived.bootstrap_servers, folder, every=every, topic_prefix=prefix)
    try:
        wait_until(lambda: (query.lastProgress or {"batchId": -1})["batchId"] >= 1, "a second run")
    finally:
        query.stop()
    assert len(ledger_runs(spark, folder)) >= 2
    assert read_ledger(spark, folder).count() == len(taken.of("DELAY."))
    with pytest.raises(IllegalSetting, match="must be more than 0"):
        reconcile_stream(spark, lived.bootstrap_servers, folder, every=dt.timedelta(0))


@pytest.mark.long
def test_a_broken_checkpoint_is_said_and_the_ledger_goes_on_without_it(
    spark: SparkSession, lived: Lived, taken: Copy, tmp_path: Path
) -> None:
    prefix = write(lived.bootstrap_servers, taken)
    folder = tmp_path / "ledger"

    def run() -> None:
        with explained("following"):
            once(reconcile_stream(spark, lived.bootstrap_servers, str(folder), topic_prefix=prefix))

    run()
    checkpoint = folder / "checkpoint"
    for name in ("0", ".0.crc"):
        (checkpoint / "commits" / name).unlink(missing_ok=True)
        (checkpoint / "offsets" / name).unlink(missing_ok=True)
    (checkpoint / "offsets" / "0").write_text("v1")
    with pytest.raises(IllegalSetting, match="checkpoint in the stream's folder cannot be read; go on with"):
        run()
    checkpoint.rename(tmp_path / "broken")
    run()
    assert read_ledger(spark, str(folder)).count() == len(taken.of("DELAY."))
    assert len(ledger_runs(spark, str(folder))) == 2


@pytest.mark.long
def test_the_command_tells_of_each_run_until_it_is_stopped(lived: Lived, taken: Copy, tmp_path: Path) -> None:
    prefix = write(lived.bootstrap_servers, taken)
    command = [sys.executable, "-m", "reconsume", "reconcile", "--ledger", str(tmp_path / "ledger"), "-o", "json"]
    command += ["--follow", "100ms", "--master", "local[1]", "--spark-option", "spark.sql.shuffle.partitions=1"]
    environment = os.environ | {
        "RECONSUME_BOOTSTRAP_SERVERS": lived.bootstrap_servers,
        "RECONSUME_TOPIC_PREFIX": prefix,
    }
    with subprocess.Popen(
        command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as follows:
        try:
            assert follows.stdout is not None
            told = [json.loads(follows.stdout.readline()) for _ in range(2)]
            follows.send_signal(signal.SIGINT)
            _, errors = follows.communicate(timeout=PATIENCE)
        finally:
            follows.kill()
    assert follows.returncode == 0, errors
    assert "Exception" not in errors
    assert "Traceback" not in errors
    assert [one["attempts"] for one in told] == [len(taken.of("DELAY.")), 0]
    assert {one["verdict"] for one in told} == {"ok"}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--follow", "5m"], "--follow needs --ledger"),
        (["--follow", "0s", "--ledger", "x"], "write the interval between two runs"),
        (["--follow", "5m", "--ledger", "x", "--since", "1h"], "--since cannot be used with --follow"),
        (["--follow", "5m", "--ledger", "x", "--origins"], "--origins cannot be used with --follow"),
    ],
)
def test_what_cannot_be_followed_is_said(arguments: list[str], message: str) -> None:
    done = CliRunner().invoke(app, ["reconcile", *arguments, "-b", "127.0.0.1:1"])
    assert isinstance(done.exception, IllegalSetting)
    assert message in str(done.exception)
