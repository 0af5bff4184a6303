"""`reconsume dlq resend` and `reconsume replay` decide and write the same."""

from __future__ import annotations

import time
from functools import partial
from pathlib import Path

import pytest
from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from reconsume.cli.spark.reconcile import read_extents
from reconsume.delay_levels.wire.dead_letter_states import DeadLetterKey, DeadLetterState, encode_state
from reconsume.delay_levels.wire.jobs.job_records import DeadLetterFilter
from reconsume.delay_levels.wire.properties import Header
from reconsume.operations.dead_letters import read_one, read_page
from reconsume.operations.jobs.planning import plan as plan_job
from reconsume.operations.jobs.selection import JobDraft
from reconsume.operations.record_address import RecordAddress
from reconsume.operations.resolve import resolve
from reconsume.spark_connectors import reconcile
from reconsume.spark_connectors.reconcile.records.deleted import ExtentsSince
from reconsume.spark_connectors.reconcile.resends import note_missing_resends
from reconsume.spark_connectors.replay import plan_replay, run_replay
from reconsume.spark_connectors.replay.plan import records
from reconsume.spark_connectors.source import TopicSource
from tests.integration.installation import Installation
from tests.spark.histories.dead_letters import GROUP, dead_letter_headers, with_dead_letters
from tests.support.resends import resend

pytestmark = [pytest.mark.kafka, pytest.mark.early(2)]


def with_all_kinds(bootstrap_servers: str) -> Installation:
    """Dead letters with every status, and odd headers on some that are sent."""
    one = with_dead_letters(bootstrap_servers, 6)
    topic, lane = one.settings.names.dead_letter(GROUP), one.settings.names.delay(0)
    more: list[list[Header]] = [
        dead_letter_headers(0, REPLAY_TIMES="1", REPLAY_ID="old"),
        dead_letter_headers(1, REPLAY_TIMES="2", REPLAY_ID="old"),
        [*dead_letter_headers(7), ("REPLAY_TIMES", b"many")],
        [*dead_letter_headers(8), ("ORIGIN_MESSAGE_ID", b"\xff")],
        [*dead_letter_headers(9), ("RECONSUME_TIME", b"many"), ("BORN_TIMESTAMP", b"long ago")],
        dead_letter_headers(10, MAX_RECONSUME_TIMES="3", FIRST_FAILURE_TIMESTAMP="1700000000001", TAGS="a"),
        [("user", b"1"), ("__dlq.errors.message", b"no identity")],
        # Other messages with the same id, from a topic that was made again: both are sent.
        dead_letter_headers(12),
        dead_letter_headers(12, BORN_TIMESTAMP="1700000000001"),
        # Each of these pairs is one message, because an unknown time may be the same.
        dead_letter_headers(13),
        [*dead_letter_headers(13), ("BORN_TIMESTAMP", b"long ago")],
        [*dead_letter_headers(14), ("BORN_TIMESTAMP", b"long ago")],
        dead_letter_headers(14),
        # Sent again and capped are messages that are not these.
        dead_letter_headers(15),
        dead_letter_headers(16),
        # No column of Spark holds these numbers.
        dead_letter_headers(17, BORN_TIMESTAMP="1700000000000000", MAX_RECONSUME_TIMES="3000000000"),
        dead_letter_headers(16, BORN_TIMESTAMP="1700000000001", REPLAY_TIMES="2"),
    ]
    for headers in more:
        one.produce(topic, b"more", headers=headers)
    sent_again = [*dead_letter_headers(2, RECONSUME_TIME="0", REPLAY_TIMES="1", REPLAY_ID="friday")]
    one.produce(lane, b"by friday", headers=[*sent_again, ("REAL_TOPIC", f"%RETRY%{GROUP}".encode())])
    one.produce(
        lane,
        b"to all",
        headers=[*dead_letter_headers(3, RECONSUME_TIME="0", REPLAY_ID="x"), ("REAL_TOPIC", b"flights")],
    )
    later = dead_letter_headers(15, BORN_TIMESTAMP="1700000000001", RECONSUME_TIME="0", REPLAY_ID="x")
    one.produce(lane, b"another message", headers=[*later, ("REAL_TOPIC", f"%RETRY%{GROUP}".encode())])
    # Neither is a replay of this group: another's, and a send-back of a replayed message.
    other = dead_letter_headers(4, RECONSUME_TIME="0", REPLAY_ID="x")
    one.produce(lane, b"another's", headers=[*other, ("REAL_TOPIC", b"%RETRY%arrivals")])
    failed = dead_letter_headers(5, RECONSUME_TIME="1", REPLAY_ID="x")
    one.produce(lane, b"failed", headers=[*failed, ("REAL_TOPIC", f"%RETRY%{GROUP}".encode())])
    one.produce(topic, b"resolved", headers=dead_letter_headers(11))
    [resolved] = read_page(one.cluster, GROUP, DeadLetterFilter(message_id="flights/0/11")).records
    resolve(one.cluster, GROUP, [resolved.place], by="carol", why="x")
    [sent] = read_page(one.cluster, GROUP, DeadLetterFilter(message_id="flights/0/10")).records
    for key, value in (
        # What is no state leaves the one before.
        (str(resolved.key_of_state), "{"),
        (str(resolved.key_of_state), '{"state":"X","at":1}'),
        (str(sent.key_of_state), '{"state":"RESENT","by":"x"}'),
        (f"{topic}/9999999999/0/1", '{"state":"RESENT","at":1}'),
        (f"{topic}/0/0/1", '{"state":"RESENT","at":"soon"}'),
        (f"{topic}/0/0/2", '{"state":"RESENT","at":99999999999999999999}'),
        (f"{topic}/0/0/3", "{"),
    ):
        one.produce(one.settings.names.dead_letter_states, value.encode(), key=key.encode())
    return one


