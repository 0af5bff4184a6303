"""A daily run that is added to a ledger of a year, against one that is added to a ledger of ten days.

The history is simulated: the rows of a real run, moved to each day before it. The runs that are timed are real ones,
with new records and a delivery that no send-back explains, so that earlier runs are searched for it.

    python -m benchmarks.spark_ledger localhost:9092
"""

from __future__ import annotations

import json
import os
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, Final, cast

from confluent_kafka import Producer
from pyspark.sql import Column, SparkSession
from pyspark.sql import functions as F

from benchmarks.installation import cpu_seconds, install
from benchmarks.spark import history, spark_processes
from reconsume.bridge.process.settings import Settings
from reconsume.cli.spark.session import local_session
from reconsume.spark_connectors import reconcile
from reconsume.spark_connectors.reconcile.records.ledger_log import DAY_MS

RUNS: Final = (10, 365)
TURNS: Final = int(os.environ.get("RECONSUME_BENCHMARK_TURNS", "5"))
_A_DAY: Final = 5_000
"""Attempts of a simulated day."""
_NEW: Final = 1_000


def simulate(spark: SparkSession, folder: Path, days: int) -> None:
    """Add this many earlier runs to the ledger's only run, one a day, all with its name."""
    (settled,) = folder.glob("settled/day=*/run=*")
    earlier = spark.range(1, days).select((F.col("id") * DAY_MS).alias("ago"))
    rows = spark.read.parquet(str(settled)).crossJoin(F.broadcast(earlier))
    moved = {
        name: F.timestamp_millis(F.unix_millis(name) - F.col("ago"))
        for name in ("asked", "appended", "due", "delivered")
    }
    rows = rows.withColumns(
        moved | {"run": F.col("run") - F.col("ago"), "origin_message_id": F.concat_ws("-", "origin_message_id", "ago")}
    )
    rows = rows.withColumns(
        {"seen_ms": F.col("seen_ms") - F.col("ago"), "name": F.lit(settled.name[4:]), "day": _day()}
    ).drop("ago")
    rows = rows.repartition("day").sortWithinPartitions("day", "bucket")
    rows.write.mode("append").partitionBy("day", "name").parquet(str(folder / "settled"))
    for one in folder.glob("settled/day=*/name=*"):
        one.rename(one.with_name(settled.name))
    log = spark.read.parquet(str(folder / "log")).drop("day").where("done").crossJoin(F.broadcast(earlier))
    log = log.withColumns({"run": F.col("run") - F.col("ago"), "continues": F.col("ago").cast("string")})
    log = log.drop("ago").withColumn("day", _day())
    log.write.mode("append").partitionBy("day").parquet(str(folder / "log"))


def _day() -> Column:
    return F.date_format(F.timestamp_millis("run"), "yyyy-MM-dd")


def _produce_duplicate(settings: Settings, number: int) -> None:
    producer = Producer(settings.client_settings())
    headers = [
        ("ORIGIN_MESSAGE_ID", f"flights/{number * 8 % 12}/{number * 8}".encode()),
        ("RECONSUME_TIME", b"1"),
        ("DELAY", b"1"),
    ]
    producer.produce(settings.names.retry("group-0"), b"x" * 200, b"key", headers=cast("Any", headers))
    producer.flush(30)


def _main(bootstrap_servers: str) -> None:
    """Print seconds of a run, and of its Java's CPU, for both ledgers, as the last line."""
    spark = local_session(
        lambda line: print(line, file=sys.stderr),
        master="local[2]",
        settings={"spark.driver.memory": "2g"},
    )
    settings = install(bootstrap_servers, "1s")
    history(settings, _A_DAY)
    java = spark_processes()

    def run(folder: Path) -> tuple[float, float]:
        began, cpu = time.perf_counter(), cpu_seconds(*java)
        reconcile(spark, settings.bootstrap_servers, topic_prefix=settings.topic_prefix, ledger=str(folder)).close()
        return time.perf_counter() - began, cpu_seconds(*java) - cpu

    measured: dict[int, list[tuple[float, float]]] = {runs: [] for runs in RUNS}
    with tempfile.TemporaryDirectory() as place:
        for runs in RUNS:
            run(Path(place, str(runs)))
            simulate(spark, Path(place, str(runs)), runs)
        for turn in range(TURNS + 1):
            history(settings, _NEW)
            _produce_duplicate(settings, turn)
            for runs in RUNS if turn % 2 else RUNS[::-1]:
                measured[runs].append(run(Path(place, str(runs))))
                print(runs, *measured[runs][-1], file=sys.stderr)
    spark.stop()
    told = {}
    for number, figure in enumerate(("s", "s of CPU")):
        by_runs = {runs: [one[number] for one in values[1:]] for runs, values in measured.items()}
        few, many = (statistics.median(by_runs[runs]) for runs in RUNS)
        told[figure] = by_runs | {"ratio of the medians": many / few}
    print(json.dumps(told))


if __name__ == "__main__":
    _main(sys.argv[1])
