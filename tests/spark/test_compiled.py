"""What Spark makes of our steps: methods that Java compiles, headers that are taken apart once, policies in a table."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from reconsume.delay_levels.errors import IllegalSetting
from reconsume.delay_levels.rules.levels import DEFAULT_LEVEL_TABLE, DelayLevels
from reconsume.delay_levels.rules.retry_policies import exponential_policy
from reconsume.spark_connectors import read_delays, reconcile
from reconsume.spark_connectors.reconcile.judged import LevelTables
from reconsume.spark_connectors.replay import plan_replay
from reconsume.spark_connectors.session import small_methods
from tests.spark.histories.lived import Lived

pytestmark = pytest.mark.kafka

LIMIT = "spark.sql.codegen.hugeMethodLimit"


@pytest.mark.parametrize("before", [None, "12345"])
def test_the_limit_holds_inside_and_what_was_there_before_holds_after(spark: SparkSession, before: str | None) -> None:
    default = spark.conf.get(LIMIT, None)
    if before is not None:
        spark.conf.set(LIMIT, before)
    try:
        with suppress(ZeroDivisionError), small_methods(spark):
            assert spark.conf.get(LIMIT) == "8000"
            raise ZeroDivisionError
        assert spark.conf.get(LIMIT, None) == (before or default)
    finally:
        spark.conf.unset(LIMIT)


def test_reconcile_holds_it_while_it_works(spark: SparkSession, lived: Lived) -> None:
    before, seen = spark.conf.get(LIMIT, None), set[str | None]()

    def ends(step: str) -> None:
        seen.add(spark.conf.get(LIMIT, None))
        if step == "judging the attempts":
            raise IllegalSetting(step)

    with pytest.raises(IllegalSetting, match="judging"):
        reconcile(spark, lived.bootstrap_servers, topic_prefix=lived.prefix, progress=ends)
    assert (seen, spark.conf.get(LIMIT, None)) == ({"8000"}, before)


def test_the_plan_of_a_replay_holds_it_while_it_is_made(
    spark: SparkSession, lived: Lived, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = set[str | None]()
    read = "reconsume.spark_connectors.replay.plan.records"

    def records(session: SparkSession, folder: str) -> object:
        seen.add(session.conf.get(LIMIT, None))
        return session.read.parquet(f"{folder}/records")

    monkeypatch.setattr(read, records)
    plan_replay(spark, lived.bootstrap_servers, str(tmp_path / "plan"), topic_prefix=lived.prefix)
    assert seen == {"8000"}


def test_a_filter_stays_above_the_headers_that_are_taken_apart(
    spark: SparkSession, lived: Lived, capsys: pytest.CaptureFixture[str]
) -> None:
    """Below, it would take them apart for itself, once for each column that it uses."""
    delays = read_delays(spark, lived.bootstrap_servers, topic_prefix=lived.prefix)
    delays.where("target = '%RETRY%a' and attempt > 1").select("group").explain(extended=True)
    optimized = capsys.readouterr().out.split("== Optimized Logical Plan ==")[1].split("== Physical Plan ==")[0]
    apart = optimized.index(" AS _raw_REAL_TOPIC#")
    assert "Filter (" in optimized[:apart]
    assert "_raw_REAL_TOPIC" in optimized[optimized.index("Filter (") : apart]
    assert "Filter (" not in optimized[apart:]


def test_any_number_of_retry_policies_is_one_table(spark: SparkSession) -> None:
    """A condition for each of 2,000 groups overflows the stack of Spark's optimizer."""
    policies = {f"g{number}": (exponential_policy(1_000 + number), number % 2 * 100_000) for number in range(2_000)}
    tables = LevelTables(DelayLevels.parse(DEFAULT_LEVEL_TABLE), 0, policies)
    rows = [("g0", 1, 0), ("g1999", 2, 160_000), ("g1999", 2, 159_999), ("g1998", 99, 0), ("other", 3, 0), (None, 1, 0)]
    pairs = spark.createDataFrame(rows, "group STRING, level INT, sent_ms BIGINT")
    wanted = tables.wanted_ms(F.col("level"), F.timestamp_millis("sent_ms"))
    found = tables.with_policies(pairs).select("group", "level", "sent_ms", wanted.alias("wanted")).collect()
    assert {tuple(row) for row in found} == {
        ("g0", 1, 0, 1_000),
        ("g1999", 2, 160_000, 5_998),
        ("g1999", 2, 159_999, None),
        ("g1998", 99, 0, -1),
        ("other", 3, 0, 10_000),
        (None, 1, 0, 1_000),
    }