def test_they_decide_and_write_the_same(spark: SparkSession, bootstrap_servers: str, tmp_path: Path) -> None:
    by_spark, by_hand = (with_all_kinds(bootstrap_servers) for _ in range(2))
    places = [RecordAddress(one.partition, one.offset) for one in by_hand.dead_letters(GROUP)]
    job, _ = resend(by_hand.cluster, GROUP, places)
    plan = plan_replay(spark, bootstrap_servers, str(tmp_path), topic_prefix=by_spark.settings.topic_prefix)
    rows = records(spark, plan.folder).select("partition", "offset", "status", "message_id").collect()
    of_spark = {(row["partition"], row["offset"]): row["status"] for row in rows}
    verdicts: dict[tuple[int, ...], str] = {}
    draft = JobDraft("resend", GROUP, records=[RecordAddress(*place) for place in of_spark])
    plan_job(by_spark.cluster, draft, lambda one, status: verdicts.update({tuple(one.place): status}))
    assert verdicts == of_spark
    of_ids = {(row["message_id"], row["status"]) for row in rows}
    assert {status for message_id, status in of_ids if message_id in ("flights/0/12", "flights/0/15")} == {"send"}
    assert {status for message_id, status in of_ids if message_id == "flights/0/16"} == {"send", "capped"}
    for message_id in ("flights/0/13", "flights/0/14"):
        assert {status for one, status in of_ids if one == message_id} == {"send", "superseded"}
    assert set(of_spark.values()) == {"send", "superseded", "replayed", "resolved", "capped", "damaged"}

    run_replay(spark, bootstrap_servers, plan)
    for place, status in of_spark.items():
        state = read_one(by_spark.cluster, GROUP, RecordAddress(*place)).state
        expected = {"send": "RESENT", "resolved": "RESOLVED"}.get(status)
        assert (state and state.state) == expected, (place, status)
        assert state is None or state.state == "RESOLVED" or (state.by, state.job) == ("replay", plan.plan_id)

    def sent(one: Installation, replay_id: str) -> list[tuple[bytes, bytes, list[Header]]]:
        """What was written, but for its id, and for where a dead letter that has no identity stood: that is chance."""
        lane = [record for record in one.read(one.settings.names.delay(0)) if record["REPLAY_ID"] == replay_id]
        return sorted(
            (
                record.key or b"",
                record.value or b"",
                sorted(
                    (name, value or b"-")
                    for name, value in record.headers
                    if name != "REPLAY_ID" and not (value or b"").startswith(b"t")
                ),
            )
            for record in lane
        )

    assert len(sent(by_hand, job)) == list(of_spark.values()).count("send")
    assert sent(by_hand, job) == sent(by_spark, plan.plan_id)


def with_marks(spark: SparkSession, bootstrap_servers: str, folder: Path) -> Installation:
    """Dead letters with marks that are a minute old: one has its resend, two have none."""
    one = with_dead_letters(bootstrap_servers, 6)
    prefix, topic = one.settings.topic_prefix, one.settings.names.dead_letter(GROUP)
    where = "cause = 'timeout'"
    plan = plan_replay(spark, bootstrap_servers, str(folder), where=where, topic_prefix=prefix, plan_id="friday")
    run_replay(spark, bootstrap_servers, plan)
    a_minute_ago = int(time.time() * 1_000) - 60_000
    marked = {"flights/0/1": "friday", "flights/0/2": "friday", "flights/0/3": "monday"}
    for record in one.dead_letters(GROUP):
        if (job := marked.get(record["ORIGIN_MESSAGE_ID"] or "")) is not None:
            key = DeadLetterKey(topic, record.partition, record.offset, record.timestamp)
            state = encode_state(DeadLetterState("RESENT", a_minute_ago, "eve", job=job))
            one.produce(one.settings.names.dead_letter_states, state.encode(), key=str(key).encode())
    return one


def test_a_mark_without_its_resend_is_a_finding_unless_the_resend_may_be_deleted(
    spark: SparkSession, bootstrap_servers: str, tmp_path: Path
) -> None:
    one = with_marks(spark, bootstrap_servers, tmp_path / "plan")
    prefix, lane, known = one.settings.topic_prefix, one.settings.names.delay(0), partial(read_extents, one.cluster)
    found = reconcile(spark, bootstrap_servers, topic_prefix=prefix, extents=known)
    rows = found.findings.where("kind = 'NOT_RESENT'").collect()
    assert {row.origin_message_id for row in rows} == {"flights/0/2", "flights/0/3"}
    assert all(row.commands for row in rows)
    source = TopicSource.of(spark, bootstrap_servers, prefix)
    found.ledger.withColumn("findings", F.array_remove("findings", "NOT_RESENT")).write.parquet(
        str(tmp_path / "judged")
    )
    found.close()
    judged = spark.read.parquet(str(tmp_path / "judged"))

    def count(extents: ExtentsSince | None) -> int:
        checked = note_missing_resends(source, judged, int(time.time() * 1_000), extents)
        return checked.where(F.array_contains("findings", "NOT_RESENT")).count()

    assert count(None) == 2
    ends = {place: extent.end for place, extent in known(0).items() if place[0] == lane}
    admin = AdminClient({"bootstrap.servers": bootstrap_servers})
    for future in admin.delete_records([TopicPartition(*place, end) for place, end in ends.items()]).values():
        future.result()
    assert count(known) == 0
    for _, partition in ends:
        one.produce(lane, b"later", partition=partition)
    assert (count(known), count(None)) == (0, 0)
