"""Reconcile against a count that reads the headers of the same topics, in the same Spark.

`python -m benchmarks.spark_reconcile [ATTEMPTS …]`; by default 250,000, 500,000 and 1,000,000 attempts, of two records
each.
"""

from __future__ import annotations

import os
import re
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, cast

from confluent_kafka import Producer
from pyspark.sql import SparkSession

from benchmarks.installation import install
from reconsume.bridge.admin import KafkaAdmin
from reconsume.bridge.groups import Groups
from reconsume.bridge.settings import Settings
from reconsume.bridge.topics import TopicMaker
from reconsume.cli.broker.kafka import LocalKafka
from reconsume.cli.spark.session import local_session
from reconsume.spark_connectors import read_kinds, reconcile

GROUPS = 8
RUNS = 3
Headers = list[tuple[str, bytes]]


def attempts(count: int) -> Iterator[tuple[str, Headers]]:
    """Every message is sent back three times: three attempts of one origin."""
    for number in range(count):
        origin, tries = divmod(number, 3)
        group = f"group-{origin % GROUPS}"
        yield (
            group,
            [
                ("trace", b"00-0af7651916cd43dd8448eb211c80319c"),
                ("RETRY_TOPIC", b"flights"),
                ("ORIGIN_MESSAGE_ID", f"flights/{origin % 12}/{origin}".encode()),
                ("RECONSUME_TIME", str(tries + 1).encode()),
                ("DELAY", b"1"),
                ("REAL_TOPIC", f"%RETRY%{group}".encode()),
                ("REAL_QID", b"0"),
                ("BORN_TIMESTAMP", b"1700000000000"),
            ],
        )


def fill(settings: Settings, count: int) -> None:
    """Send-backs, then their deliveries, which are due by then."""
    names = settings.names
    maker = TopicMaker(KafkaAdmin(settings.client_settings()), names, settings.topics)
    for number in range(GROUPS):
        maker.make(maker.retry_topic(f"group-{number}", Groups()))
    value = b"x" * 200
    producer = Producer(settings.client_settings() | {"linger.ms": 20, "compression.type": "lz4"})
    for deliver in (False, True):
        for group, headers in attempts(count):
            topic = names.retry(group) if deliver else names.delay(1_000)
            while True:
                try:
                    producer.produce(topic, value, b"key", headers=cast("Any", headers))
                except BufferError:
                    producer.poll(0.1)
                else:
                    break
            producer.poll(0)
        if producer.flush(120):
            raise RuntimeError("the brokers do not keep up")
        time.sleep(1.5)


def count_headers(spark: SparkSession, settings: Settings) -> int:
    frame = read_kinds(spark, settings.bootstrap_servers, topic_prefix=settings.topic_prefix)
    return int(frame.selectExpr("count(*)", "sum(size(headers))").first()[0])  # type: ignore[index]


def run_reconcile(spark: SparkSession, settings: Settings) -> int:
    found = reconcile(spark, settings.bootstrap_servers, topic_prefix=settings.topic_prefix)
    wrong = found.findings.where("kind <> 'LATE'").count()
    found.close()
    if wrong:
        raise RuntimeError(f"{wrong} findings in a clean history")
    return wrong


def timed(work: Callable[[SparkSession, Settings], object], spark: SparkSession, settings: Settings) -> float:
    began = time.perf_counter()
    work(spark, settings)
    return time.perf_counter() - began


def measure_reconcile(bootstrap_servers: str, sizes: list[int]) -> None:
    """Print seconds and records per second of both, and their ratio, for each size."""
    spark = local_session(
        print, master="local[2]", settings={"spark.sql.shuffle.partitions": "8", "spark.driver.memory": "2g"}
    )
    for count in sizes:
        settings = install(bootstrap_servers, "1s")
        fill(settings, count)
        records = 2 * count
        # The first of each compiles what the others use; the two take turns, so that a busy machine meets both.
        count_headers(spark, settings), run_reconcile(spark, settings)
        pairs = [(timed(count_headers, spark, settings), timed(run_reconcile, spark, settings)) for _ in range(RUNS)]
        counts, runs = (statistics.median(one) for one in zip(*pairs, strict=True))
        ratio = statistics.median(count / run for count, run in pairs)
        print(
            f"{records:,} records: count {counts:.1f} s ({records / counts:,.0f}/s), reconcile {runs:.1f} s "
            f"({records / runs:,.0f}/s), ratio {ratio:.2f}"
        )
    print(f"peak memory of Spark's JVM: {peak_of_spark():.0f} MiB")
    spark.stop()


def peak_of_spark() -> float:
    """Peak resident memory of the child that runs Spark, in MiB (Linux)."""
    for child in Path(f"/proc/self/task/{os.getpid()}/children").read_text().split():
        if b"SparkSubmit" in Path(f"/proc/{child}/cmdline").read_bytes():
            (peak,) = re.findall(r"VmHWM:\s+(\d+)", Path(f"/proc/{child}/status").read_text())
            return int(peak) / 1024
    raise RuntimeError("Spark's JVM is no child of this process")


def main() -> None:
    sizes = [int(one) for one in sys.argv[1:]] or [250_000, 500_000, 1_000_000]
    with LocalKafka(progress=print) as kafka:
        measure_reconcile(kafka.bootstrap_servers, sizes)


if __name__ == "__main__":
    main()
