"""Reconcile and replay with Spark, against a count that reads the headers and a copy from topic to topic.

    python -m benchmarks.spark reconcile|replay localhost:9092 20000 [local-cluster[3,1,1024]]

Both sides run in the same Spark. Each size has a Spark of its own, so that its peak of memory is its own. The run of a
replay is compared, which sends; its plan, which reads the dead letters and decides, is made once, when nobody waits.
"""

from __future__ import annotations

import datetime as dt
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any, Final, NamedTuple, cast

from confluent_kafka import Producer
from pyspark.sql import SparkSession

from benchmarks.harness.registry import CPU, RATE, Place, Sample, measurement
from benchmarks.installation import cpu_seconds, fill, install, make_stamped, resident_mib
from reconsume.bridge.groups.groups import Groups
from reconsume.bridge.kafka.admin import KafkaAdmin
from reconsume.bridge.process.settings import Settings
from reconsume.bridge.topics.topics import TopicMaker
from reconsume.cli.spark.session import local_session
from reconsume.spark_connectors import reconcile
from reconsume.spark_connectors.reconcile import Tolerances
from reconsume.spark_connectors.replay import ReplayPlan, plan_replay, run_replay
from reconsume.spark_connectors.session import RECORDS_OF_A_TASK
from reconsume.spark_connectors.source import FETCH_WAIT_MS, TopicSource

LARGE_SIZES: Final = (1_000_000, 2_000_000, 4_000_000)
TURNS: Final = int(os.environ.get("RECONSUME_BENCHMARK_TURNS", "3"))
GROUPS: Final = 8
_NEVER_LATE: Final = Tolerances(late=dt.timedelta(days=1))
"""The deliveries of a large history are written minutes after they are due."""
Headers = list[tuple[str, bytes]]


class Cost(NamedTuple):
    """Seconds, and the CPU seconds of all Java processes together."""

    seconds: float
    cpu: float


_Pair = tuple[Cost, Cost]
"""The costs of the baseline and of this project."""


def _attempts(count: int, *, skewed: bool = False) -> Iterator[tuple[str, Headers]]:
    """Yield send-backs: each message is sent back three times; skewed, nine of ten are of one group."""
    for number in range(count):
        origin, tries = divmod(number, 3)
        group = f"group-{0 if skewed and origin % 10 else origin % GROUPS}"
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


def history(settings: Settings, count: int, *, skewed: bool = False) -> None:
    """Write send-backs, then their deliveries, which are due by that time."""
    names = settings.names
    maker = TopicMaker(KafkaAdmin(settings.client_settings()), names, settings.topics)
    for number in range(GROUPS):
        maker.make(maker.retry_topic(f"group-{number}", Groups()))
    value = b"x" * 200
    producer = Producer(settings.client_settings() | {"linger.ms": 20, "compression.type": "lz4"})
    for deliver in (False, True):
        for group, headers in _attempts(count, skewed=skewed):
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


@measurement("spark", rounds=1)
def spark(place: Place) -> Iterator[Sample]:
    """Reconcile and replay of 200,000 records (with --large 1, 2 and 4 million), as ratios to a count and to a copy."""
    for work in (work for work in _WORKS if work != _SKEWED or place.large):
        for records in LARGE_SIZES if place.large else (place.size(200_000, 20_000),):
            command = [sys.executable, "-m", "benchmarks.spark", work, place.bootstrap_servers, str(records)]
            told = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout.splitlines()[-1]
            for figure, unit, value in json.loads(told):
                yield Sample(f"{work} of {records:,} records", figure, unit, value)


