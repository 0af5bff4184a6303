"""Verdicts on a few rows, without Kafka."""

from __future__ import annotations

import datetime as dt
from typing import Any, Final

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from reconsume.delay_levels.rules.levels import DEFAULT_LEVEL_TABLE, DelayLevels
from reconsume.spark_connectors.reconcile.judged import AttemptFacts, LevelTables, Tolerances
from reconsume.spark_connectors.reconcile.records.attempts import gather_attempts, pair_attempts
from reconsume.spark_connectors.reconcile.verdicts import AttemptJudge
from reconsume.spark_connectors.session import local_rows

NOW_MS: Final = int(dt.datetime(2026, 11, 21, 8, tzinfo=dt.UTC).timestamp() * 1_000)
MINUTE_MS: Final = 60_000
NAMED: Final = "`group` STRING, origin_message_id STRING, replay_times INT, attempt INT, "
RECORDS: Final = NAMED + (
    "side STRING, kind STRING, kafka_topic STRING, partition INT, offset BIGINT, appended BIGINT, due BIGINT, "
    "level INT, delay_ms BIGINT, dead BOOLEAN, astray BOOLEAN, replayed BOOLEAN, damage STRING, stamp BIGINT, "
    "deliveries INT, cause STRING, released STRING, by_producer BOOLEAN"
)


def row(number: int, **more: Any) -> dict[str, Any]:
    return {"group": "g", "origin_message_id": f"flights/0/{number}", "replay_times": 0, "attempt": 1} | more


def frame(spark: SparkSession, schema: str, *rows: dict[str, Any]) -> DataFrame:
    """Times of rows are numbers."""
    times = ("appended", "due")
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
