"""Rows that the driver knows, as a table."""

from __future__ import annotations

import pytest
from pyspark.sql import SparkSession

from reconsume.spark_connectors.session import local_rows


@pytest.mark.parametrize("rows", [[], [{"at": 2**62, "what": 'a"b\nü😀'}, {"at": -1}, {"what": ""}]])
def test_they_arrive_as_they_are_and_what_is_not_told_is_null(
    spark: SparkSession, rows: list[dict[str, object]]
) -> None:
    table = local_rows(spark, rows, "at BIGINT, what STRING")
    assert [tuple(row) for row in table.collect()] == [(row.get("at"), row.get("what")) for row in rows]


def test_many_of_them_arrive(spark: SparkSession) -> None:
    """As one text they would be more than Spark reads."""
    rows = [{"place": f"{'t' * 230}/0/{number}"} for number in range(100_000)]
    table = local_rows(spark, rows, "place STRING")
    assert table.selectExpr("count(DISTINCT place)").collect()[0][0] == 100_000
