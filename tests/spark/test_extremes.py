"""Headers with the largest and the smallest numbers stop no job: in ANSI mode Spark raises an error at an overflow."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

import pytest
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from reconsume.delay_levels.rules.levels import DEFAULT_LEVEL_TABLE, DelayLevels
from reconsume.spark_connectors.reconcile.judged import LevelTables
from reconsume.spark_connectors.reconcile.records.records import _columns
from reconsume.spark_connectors.replay.selection import with_message
from reconsume.spark_connectors.schema import typed

LARGEST: Final = 2**31 - 1
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


@pytest.mark.parametrize(("count", "attempt"), [(7, 8), (LARGEST - 1, LARGEST), (LARGEST, None)])
def test_a_count_in_the_inbox_that_cannot_grow_is_unknown(spark: SparkSession, count: int, attempt: int | None) -> None:
    headers = {"REAL_TOPIC": "%RETRY%a", "ORIGIN_MESSAGE_ID": "flights/0/1", "RECONSUME_TIME": str(count)}
    early = {"stamp": "bigint", "source": "string", "mark": "bigint", "went_to": "string"}
    raw = record(spark, "p.SEND_BACK", headers).withColumns({name: F.lit(None).cast(of) for name, of in early.items()})
    rows = typed(raw, "p.", more=("timestampType", *early)).withColumn("damage", F.lit(""))
    (row,) = rows.select(*_columns("p.")).collect()
    assert (row.side, row.origin_message_id, row.attempt) == ("inbox", "flights/0/1", attempt)


@pytest.mark.parametrize(
    ("level", "wanted"), [(SMALLEST, -1), (-1, -1), (0, -1), (1, 1_000), (LARGEST, -1), (None, -1)]
)
def test_a_level_that_no_table_has_lasts_no_time(spark: SparkSession, level: int | None, wanted: int) -> None:
    tables = LevelTables(DelayLevels.parse(DEFAULT_LEVEL_TABLE))
    lasts = tables.wanted_ms(F.lit(level).cast("int"), F.timestamp_millis(F.lit(1_700_000_000_000)))
    assert spark.range(1).select(lasts).collect()[0][0] == wanted


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
