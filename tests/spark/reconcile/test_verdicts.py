"""Verdicts and figures of a few rows without Kafka, and of topics that keep what producers' clocks say."""

from __future__ import annotations

import datetime as dt
from typing import Any, Final

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from reconsume.delay_levels.rules.levels import DEFAULT_LEVEL_TABLE, DelayLevels
from reconsume.spark_connectors import reconcile
from reconsume.spark_connectors.reconcile.judged import AttemptFacts, LevelTables, Tolerances
from reconsume.spark_connectors.reconcile.ledger import as_findings
from reconsume.spark_connectors.reconcile.records import records, second_look
from reconsume.spark_connectors.reconcile.records.attempts import gather_attempts, pair_attempts
from reconsume.spark_connectors.reconcile.summary import first_findings, summarise
from reconsume.spark_connectors.reconcile.verdicts import AttemptJudge
from reconsume.spark_connectors.report import render_report
from reconsume.spark_connectors.session import local_rows
from reconsume.spark_connectors.source import TopicSource
from tests.spark.histories.copies import Copy, write
from tests.spark.histories.lived import Lived

NOW: Final = dt.datetime(2026, 11, 21, 8, tzinfo=dt.UTC)
NOW_MS: Final = int(NOW.timestamp() * 1_000)
MINUTE_MS: Final = 60_000
NAMED: Final = "`group` STRING, origin_message_id STRING, replay_times INT, attempt INT, "
RECORDS: Final = NAMED + (
    "side STRING, kind STRING, kafka_topic STRING, partition INT, offset BIGINT, appended BIGINT, due BIGINT, "
    "level INT, delay_ms BIGINT, dead BOOLEAN, astray BOOLEAN, replayed BOOLEAN, damage STRING, stamp BIGINT, "
    "deliveries INT, cause STRING, released STRING, by_producer BOOLEAN"
)
LEDGER: Final = NAMED + (
    "copy INT, level INT, delay_ms BIGINT, dead BOOLEAN, inbox_topic STRING, inbox_partition INT, inbox_offset BIGINT, "
    "asked BIGINT, sent_topic STRING, sent_partition INT, sent_offset BIGINT, appended BIGINT, due BIGINT, "
    "released STRING, target_topic STRING, target_partition INT, target_offset BIGINT, delivered BIGINT, "
    "lateness_ms BIGINT, outcome STRING, consumed BOOLEAN, cause STRING, damage STRING, findings ARRAY<STRING>, "
    "notes ARRAY<STRING>"
)


def row(number: int, **more: Any) -> dict[str, Any]:
    return {"group": "g", "origin_message_id": f"flights/0/{number}", "replay_times": 0, "attempt": 1} | more


def frame(spark: SparkSession, schema: str, *rows: dict[str, Any]) -> DataFrame:
    """Times of rows are numbers."""
    times = ("asked", "appended", "due", "delivered") if schema == LEDGER else ("appended", "due")
    return local_rows(spark, rows, schema).withColumns({name: F.timestamp_millis(name) for name in times})


def test_a_delivery_after_the_time_of_the_run_may_be_early(spark: SparkSession) -> None:
    """The next run of a ledger knows the attempt as settled, so this run reports it."""
    told = {"partition": 0, "offset": 1, "level": 14, "delay_ms": 10 * MINUTE_MS, "dead": False, "astray": False}
    told |= {"replayed": False, "stamp": 7, "by_producer": False, "due": NOW_MS + 9 * MINUTE_MS}
    sent = row(1, side="sent", kind="delay", kafka_topic="p.DELAY.10m", appended=NOW_MS - MINUTE_MS, **told)
    arrived = row(1, side="arrived", kind="retry", kafka_topic="p.RETRY.g", appended=NOW_MS + MINUTE_MS, **told)
    pairs = pair_attempts(gather_attempts(frame(spark, RECORDS, sent, arrived)))
    pairs = pairs.withColumns({"paired": F.lit(None).cast("string"), "is_held": F.lit(False)})
    tables, facts = LevelTables(DelayLevels.parse(DEFAULT_LEVEL_TABLE)), AttemptFacts({}, surplus=0)
    judged = AttemptJudge(NOW_MS, tables, Tolerances(), facts).judge(pairs)
    assert [tuple(one) for one in judged.select("outcome", "findings").collect()] == [("moved", ["EARLY"])]


