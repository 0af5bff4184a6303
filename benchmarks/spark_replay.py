"""Replay with Spark, as a ratio to a plain Kafka-to-Kafka copy of the same dead letters in the same session.

Both read or have read the same records with their headers and write them with Spark's own sink. The plan, which reads
the dead letters and decides, and the run, which sends, are told apart: a plan is made once, when nobody waits.
"""

from __future__ import annotations

import tempfile
import time

from benchmarks.installation import fill, install
from reconsume.bridge.admin import KafkaAdmin
from reconsume.cli.spark.session import local_session
from reconsume.spark_connectors.readers import read_raw
from reconsume.spark_connectors.replay import plan_replay, run_replay

RECORDS = (100_000, 200_000, 400_000)
ROUNDS = 2


def measure_spark_replay(bootstrap_servers: str) -> None:
    """Print records per second of copy, plan and run, for a growing number of dead letters."""
    spark = local_session(print, settings={"spark.driver.memory": "2g", "spark.sql.shuffle.partitions": "4"})
    for records in (2_000, *RECORDS):  # the first warms the JVM up
        settings = install(bootstrap_servers)
        admin, names = KafkaAdmin(settings.client_settings()), settings.names
        dead, copy = names.dead_letter("bench"), names.retry("copy")
        log_append = {"message.timestamp.type": "LogAppendTime"}
        admin.create(dead, 4, -1, log_append)
        admin.create(copy, 4, -1, log_append)
        fill(settings, dead, records)
        best = 0.0
        for _round in range(ROUNDS):
            started = time.monotonic()
            source = read_raw(spark, bootstrap_servers, topics=[dead]).select("key", "value", "headers")
            sink = {"kafka.bootstrap.servers": bootstrap_servers, "topic": copy}
            source.write.format("kafka").options(**sink).save()
            best = max(best, records / (time.monotonic() - started))
        with tempfile.TemporaryDirectory() as folder:
            started = time.monotonic()
            plan = plan_replay(
                spark, bootstrap_servers, f"{folder}/plan", groups=["bench"], topic_prefix=settings.topic_prefix
            )
            planned = time.monotonic()
            sent = run_replay(spark, bootstrap_servers, plan).sent
            ran = time.monotonic()
        assert sent == records
        print(
            f"replay of {records:,}: copy {best:,.0f}/s, plan {records / (planned - started):,.0f}/s, "
            f"run {records / (ran - planned):,.0f}/s, run/copy {records / (ran - planned) / best:.2f}"
        )
    spark.stop()
