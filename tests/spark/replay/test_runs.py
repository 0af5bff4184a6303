"""A plan's records are on `DELAY.0s` once, whatever happens to its runs."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from itertools import pairwise
from pathlib import Path
from typing import Any, cast

import pytest
from confluent_kafka import Producer
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from reconsume.delay_levels.errors import IllegalSetting
from reconsume.spark_connectors.failures import explained
from reconsume.spark_connectors.replay import (
    ReplayInterrupted,
    ReplayProgress,
    histogram,
    open_plan,
    plan_replay,
    replay_report,
    replay_stream,
    run_replay,
)
from reconsume.spark_connectors.replay.execution import _write
from reconsume.spark_connectors.replay.plan import records, write_in_order
from reconsume.spark_connectors.source import TopicSource
from tests.integration.installation import Installation
from tests.spark.histories.dead_letters import GROUP, dead_letter_headers, replayed, with_dead_letters
from tests.support.waiting import PATIENCE, wait_until

pytestmark = [pytest.mark.kafka, pytest.mark.early(8), pytest.mark.more]
PROGRAM = Path(__file__).with_name("run_replay.py")


def offsets(installation: Installation) -> dict[str, int]:
    """How many records stand on each topic."""
    topics = [topic for topic in installation.admin.topics() if topic.startswith(installation.settings.topic_prefix)]
    return {topic: len(installation.read(topic)) for topic in topics}


def expected(count: int, only: range | None = None) -> Counter[str | None]:
    return Counter({f"flights/0/{number}": 1 for number in only or range(count)})


def test_a_plan_reads_dead_letters_and_states_once_and_the_lane_twice(
    spark: SparkSession,
    bootstrap_servers: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    one = with_dead_letters(bootstrap_servers, 4)

    def shown(rows: DataFrame, path: str, *more: Any) -> None:
        rows.explain()
        write_in_order(rows, path, *more)

    monkeypatch.setattr("reconsume.spark_connectors.replay.plan.write_in_order", shown)
    plan = plan_replay(spark, bootstrap_servers, str(tmp_path), topic_prefix=one.settings.topic_prefix)
    assert (plan.counts, capsys.readouterr().out.count("BatchScan")) == ({"send": 4}, 4)


def test_a_filter_may_ask_a_table(spark: SparkSession, bootstrap_servers: str, tmp_path: Path) -> None:
    one = with_dead_letters(bootstrap_servers, 4)
    spark.sql("SELECT 'flights/0/2' AS id").createOrReplaceTempView("wanted")
    where = "origin_message_id IN (SELECT id FROM wanted)"
    plan = plan_replay(spark, bootstrap_servers, str(tmp_path), where=where, topic_prefix=one.settings.topic_prefix)
    assert plan.counts == {"send": 1}


def test_what_the_filter_takes_is_sent_once_and_a_second_run_sends_nothing(
    spark: SparkSession, bootstrap_servers: str, tmp_path: Path
) -> None:
    one = with_dead_letters(bootstrap_servers, 20)
    prefix, names = one.settings.topic_prefix, one.settings.names
    where = "cause = 'no dep_time' AND origin_offset < 10"
    folder, before = str(tmp_path / "[a] {ö,*}"), offsets(one)
    plan = plan_replay(spark, bootstrap_servers, folder, where=where, topic_prefix=prefix, plan_id="p-1")
    assert plan.counts == {"send": 5}
    assert histogram(spark, plan, "group").rows == [(GROUP, "send", 5)]
    assert sum(count for _hour, _status, count in histogram(spark, plan, "hour").rows) == 5
    outcomes = replay_report(spark, bootstrap_servers, plan).groupBy("outcome").count().collect()
    assert [tuple(row) for row in outcomes] == [("not_sent", 5)]
    assert open_plan(spark, folder) == plan
    assert offsets(one) == before, "a plan and a look at it write nothing to Kafka"
    seen: list[ReplayProgress] = []
    result = run_replay(spark, bootstrap_servers, plan, progress=seen.append)
    assert (result.plan_id, result.sent, result.before) == ("p-1", 5, 0)
    assert seen[-1] == ReplayProgress(5, 0, 5)
    wanted = expected(0, range(0, 10, 2))
    assert replayed(one) == wanted
    record = next(one for one in one.read(names.delay(0)) if one["ORIGIN_MESSAGE_ID"] == "flights/0/4")
    assert (record.key, record.value) == (b"key-4", b"value-4")
    assert record.headers[:2] == [("user", b"\xff"), ("user", None)]
    assert {name: (value or b"").decode() for name, value in record.headers[2:]} == {
        "RETRY_TOPIC": "flights",
        "ORIGIN_MESSAGE_ID": "flights/0/4",
        "RECONSUME_TIME": "0",
        "DELAY": "0",
        "REAL_TOPIC": f"%RETRY%{GROUP}",
        "BORN_TIMESTAMP": "1700000000000",
        "REPLAY_ID": "p-1",
        "REPLAY_TIMES": "1",
    }
    again = run_replay(spark, bootstrap_servers, plan)
    assert (again.sent, again.before) == (0, 5)
    # Another plan of the same dead letters leaves out what is replayed.
    other = plan_replay(spark, bootstrap_servers, str(tmp_path / "b"), topic_prefix=prefix)
    assert other.counts == {"send": 15, "replayed": 5}
    causes = {("no dep_time", "replayed", 5), ("no dep_time", "send", 5), ("timeout", "send", 10)}
    assert set(histogram(spark, other, "cause").rows) == causes
    assert run_replay(spark, bootstrap_servers, other).sent == 15
    assert replayed(one) == expected(20)


def test_a_dead_letter_larger_than_javas_producer_sends_by_default_is_sent(
    spark: SparkSession, bootstrap_servers: str, tmp_path: Path
) -> None:
    one = with_dead_letters(bootstrap_servers, 0)
    topic = one.settings.names.dead_letter("large")
    one.admin.create(topic, 1, -1, {"message.timestamp.type": "LogAppendTime", "max.message.bytes": "1114124"})
    producer = Producer({"bootstrap.servers": bootstrap_servers, "message.max.bytes": 2_000_000})
    producer.produce(topic, bytes(1_060_000), headers=cast("Any", dead_letter_headers(0)))
    assert producer.flush(PATIENCE) == 0
    plan = plan_replay(spark, bootstrap_servers, str(tmp_path), topic_prefix=one.settings.topic_prefix)
    why = r"run it again to send the rest: [\s\S]*a record exceeds the max\.message\.bytes"
    with pytest.raises(ReplayInterrupted, match=why):
        run_replay(spark, bootstrap_servers, plan, options={"kafka.Max.Request.Size": "1048576"})
    assert run_replay(spark, bootstrap_servers, plan, settle_seconds=0.1).sent == 1
    assert replayed(one) == expected(1)


def test_a_chunk_that_was_half_sent_is_completed_and_no_second_has_more_than_the_rate(
    spark: SparkSession, bootstrap_servers: str, tmp_path: Path
) -> None:
    one = with_dead_letters(bootstrap_servers, 40)
    plan = plan_replay(spark, bootstrap_servers, str(tmp_path / "[x]"), topic_prefix=one.settings.topic_prefix)
    _write(
        records(spark, plan.folder).where(F.col("offset") % 3 == 1),
        TopicSource.of(spark, bootstrap_servers, plan.topic_prefix),
    )
    before = {(record.partition, record.offset) for record in one.read(one.settings.names.delay(0))}
    some = len(before)
    assert 0 < some < 40
    # The clock of the run that was interrupted was an hour ahead.
    ahead = {"at": time.time_ns() // 1_000_000 + 3_600_000, "run": "x", "what": "started"}
    (tmp_path / "[x]" / "events").mkdir()
    (tmp_path / "[x]" / "events" / "part-0.json").write_text(json.dumps(ahead))
    seen: list[ReplayProgress] = []
    result = run_replay(spark, bootstrap_servers, plan, rate=10, settle_seconds=0.1, progress=seen.append)
    assert (result.sent, result.before) == (40 - some, some)
    assert replayed(one) == expected(40)
    assert max(after.sent - earlier.sent for earlier, after in pairwise(seen)) == 10
    lane = one.read(one.settings.names.delay(0))
    stored = [record.timestamp for record in lane if (record.partition, record.offset) not in before]
    assert max(sum(begin <= moment < begin + 1_000 for moment in stored) for begin in stored) <= 10


@pytest.mark.long
def test_two_plans_made_before_either_ran_send_each_record_once(
    spark: SparkSession, bootstrap_servers: str, tmp_path: Path
) -> None:
    one = with_dead_letters(bootstrap_servers, 10)
    prefix = one.settings.topic_prefix
    first = plan_replay(spark, bootstrap_servers, str(tmp_path / "a"), where="origin_offset < 6", topic_prefix=prefix)
    second = plan_replay(spark, bootstrap_servers, str(tmp_path / "b"), topic_prefix=prefix)
    assert run_replay(spark, bootstrap_servers, first).sent == 6
    assert run_replay(spark, bootstrap_servers, second).sent == 4
    assert replayed(one) == expected(10)
    rows = replay_report(spark, bootstrap_servers, second).groupBy("outcome").count().collect()
    assert {row[0]: row[1] for row in rows} == {"sent": 4, "replayed": 6}


@pytest.mark.parametrize("mode", ["plan", pytest.param("stream", marks=pytest.mark.long)])
def test_a_run_that_was_killed_and_started_again_sends_none_twice(
    spark: SparkSession, bootstrap_servers: str, tmp_path: Path, mode: str
) -> None:
    one = with_dead_letters(bootstrap_servers, 120)
    prefix, lane = one.settings.topic_prefix, one.settings.names.delay(0)
    if mode == "plan":
        plan_replay(spark, bootstrap_servers, str(tmp_path), topic_prefix=prefix)
    command = [sys.executable, str(PROGRAM), mode, bootstrap_servers, prefix, str(tmp_path), "20"]
    environment = os.environ | {"PYTHONPATH": str(Path(__file__).parents[3])}
    with subprocess.Popen(command, env=environment, start_new_session=True) as run:
        try:
            wait_until(lambda: len(one.read(lane)) >= 30, "the first records are sent")
            assert run.poll() is None
        finally:
            os.killpg(run.pid, signal.SIGKILL)
    assert 30 <= len(one.read(lane)) < 120
    if mode == "plan":
        plan = open_plan(spark, str(tmp_path))
        assert plan is not None
        result = run_replay(spark, bootstrap_servers, plan, settle_seconds=2)
        assert 0 < result.sent < 120
    else:
        query = replay_stream(spark, bootstrap_servers, str(tmp_path), "nightly", topic_prefix=prefix, settle_seconds=2)
        assert query.awaitTermination(400)
    assert replayed(one) == expected(120)


def test_a_plan_whose_process_died_while_it_was_written_is_made_again(
    spark: SparkSession, bootstrap_servers: str, tmp_path: Path
) -> None:
    """Spark leaves the folder of the file, and refuses to write where one is."""
    one = with_dead_letters(bootstrap_servers, 3)
    (tmp_path / "plan" / "_temporary" / "0").mkdir(parents=True)
    made = plan_replay(spark, bootstrap_servers, str(tmp_path), topic_prefix=one.settings.topic_prefix)
    assert open_plan(spark, str(tmp_path)) == made
    with pytest.raises(IllegalSetting, match="rate 0"):
        run_replay(spark, bootstrap_servers, made, rate=0)
    assert run_replay(spark, bootstrap_servers, made).sent == 3
    with pytest.raises(IllegalSetting, match="already has a plan"):
        plan_replay(spark, bootstrap_servers, str(tmp_path), topic_prefix=one.settings.topic_prefix)


def run_stream(spark: SparkSession, one: Installation, folder: Path, where: str = "true") -> None:
    prefix = one.settings.topic_prefix
    servers = one.settings.bootstrap_servers
    query = replay_stream(spark, servers, str(folder), "nightly", where=where, topic_prefix=prefix)
    assert query.awaitTermination(400)


def test_a_stream_takes_what_came_since_its_last_run(
    spark: SparkSession, bootstrap_servers: str, tmp_path: Path
) -> None:
    """Without its checkpoint it takes no old plan for new dead letters; in a new folder it goes on."""
    one, where = with_dead_letters(bootstrap_servers, 6), "cause = 'timeout'"
    run_stream(spark, one, tmp_path / "a", where)
    assert replayed(one) == expected(0, range(1, 6, 2))
    one.produce(one.settings.names.dead_letter(GROUP), b"v", headers=dead_letter_headers(7, "timeout"))
    run_stream(spark, one, tmp_path / "a", where)
    assert replayed(one) == expected(0, range(1, 8, 2))
    shutil.rmtree(tmp_path / "a" / "checkpoint")
    one.produce(one.settings.names.dead_letter(GROUP), b"v", headers=dead_letter_headers(9, "timeout"))
    with pytest.raises(IllegalSetting, match="has plans of earlier runs but no checkpoint"):
        run_stream(spark, one, tmp_path / "a", where)
    run_stream(spark, one, tmp_path / "b", where)
    assert replayed(one) == expected(0, range(1, 10, 2))


@pytest.mark.long
def test_a_broken_checkpoint_is_said_and_a_new_folder_goes_on(
    spark: SparkSession, bootstrap_servers: str, tmp_path: Path
) -> None:
    one = with_dead_letters(bootstrap_servers, 4)
    run_stream(spark, one, tmp_path / "a")
    for name in ("0", ".0.crc"):
        (tmp_path / "a" / "checkpoint" / "commits" / name).unlink(missing_ok=True)
        (tmp_path / "a" / "checkpoint" / "offsets" / name).unlink(missing_ok=True)
    (tmp_path / "a" / "checkpoint" / "offsets" / "0").write_text("v1")
    with pytest.raises(IllegalSetting, match="checkpoint in the stream's folder cannot be read"), explained("stopped"):
        run_stream(spark, one, tmp_path / "a")
    run_stream(spark, one, tmp_path / "b")
    assert replayed(one) == expected(4)


def test_what_cannot_work_is_refused(spark: SparkSession, bootstrap_servers: str, tmp_path: Path) -> None:
    one = with_dead_letters(bootstrap_servers, 1)

    def plan(folder: str, **arguments: str) -> object:
        return plan_replay(
            spark,
            bootstrap_servers,
            folder,
            topic_prefix=one.settings.topic_prefix,
            **arguments,  # type: ignore[arg-type]
        )

    for where in ("no_such_column = 1", "cause = ", "cause LIKE"):
        with pytest.raises(IllegalSetting, match="is not an SQL expression"):
            plan(str(tmp_path), where=where)
    with pytest.raises(IllegalSetting, match="use retry or origin"):
        plan(str(tmp_path), target="elsewhere")
    with pytest.raises(IllegalSetting, match="plan id 'a b'"):
        plan(str(tmp_path), plan_id="a b")
    for wrong in ({"where": "no_such_column = 1"}, {"target": "elsewhere"}, {"rate": -1.0}):
        with pytest.raises(IllegalSetting, match=r"SQL expression|use retry or origin|rate -1"):
            replay_stream(spark, bootstrap_servers, str(tmp_path), "nightly", **wrong)
    assert open_plan(spark, str(tmp_path)) is None
