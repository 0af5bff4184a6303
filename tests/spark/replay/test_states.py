"""A run obeys the states of dead letters, and writes those of what it has sent while it lasts."""

from __future__ import annotations

import json
import time
from collections import Counter
from contextlib import suppress
from pathlib import Path
from typing import Any, cast

import pytest
from confluent_kafka import Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from pyspark.sql import SparkSession

from reconsume.delay_levels.errors import IllegalSetting
from reconsume.delay_levels.wire.dead_letter_states import DeadLetterKey, DeadLetterState, encode_state
from reconsume.delay_levels.wire.jobs.job_records import DeadLetterFilter
from reconsume.operations.dead_letters import read_page
from reconsume.operations.resend import new_replay_id
from reconsume.operations.resolve import resolve
from reconsume.spark_connectors.replay import ReplayProgress, plan_replay, replay_report, run_replay, run_rows
from reconsume.spark_connectors.replay.states import read_states
from reconsume.spark_connectors.source import TopicSource
from tests.integration.installation import Installation
from tests.spark.histories.dead_letters import GROUP, dead_letter_headers, interrupt, replayed, with_dead_letters
from tests.support.waiting import PATIENCE

pytestmark = [pytest.mark.kafka, pytest.mark.early(3)]
DAY_MS = 86_400_000


def states(one: Installation) -> Counter[str]:
    letters = read_page(one.cluster, GROUP, DeadLetterFilter()).records
    return Counter("OPEN" if letter.state is None else letter.state.state for letter in letters)


def forget_lane(one: Installation) -> None:
    """Delete everything on `DELAY.0s`, as its retention does."""
    lane = one.settings.names.delay(0)
    ends = one.admin.end_offsets([(lane, number) for number in range(one.admin.partitions([lane])[lane])])
    wanted = [TopicPartition(*where, end) for where, end in ends.items() if end]
    client = AdminClient({"bootstrap.servers": one.settings.bootstrap_servers})
    for deletion in client.delete_records(wanted).values():
        deletion.result(PATIENCE)