def test_inbox_records_whose_copies_are_behind_open_transactions_are_not_lost(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of the copy, or also of the delivery, committed readers see nothing; a visible send-back forgives no loss."""
    lost = {"outcome": "lost", "findings": ["LOST"]}
    copied, delivered, alone, visible = (row(number) for number in range(4))
    ledger = frame(
        spark, LEDGER, *(one | lost for one in (copied, delivered, alone)), visible | lost | {"sent_offset": 5}
    )
    sides = [one | {"side": "sent"} for one in (copied, delivered, visible)]
    sides += [delivered | {"side": "arrived"}, alone | {"side": "inbox"}]
    monkeypatch.setattr(second_look, "read_records", lambda _source: frame(spark, RECORDS, *sides))
    source = TopicSource.of(spark, "b:9092", "p.")
    rows = second_look.forgive_deliveries_in_flight(source, ledger, NOW_MS, 4).collect()
    found = {int(one.origin_message_id[-1]): (one.outcome, one.findings) for one in rows}
    assert found == {0: ("waiting", []), 1: ("waiting", []), 2: ("lost", ["LOST"]), 3: ("lost", ["LOST"])}


def test_absurd_times_of_producers_stop_neither_figures_nor_report(spark: SparkSession) -> None:
    """One wrote microseconds for milliseconds, another one seconds."""
    told = {"copy": 0, "dead": False, "sent_offset": 5, "outcome": "waiting", "findings": []}
    told["notes"] = ["PRODUCERS_TIME"]
    times = (NOW_MS, NOW_MS * 1_000, NOW_MS // 1_000)
    rows = [row(number, appended=at, delivered=at, **told) for number, at in enumerate(times)]
    ledger = frame(spark, LEDGER, *rows)
    figures = summarise(ledger, NOW, None)
    day = figures["times"]["step_ms"]
    assert [bar["at_ms"] for bar in figures["times"]["bars"]] == [at // day * day for at in (times[2], NOW_MS)]
    findings, notes = (as_findings(ledger, name, "b:9092") for name in ("findings", "notes"))
    shown = first_findings(findings, notes, 50)
    known = {one["origin_message_id"][-1]: (one["appended"], one["delivered"]) for one in shown}
    assert [number for number, at in known.items() if at == (None, None)] == ["1"]
    assert len(known) == 3
    page = render_report(figures, shown, bootstrap_servers="b:9092", topic_prefix="p.")
    assert page.count("<rect") == page.count('<text class="tick"') - 3 == 2  # three of the grid


@pytest.mark.kafka
@pytest.mark.more
def test_times_of_producers_are_told_and_not_judged(
    spark: SparkSession, lived: Lived, taken: Copy, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Send-backs of the next hour, and deliveries of yesterday: only what was delivered nowhere is known."""
    monkeypatch.setattr(records, "PRODUCERS_TIME", 0)
    copy = Copy(taken.partitions, [])
    for one in taken.records:
        # A copy is an hour earlier.
        ahead, behind = one.topic.startswith("DELAY."), one.topic.startswith(("RETRY.", "DLQ."))
        later_ms = 110 * MINUTE_MS if ahead else -1_440 * MINUTE_MS if behind else 0
        copy.records.append(one.changed(later_ms=later_ms))
    missing = copy.of("RETRY.")[3]
    copy.records.remove(missing)
    prefix = write(lived.bootstrap_servers, copy)
    ends = {(prefix + topic, number): 10**6 for topic, count in copy.partitions.items() for number in range(count)}
    found = reconcile(spark, lived.bootstrap_servers, topic_prefix=prefix, committed={prefix + "scheduler": ends})
    findings = [(row.kind, row.group, row.origin_message_id, row.attempt) for row in found.findings.collect()]
    figures = summarise(found.ledger, found.now, found.since)
    late = found.ledger.where("lateness_ms IS NOT NULL").count()
    found.close()
    assert findings == [("LOST", *missing.attempt)]
    assert figures["notes"] == {"PRODUCERS_TIME": len(copy.of("DELAY."))}
    assert figures["attempts"] == figures["moved"] + figures["dead"] + 1 == len(copy.of("DELAY."))
    assert late == 0
