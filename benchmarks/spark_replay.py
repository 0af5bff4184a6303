"""Replay with Spark against a plain Kafka-to-Kafka copy of the same dead letters in the same session.

Both have read the same records with their headers, and write them with Spark's own sink. The run, which sends, is
compared; the plan, which reads the dead letters and decides, is made once, when nobody waits.
"""

from __future__ import annotations

import tempfile

from pyspark.sql import SparkSession

from benchmarks.installation import fill, install
from benchmarks.ratios import ROUNDS, Measured, in_turns, spread
from reconsume.bridge.kafka.admin import KafkaAdmin
from reconsume.cli.spark.session import local_session
from reconsume.spark_connectors.replay import ReplayPlan, plan_replay, run_replay
from reconsume.spark_connectors.source import TopicSource

RECORDS = 200_000


def measure_replay(spark: SparkSession, bootstrap_servers: str, records: int) -> Measured:
    """A copy and a run of so many dead letters."""
    settings = install(bootstrap_servers)
    admin, names = KafkaAdmin(settings.client_settings()), settings.names
    dead, copy = names.dead_letter("bench"), names.retry("copy")
    for topic in (dead, copy):
        admin.create(topic, 4, -1, {"message.timestamp.type": "LogAppendTime"})
    fill(settings, dead, records)
    source = TopicSource.of(spark, bootstrap_servers).raw([dead]).select("key", "value", "headers")
    sink = {"kafka.bootstrap.servers": bootstrap_servers, "topic": copy}
    with tempfile.TemporaryDirectory() as folder:
        plans = [_plan(spark, bootstrap_servers, f"{folder}/{number}", dead) for number in range(ROUNDS + 1)]
        return in_turns(
            lambda: source.write.format("kafka").options(**sink).save(),
            lambda: _run(spark, bootstrap_servers, plans.pop(), records),
        )


def _plan(spark: SparkSession, bootstrap_servers: str, folder: str, dead: str) -> ReplayPlan:
    """A plan of an installation of its own, on whose lane there is nothing yet: it sends all."""
    settings = install(bootstrap_servers)
    return plan_replay(spark, bootstrap_servers, folder, topics=[dead], topic_prefix=settings.topic_prefix)


def _run(spark: SparkSession, bootstrap_servers: str, plan: ReplayPlan, records: int) -> None:
    if run_replay(spark, bootstrap_servers, plan).sent != records:
        raise RuntimeError("a run has not sent everything")


def measure_spark_replay(bootstrap_servers: str) -> None:
    """Print records per second of the copy, and the ratio of the run to it."""
    spark = local_session(print, settings={"spark.driver.memory": "2g", "spark.sql.shuffle.partitions": "4"})
    measured = measure_replay(spark, bootstrap_servers, RECORDS)
    copied = [RECORDS / seconds for seconds in measured.baseline]
    print(f"replay of {RECORDS:,}, min median max: copy {spread(copied, ',.0f')}/s")
    print(f"  run/copy {spread(measured.ratios, '.2f')}")
    spark.stop()
