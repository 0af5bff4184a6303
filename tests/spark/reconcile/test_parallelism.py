"""Tasks follow what there is to be read, whatever partitions it is on."""

from __future__ import annotations

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from reconsume.spark_connectors import read_kinds, read_retries
from reconsume.spark_connectors.session import (
    RECORDS_OF_A_TASK,
    cores_of,
    rows_to_read,
    runs_tasks_once,
    spread,
    tasks_of,
)
from tests.spark.histories.lived import MESSAGES, Lived

pytestmark = pytest.mark.kafka
RETRIES = MESSAGES // 4 * 5  # of n % 4 failures each, at most two are retries


def test_the_only_partition_of_a_busy_group_is_read_by_several_tasks(spark: SparkSession, lived: Lived) -> None:
    def tasks(**options: str) -> int:
        frame = read_retries(
            spark, lived.bootstrap_servers, lived.groups[1:], topic_prefix=lived.prefix, options=options
        )
        rows = frame.groupBy(F.spark_partition_id()).count().collect()
        assert sum(row["count"] for row in rows) == RETRIES
        return len(rows)

    setting, cores = "spark.sql.shuffle.partitions", cores_of(spark)
    before = spark.conf.get(setting)
    spark.conf.set(setting, "3")
    try:
        assert tasks() == (cores or 3)  # Spark Connect does not tell its cores
    finally:
        spark.conf.set(setting, before or "200")
    assert tasks(maxRecordsPerPartition="100", minPartitions="2") >= RETRIES // 100
    assert tasks(minPartitions="1") == 1


def test_what_is_split_tells_about_how_much_will_be_read(spark: SparkSession, lived: Lived) -> None:
    options = {"minPartitions": "500", "maxRecordsPerPartition": "100"}
    few = read_kinds(spark, lived.bootstrap_servers, topic_prefix=lived.prefix, options={"minPartitions": "1"})
    many = read_kinds(spark, lived.bootstrap_servers, topic_prefix=lived.prefix, options=options)
    partitions, tasks = tasks_of(few), tasks_of(many)
    assert partitions is not None
    assert tasks is not None
    assert tasks > partitions
    assert rows_to_read(many, partitions) == (tasks - partitions) * RECORDS_OF_A_TASK
    assert rows_to_read(few, partitions) == 0


def test_kafka_is_read_without_rows_of_java_objects(
    spark: SparkSession, lived: Lived, capsys: pytest.CaptureFixture[str]
) -> None:
    setting = "spark.sql.sources.useV1SourceList"
    before = spark.conf.get(setting, None)
    read_retries(spark, lived.bootstrap_servers, topic_prefix=lived.prefix).explain()
    assert "BatchScan" in capsys.readouterr().out
    assert spark.conf.get(setting, None) == before


@pytest.mark.parametrize(("rows", "partitions"), [(None, 1), (0, 1), (250_000, 1), (600_000, 3)])
def test_shuffles_have_as_many_partitions_as_the_rows_need(
    spark: SparkSession, rows: int | None, partitions: int
) -> None:
    frame = spark.range(0, 1_000, 1, 4)
    assert spread(frame, rows, "id").rdd.getNumPartitions() == partitions
    in_order = spread(frame, rows, "id", in_order=True)
    bounds = in_order.groupBy(F.spark_partition_id()).agg(F.min("id"), F.max("id")).orderBy("min(id)").collect()
    assert [row[1] for row in bounds[1:]] == [row[2] + 1 for row in bounds[:-1]]


@pytest.mark.parametrize(
    ("master", "once"),
    [
        ("local", True),
        ("local[4]", True),
        ("local[*]", True),
        ("local[2,4]", False),
        ("local-cluster[3,1,1024]", False),
    ],
)
def test_only_local_masters_run_a_failed_task_once(master: str, once: bool) -> None:
    assert runs_tasks_once(master) is once
