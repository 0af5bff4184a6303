"""Reconcile against a count that reads the headers of the same topics, in the same Spark; see `spark_scale`."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any, cast

from confluent_kafka import Producer
from pyspark.sql import SparkSession

from benchmarks.installation import install
from benchmarks.ratios import Measured, in_turns
from reconsume.bridge.groups.groups import Groups
from reconsume.bridge.kafka.admin import KafkaAdmin
from reconsume.bridge.process.settings import Settings
from reconsume.bridge.topics.topics import TopicMaker
from reconsume.spark_connectors import read_kinds, reconcile

GROUPS = 8
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


def measure_reconcile(spark: SparkSession, bootstrap_servers: str, records: int) -> Measured:
    """Both on a history of so many records, two for each attempt."""
    settings = install(bootstrap_servers, "1s")
    fill(settings, records // 2)
    return in_turns(lambda: count_headers(spark, settings), lambda: run_reconcile(spark, settings))