def _reconcile(spark: SparkSession, bootstrap_servers: str, records: int, *, skewed: bool = False) -> list[_Pair]:
    """Measure a history of this many records, two for each attempt."""
    settings = install(bootstrap_servers, "1s")
    history(settings, records // 2, skewed=skewed)

    options = {"kafka.bootstrap.servers": bootstrap_servers, "includeHeaders": "true", "startingOffsets": "earliest"}
    options |= {"kafka.isolation.level": "read_committed", "subscribePattern": settings.topic_prefix + ".*"}
    # As many tasks as a reconcile has, which wait as little.
    partitions = sum(
        count
        for topic, count in KafkaAdmin(settings.client_settings()).topics().items()
        if topic.startswith(settings.topic_prefix)
    )
    options |= {"minPartitions": str(partitions + 1), "maxRecordsPerPartition": str(RECORDS_OF_A_TASK)}
    options["kafka.fetch.max.wait.ms"] = FETCH_WAIT_MS

    def count() -> None:
        frame = spark.read.format("kafka").options(**options).load()
        frame.selectExpr("count(*)", "sum(size(headers))").first()

    def run() -> None:
        found = reconcile(spark, settings.bootstrap_servers, topic_prefix=settings.topic_prefix, tolerances=_NEVER_LATE)
        wrong = found.findings.count()
        found.close()
        if wrong:
            raise RuntimeError(f"{wrong} findings in a clean history")

    return _in_turns(count, run)


def _replay(spark: SparkSession, bootstrap_servers: str, records: int) -> list[_Pair]:
    """Measure this many dead letters."""
    settings = install(bootstrap_servers)
    dead, copy = settings.names.dead_letter("bench"), settings.names.retry("copy")
    make_stamped(settings, [dead, copy], partitions=4)
    fill(settings, [dead], records)
    source = TopicSource.of(spark, bootstrap_servers).raw([dead]).select("key", "value", "headers")
    sink = {"kafka.bootstrap.servers": bootstrap_servers, "topic": copy}

    def plan(folder: str) -> ReplayPlan:
        """Make a plan for a separate installation with empty delay topics, so that it sends all."""
        prefix = install(bootstrap_servers).topic_prefix
        return plan_replay(spark, bootstrap_servers, folder, topics=[dead], topic_prefix=prefix)

    with tempfile.TemporaryDirectory() as folder:
        plans = [plan(f"{folder}/{number}") for number in range(TURNS + 1)]

        def run() -> None:
            if run_replay(spark, bootstrap_servers, plans.pop()).sent != records:
                raise RuntimeError("a run has not sent everything")

        return _in_turns(lambda: source.write.format("kafka").options(**sink).save(), run)


_COUNT: Final = "a count that reads the headers"
_SKEWED: Final = "reconcile with 90 % in one group"
_Work = Callable[[SparkSession, str, int], list[_Pair]]
_WORKS: Final[dict[str, tuple[_Work, str]]] = {
    "reconcile": (_reconcile, _COUNT),
    _SKEWED: (partial(_reconcile, skewed=True), _COUNT),
    "replay": (_replay, "a copy"),
}


def _in_turns(baseline: Callable[[], None], work: Callable[[], None]) -> list[_Pair]:
    """Return the costs of both; each ran once before, so that code is compiled."""
    baseline()
    work()
    return [(_timed(baseline), _timed(work)) for _ in range(TURNS)]


def _timed(work: Callable[[], None]) -> Cost:
    java = spark_processes()
    began, cpu = time.perf_counter(), cpu_seconds(*java)
    work()
    return Cost(time.perf_counter() - began, cpu_seconds(*java) - cpu)


def spark_processes() -> list[int]:
    """Return the Java processes of this process: the driver, then its executors (Linux)."""
    parents: dict[int, int] = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):
            parents[int(stat.parent.name)] = int(stat.read_text().rpartition(")")[2].split()[1])
    found, new = set[int](), {os.getpid()}
    while new := {pid for pid, parent in parents.items() if parent in new}:
        found |= new
    return sorted(pid for pid in found if b"org.apache.spark." in Path(f"/proc/{pid}/cmdline").read_bytes())


def _spilled_mib(session: SparkSession) -> float:
    """Return what all stages wrote to disk because memory was short, in MiB."""
    gateway: Any = getattr(session.sparkContext, "_gateway", None)
    nothing, quantiles = gateway.jvm.java.util.ArrayList(), gateway.new_array(gateway.jvm.double, 0)
    store = gateway.jvm.org.apache.spark.SparkContext.getOrCreate().statusStore()
    stages = store.stageList(nothing, False, False, quantiles, nothing)
    return float(sum(stages.apply(number).diskBytesSpilled() for number in range(stages.size()))) / 1024**2


def _main(work: str, bootstrap_servers: str, records: int, master: str = "local[2]") -> None:
    """Measure one size; print the figures as the last line."""
    session = local_session(
        lambda line: print(line, file=sys.stderr),
        master=master,
        settings={"spark.driver.memory": "2g"},
    )
    run, baseline = _WORKS[work]
    told: list[tuple[str, str, float]] = []
    for other, own in run(session, bootstrap_servers, records):
        told += [(f"rate to {baseline}", RATE, other.seconds / own.seconds)]
        told += [(f"CPU to {baseline}", CPU, own.cpu / other.cpu)]
        for name, cost in ((work, own), (baseline, other)):
            told += [(name, "s", cost.seconds), (name, "s of CPU", cost.cpu)]
    told += [
        ("peak of Spark's JVM", "MiB", resident_mib(spark_processes()[0])[1]),
        ("spilled", "MiB", _spilled_mib(session)),
    ]
    session.stop()
    print(json.dumps(told))


if __name__ == "__main__":
    _main(sys.argv[1], sys.argv[2], int(sys.argv[3]), *sys.argv[4:])
