"""Headers that are odd and legal are read as Python reads them, and the largest and smallest numbers stop no job.

In ANSI mode Spark raises an error at an overflow.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

import pytest
from pyspark.sql import Column, DataFrame, Row, SparkSession
from pyspark.sql import functions as F

from reconsume.delay_levels.rules.levels import DEFAULT_LEVEL_TABLE, DelayLevels
from reconsume.spark_connectors.reconcile.judged import LevelTables
from reconsume.spark_connectors.reconcile.records.records import read_records
from reconsume.spark_connectors.replay.selection import with_identity, with_message
from reconsume.spark_connectors.schema import typed
from reconsume.spark_connectors.source import TopicSource

LARGEST: Final = 2**31 - 1
RETRY: Final = {"REAL_TOPIC": "%RETRY%a", "ORIGIN_MESSAGE_ID": "flights/0/1"}
SMALLEST: Final = -(2**31)


@pytest.fixture(autouse=True, params=["true", "false"])
def ansi(spark: SparkSession, request: pytest.FixtureRequest) -> Iterator[None]:
    name = "spark.sql.ansi.enabled"
    before = spark.conf.get(name) or "true"
    spark.conf.set(name, request.param)
    yield
    spark.conf.set(name, before)


def headers_of(texts: Mapping[str, str]) -> Column:
    names = [
        F.struct(F.lit(name).alias("key"), F.lit(text).cast("binary").alias("value")) for name, text in texts.items()
    ]
    return F.array(*names)


def record(spark: SparkSession, topic: str, headers: Mapping[str, str]) -> DataFrame:
    """One record as Spark's Kafka source gives it."""
    columns = {
        "key": F.lit(None).cast("binary"),
        "value": F.lit("v").cast("binary"),
        "topic": F.lit(topic),
        "partition": F.lit(0),
        "offset": F.lit(5).cast("bigint"),
        "timestamp": F.timestamp_millis(F.lit(1_700_000_000_000)),
        "timestampType": F.lit(1),
        "headers": headers_of(headers),
    }
    return spark.range(1).select(*(column.alias(name) for name, column in columns.items()))


def as_reconcile_reads(spark: SparkSession, topic: str, headers: Mapping[str, str]) -> Row:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(TopicSource, "raw", lambda _self, **_options: record(spark, topic, headers))
        (row,) = read_records(TopicSource.of(spark, "b:9092", "p.")).collect()
    return row


@pytest.mark.parametrize(("count", "attempt"), [(7, 8), (LARGEST - 1, LARGEST), (LARGEST, None)])
def test_a_count_in_the_inbox_that_cannot_grow_is_unknown(spark: SparkSession, count: int, attempt: int | None) -> None:
    row = as_reconcile_reads(spark, "p.SEND_BACK", RETRY | {"RECONSUME_TIME": str(count)})
    assert (row.side, row.origin_message_id, row.attempt) == ("inbox", "flights/0/1", attempt)


@pytest.mark.parametrize(
    "odd",
    [
        {"ORIGIN_MESSAGE_ID": "id-\ufffd-7"},
        {"BORN_TIMESTAMP": "1700000000000000"},
        {"MAX_RECONSUME_TIMES": "2147483648"},
        {"TIMER_DELIVER_MS": "many"},
    ],
)
def test_an_attempt_with_odd_headers_has_its_identity_and_no_damage(spark: SparkSession, odd: dict[str, str]) -> None:
    headers = RETRY | {"RECONSUME_TIME": "1"} | odd
    row = as_reconcile_reads(spark, "p.DELAY.1s", headers)
    assert (row.side, row.origin_message_id, row.damage) == ("sent", headers["ORIGIN_MESSAGE_ID"], None)


@pytest.mark.parametrize("odd", [{"BORN_TIMESTAMP": "-1"}, {"MAX_RECONSUME_TIMES": "9223372036854775808"}])
def test_what_python_refuses_is_damage(spark: SparkSession, odd: dict[str, str]) -> None:
    assert as_reconcile_reads(spark, "p.DELAY.1s", RETRY | odd).damage == ", ".join(odd)


@pytest.mark.parametrize("mark", ["QUARANTINE_RELEASED", "QUARANTINE_RESOLVED"])
def test_only_a_mark_closes_a_quarantined_record(spark: SparkSession, mark: str) -> None:
    """A user's header of that name is on a record that has at least its reason, its origin and its time beside it."""
    row = as_reconcile_reads(spark, "p.QUARANTINE", {mark: "3"})
    assert (row.kind, row.origin_message_id) == ("released", "p.QUARANTINE/0/3")
    stays = {mark: "3", "QUARANTINE_REASON": "too large", "QUARANTINE_ORIGIN": "p.DELAY.1s/0/7"}
    row = as_reconcile_reads(spark, "p.QUARANTINE", RETRY | stays | {"QUARANTINE_TIMESTAMP": "1700000000000"})
    assert (row.kind, row.origin_message_id) == ("quarantine", "flights/0/1")
    assert as_reconcile_reads(spark, "p.QUARANTINE", {mark: "-3"}).kind == "quarantine"


@pytest.mark.parametrize(
    ("level", "wanted"), [(SMALLEST, -1), (-1, -1), (0, -1), (1, 1_000), (LARGEST, -1), (None, -1)]
)
def test_a_level_that_no_table_has_lasts_no_time(spark: SparkSession, level: int | None, wanted: int) -> None:
    tables = LevelTables(DelayLevels.parse(DEFAULT_LEVEL_TABLE))
    lasts = tables.wanted_ms(F.lit(level).cast("int"), F.timestamp_millis(F.lit(1_700_000_000_000)))
    assert spark.range(1).select(lasts).collect()[0][0] == wanted


def test_a_replay_keeps_numbers_that_no_column_holds(spark: SparkSession) -> None:
    kept = {"BORN_TIMESTAMP": "1700000000000000", "MAX_RECONSUME_TIMES": "2147483648"}
    dead = typed(record(spark, "p.DLQ.a", RETRY | kept), "p.")
    (row,) = with_message(with_identity(dead, "retry", None), "friday", "retry").collect()
    assert row.born is None
    assert {one.key: one.value.decode() for one in row.headers}.items() >= kept.items()


@pytest.mark.parametrize(("times", "header"), [(0, b"1"), (LARGEST, None)])
def test_a_dead_letter_that_was_replayed_too_often_stops_no_plan(
    spark: SparkSession, times: int, header: bytes | None
) -> None:
    columns = {
        "message_id": F.lit("flights/0/1"),
        "real_topic": F.lit("%RETRY%a"),
        "origin_topic": F.lit("flights"),
        "born": F.timestamp_millis(F.lit(1_700_000_000_000)),
        "replay_times": F.lit(times),
        "headers": headers_of({"REPLAY_TIMES": str(times)}),
    }
    planned = spark.range(1).select(*(column.alias(name) for name, column in columns.items()))
    (row,) = with_message(planned, "friday", "retry").collect()
    assert {one.key: one.value for one in row.headers}.get("REPLAY_TIMES") == header