def mark_resent(one: Installation, message_id: str, job: str, partition: int = 0) -> None:
    [letter] = [record for record in one.dead_letters(GROUP) if record["ORIGIN_MESSAGE_ID"] == message_id]
    key = DeadLetterKey(one.settings.names.dead_letter(GROUP), letter.partition, letter.offset, letter.timestamp)
    state = encode_state(DeadLetterState("RESENT", time.time_ns() // 1_000_000, "eve", job=job))
    one.produce(one.settings.names.dead_letter_states, state.encode(), key=str(key).encode(), partition=partition)


def resolve_one(one: Installation, message_id: str) -> None:
    [letter] = read_page(one.cluster, GROUP, DeadLetterFilter(message_id=message_id)).records
    resolve(one.cluster, GROUP, [letter.place], by="carol", why="refunded by hand")


def test_what_was_resolved_or_resent_after_the_plan_was_made_is_not_sent(
    spark: SparkSession, bootstrap_servers: str, tmp_path: Path
) -> None:
    one = with_dead_letters(bootstrap_servers, 4)
    plan = plan_replay(spark, bootstrap_servers, str(tmp_path), topic_prefix=one.settings.topic_prefix)
    resolve_one(one, "flights/0/1")
    mark_resent(one, "flights/0/2", "monday")  # its copy is so old that `DELAY.0s` has deleted it
    result = run_replay(spark, bootstrap_servers, plan)
    assert (result.sent, result.before) == (2, 2)
    assert replayed(one) == {"flights/0/0": 1, "flights/0/3": 1}
    assert states(one) == {"RESENT": 3, "RESOLVED": 1}
    outcomes = replay_report(spark, bootstrap_servers, plan).groupBy("outcome").count().collect()
    assert {row.outcome: row["count"] for row in outcomes} == {"sent": 2, "replayed": 1, "resolved": 1}


def test_what_the_lane_forgets_while_a_run_lasts_is_marked_as_sent(
    spark: SparkSession, bootstrap_servers: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As after nine days at five records a second; also if somebody gives the topic of states more partitions."""
    one = with_dead_letters(bootstrap_servers, 20)
    prefix = one.settings.topic_prefix
    one.admin.add_partitions(one.settings.names.dead_letter_states, 3)
    mark_resent(one, "flights/0/0", "by another tool", partition=1)
    assert states(one) == {"OPEN": 20}
    plan = plan_replay(spark, bootstrap_servers, str(tmp_path / "a"), topic_prefix=prefix)
    monkeypatch.setattr(run_rows, "_EVERY_SECONDS", 0.0)
    result = run_replay(spark, bootstrap_servers, plan, rate=10, progress=lambda _told: forget_lane(one))
    assert result.sent == 20
    assert states(one) == {"RESENT": 20}
    outcomes = replay_report(spark, bootstrap_servers, plan).groupBy("outcome").count().collect()
    assert [tuple(row) for row in outcomes] == [("sent", 20)]
    again = plan_replay(spark, bootstrap_servers, str(tmp_path / "b"), topic_prefix=prefix)
    assert again.counts == {"replayed": 20}


def test_what_is_settled_while_a_run_lasts_is_not_sent(
    spark: SparkSession, bootstrap_servers: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = with_dead_letters(bootstrap_servers, 4)
    plan = plan_replay(spark, bootstrap_servers, str(tmp_path), topic_prefix=one.settings.topic_prefix)
    monkeypatch.setattr(run_rows, "_EVERY_SECONDS", 0.0)
    ids = [row.message_id for row in spark.read.parquet(f"{tmp_path}/records").orderBy("number").collect()]
    seen: list[ReplayProgress] = []

    def meanwhile(at: ReplayProgress) -> None:
        seen.append(at)
        if len(seen) == 2:  # the first is sent
            resolve_one(one, ids[1])
            mark_resent(one, ids[3], "monday")

    result = run_replay(spark, bootstrap_servers, plan, rate=1, progress=meanwhile)
    assert (result.sent, result.before) == (2, 2)
    assert seen[-1] == ReplayProgress(2, 2, 4)
    assert replayed(one) == {ids[0]: 1, ids[2]: 1}
    assert states(one) == {"RESENT": 3, "RESOLVED": 1}


@pytest.mark.parametrize("is_interrupted", [pytest.param(False, marks=pytest.mark.long), True])
def test_what_is_resolved_after_it_was_sent_stays_resolved(
    spark: SparkSession, bootstrap_servers: str, tmp_path: Path, *, is_interrupted: bool
) -> None:
    """Until a run has written its state, a dead letter looks open."""
    one = with_dead_letters(bootstrap_servers, 4)
    plan = plan_replay(spark, bootstrap_servers, str(tmp_path), topic_prefix=one.settings.topic_prefix)
    first = spark.read.parquet(f"{tmp_path}/records").orderBy("number").first()
    assert first is not None

    def meanwhile(at: ReplayProgress) -> None:
        if at.sent == 2:
            resolve_one(one, first.message_id)
            if is_interrupted:
                raise KeyboardInterrupt

    with suppress(KeyboardInterrupt):
        run_replay(spark, bootstrap_servers, plan, rate=2, progress=meanwhile)
    if is_interrupted:
        assert run_replay(spark, bootstrap_servers, plan, settle_seconds=0.1).sent == 2
    assert set(replayed(one).values()) == {1}
    assert states(one) == {"RESENT": 3, "RESOLVED": 1}


def test_a_plan_does_not_go_on_if_nothing_tells_what_its_first_run_has_sent(
    spark: SparkSession, bootstrap_servers: str, tmp_path: Path
) -> None:
    """Its second run died before it had marked anything, so its age says nothing."""
    one = with_dead_letters(bootstrap_servers, 2)
    plan = plan_replay(spark, bootstrap_servers, str(tmp_path), topic_prefix=one.settings.topic_prefix)
    now = time.time_ns() // 1_000_000
    (tmp_path / "events").mkdir()
    for days in (10, 5):
        event = {"at": now - days * DAY_MS, "run": f"{days} days ago", "what": "started"}
        (tmp_path / "events" / f"part-{days}.json").write_text(json.dumps(event))
    with pytest.raises(IllegalSetting, match="interrupted over 6 days ago"):
        run_replay(spark, bootstrap_servers, plan)
    mark_resent(one, "flights/0/0", plan.plan_id)
    assert run_replay(spark, bootstrap_servers, plan, settle_seconds=0.1).sent == 1
    assert replayed(one) == {"flights/0/1": 1}


def test_a_resend_whose_transaction_was_aborted_is_none(
    spark: SparkSession, bootstrap_servers: str, tmp_path: Path
) -> None:
    one = with_dead_letters(bootstrap_servers, 2)
    prefix, job = one.settings.topic_prefix, new_replay_id("resend", time.time() * 1_000)
    producer = Producer({"bootstrap.servers": bootstrap_servers, "transactional.id": f"{prefix}aborted"})
    producer.init_transactions(30)
    for message, ends in ((0, producer.abort_transaction), (1, producer.commit_transaction)):
        headers = dead_letter_headers(message, RECONSUME_TIME="0", REPLAY_ID=job, REAL_TOPIC=f"%RETRY%{GROUP}")
        producer.begin_transaction()
        producer.produce(one.settings.names.delay(0), b"copy", headers=cast("Any", headers))
        producer.flush(PATIENCE)
        ends(30)
    plan = plan_replay(spark, bootstrap_servers, str(tmp_path / "a"), topic_prefix=prefix)
    assert plan.counts == {"send": 1, "replayed": 1}
    with pytest.raises(IllegalSetting, match="is that of a job"):
        plan_replay(spark, bootstrap_servers, str(tmp_path / "b"), topic_prefix=prefix, plan_id=job)


def test_a_copy_from_an_earlier_use_of_the_plans_id_hides_no_later_death(
    spark: SparkSession, bootstrap_servers: str, tmp_path: Path
) -> None:
    """As of a stream in a new folder: the ids of its batches begin again."""
    one = with_dead_letters(bootstrap_servers, 1)
    prefix = one.settings.topic_prefix
    earlier = plan_replay(spark, bootstrap_servers, str(tmp_path / "a"), plan_id="p", topic_prefix=prefix)
    assert run_replay(spark, bootstrap_servers, earlier).sent == 1
    again = dead_letter_headers(0, REPLAY_ID="p", REPLAY_TIMES="1")
    one.produce(one.settings.names.dead_letter(GROUP), b"v", headers=again)
    plan = plan_replay(spark, bootstrap_servers, str(tmp_path / "b"), plan_id="p", topic_prefix=prefix)
    interrupt(tmp_path / "b", time.time_ns() // 1_000_000)
    assert run_replay(spark, bootstrap_servers, plan, settle_seconds=0.1).sent == 1
    rows = replay_report(spark, bootstrap_servers, plan).collect()
    assert {(row.outcome, row.copies) for row in rows} == {("sent", 1), ("superseded", None)}


def test_of_two_messages_with_one_id_a_run_that_goes_on_sends_the_one_that_it_has_not_sent(
    spark: SparkSession, bootstrap_servers: str, tmp_path: Path
) -> None:
    """Their topic was made again; they were born at different times."""
    one = with_dead_letters(bootstrap_servers, 1)
    names = one.settings.names
    one.produce(names.dead_letter(GROUP), b"new", headers=dead_letter_headers(0, BORN_TIMESTAMP="1700000000001"))
    plan = plan_replay(spark, bootstrap_servers, str(tmp_path), topic_prefix=names.prefix)
    assert plan.counts == {"send": 2}
    copy = dead_letter_headers(0, RECONSUME_TIME="0", REPLAY_ID=plan.plan_id, REPLAY_TIMES="1")
    one.produce(names.delay(0), b"value-0", headers=[*copy, ("REAL_TOPIC", f"%RETRY%{GROUP}".encode())])
    interrupt(tmp_path, time.time_ns() // 1_000_000)
    assert run_replay(spark, bootstrap_servers, plan, settle_seconds=0.1).sent == 1
    assert {record.value for record in one.read(names.delay(0))} == {b"value-0", b"new"}
    assert states(one) == {"RESENT": 2}
    one.admin.create(names.retry(GROUP), 1, -1, {"message.timestamp.type": "LogAppendTime"})
    delivered = [header for header in copy if header[0] != "REAL_TOPIC"]
    one.produce(names.retry(GROUP), b"value-0", headers=delivered)
    rows = replay_report(spark, bootstrap_servers, plan).collect()
    assert {(row.born.timestamp(), row.outcome, row.copies) for row in rows} == {
        (1_700_000_000.0, "delivered", 1),
        (1_700_000_000.001, "sent", 1),
    }


def test_the_state_of_a_dead_letter_without_timestamp_is_read(spark: SparkSession, bootstrap_servers: str) -> None:
    one = with_dead_letters(bootstrap_servers, 1)
    key = DeadLetterKey(one.settings.names.dead_letter(GROUP), 0, 7, -1)
    state = encode_state(DeadLetterState("RESOLVED", 1, "carol"))
    one.produce(one.settings.names.dead_letter_states, state.encode(), key=str(key).encode())
    found = read_states(TopicSource.of(spark, bootstrap_servers, one.settings.topic_prefix, None)).collect()
    assert [(row.kafka_topic, row.partition, row.offset, row.stored_ms) for row in found] == [tuple(key)]
