"""Reconcile and replay with Spark at growing sizes: `python -m benchmarks.spark_scale [RECORDS …]`.

By default 1, 2 and 4 million records, which takes an hour or so. Each size has a Spark of its own, so that its peak of
memory is its own; the smallest gives the unit of "times the first".
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
from pathlib import Path

from benchmarks.memory import resident_mib
from benchmarks.ratios import spread
from benchmarks.spark_reconcile import measure_reconcile
from benchmarks.spark_replay import measure_replay
from reconsume.cli.broker.jars import NEWEST_KAFKA_VERSION
from reconsume.cli.broker.kafka import LocalKafka
from reconsume.cli.spark.session import local_session

SIZES = (1_000_000, 2_000_000, 4_000_000)
WORKS = {"reconcile": measure_reconcile, "replay": measure_replay}
BASELINES = {"reconcile": "a count that reads the headers", "replay": "a copy"}


def measure_one(name: str, bootstrap_servers: str, records: int) -> None:
    """In a process of its own: seconds of the work as the last line."""
    spark = local_session(
        print, master="local[2]", settings={"spark.driver.memory": "2g", "spark.sql.shuffle.partitions": "8"}
    )
    measured = WORKS[name](spark, bootstrap_servers, records)
    print(f"{name} of {records:,} records (min median max):")
    print(f"  seconds {spread(measured.work, '.1f')}; {BASELINES[name]} {spread(measured.baseline, '.1f')}")
    print(f"  as fast as {BASELINES[name]} times {spread(measured.ratios, '.2f')}")
    print(f"  peak memory of Spark's JVM {peak_of_spark():,.0f} MiB", flush=True)
    spark.stop()
    print(statistics.median(measured.work))


def peak_of_spark() -> float:
    """Peak resident memory of the child that runs Spark, in MiB (Linux)."""
    for child in Path(f"/proc/self/task/{os.getpid()}/children").read_text().split():
        if b"SparkSubmit" in Path(f"/proc/{child}/cmdline").read_bytes():
            return resident_mib(int(child))[1]
    raise RuntimeError("Spark's JVM is no child of this process")


def main() -> None:
    sizes = [int(one) for one in sys.argv[1:]] or list(SIZES)
    with LocalKafka(version=NEWEST_KAFKA_VERSION, progress=print) as kafka:
        for name in WORKS:
            first = 0.0
            for records in sizes:
                command = [sys.executable, "-m", "benchmarks.spark_scale", name, kafka.bootstrap_servers, str(records)]
                *lines, seconds = subprocess.run(
                    command, stdout=subprocess.PIPE, text=True, check=True
                ).stdout.splitlines()
                first = first or float(seconds)
                print("\n".join(line for line in lines if line.startswith((name, "  "))))
                print(f"  {float(seconds) / first:.2f} times the first, for {records / sizes[0]:.2f} times its records")


if __name__ == "__main__":
    if sys.argv[1:2] and sys.argv[1] in WORKS:
        measure_one(sys.argv[1], sys.argv[2], int(sys.argv[3]))
    else:
        main()
