"""An installation of its own for one measurement: topics under a fresh prefix, records, a scheduler process."""

from __future__ import annotations

import os
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from confluent_kafka import OFFSET_BEGINNING, Consumer, Producer, TopicPartition

from reconsume.bridge.groups.groups import Groups, SystemConfig
from reconsume.bridge.groups.groups_store import write_system
from reconsume.bridge.kafka.admin import KafkaAdmin
from reconsume.bridge.kafka.cluster import Cluster
from reconsume.bridge.process.settings import Settings, TopicSettings
from reconsume.bridge.topics.topics import TopicMaker, wanted_topics

__all__ = [
    "LANE_PARTITIONS",
    "PAYLOAD",
    "cpu_seconds",
    "fill",
    "fill_ordinary",
    "install",
    "make_stamped",
    "produce_one",
    "read_all",
    "scheduler",
    "waiting_headers",
]

PAYLOAD = b"x" * 200
LANE_PARTITIONS = TopicSettings().delay_partitions + TopicSettings().bulk_partitions


def install(bootstrap_servers: str, table: str = "1s 2s") -> Settings:
    """Make all topics under a new prefix."""
    settings = Settings(bootstrap_servers=bootstrap_servers, topic_prefix=f"b{uuid.uuid4().hex[:6]}.")
    maker = TopicMaker(KafkaAdmin(settings.client_settings()), settings.names, settings.topics)
    system = SystemConfig(message_delay_level=table)
    for topic in wanted_topics(maker, Groups(system)):
        maker.make(topic)
    maker.make(maker.retry_topic("bench", Groups(system)))
    write_system(Cluster(settings), system)
    return settings


def waiting_headers(origin: str, offset: int, group: str = "bench") -> list[tuple[str, str | bytes | None]]:
    """The headers of a record that waits, as a consumer writes them."""
    return [
        ("RETRY_TOPIC", origin.encode()),
        ("ORIGIN_MESSAGE_ID", f"{origin}/0/{offset}".encode()),
        ("RECONSUME_TIME", b"1"),
        ("DELAY", b"1"),
        ("REAL_TOPIC", f"%RETRY%{group}".encode()),
        ("REAL_QID", b"0"),
        ("BORN_TIMESTAMP", b"1700000000000"),
        ("traceparent", b"00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"),
    ]


def fill(
    settings: Settings, topic: str, records: int, payload: bytes = PAYLOAD, groups: Sequence[str] = ("bench",)
) -> None:
    """Produce waiting records of some groups, in turns, as fast as it goes."""
    producer = Producer(settings.client_settings() | {"linger.ms": 20, "partitioner": "murmur2_random"})
    for number in range(records):
        produce_one(producer, topic, number, payload, groups[number % len(groups)])
    producer.flush()


def make_stamped(settings: Settings, topic: str) -> None:
    """Make a topic with one partition whose records have the brokers' timestamps."""
    KafkaAdmin(settings.client_settings()).create(topic, 1, -1, {"message.timestamp.type": "LogAppendTime"})


def cpu_seconds(pid: int) -> float:
    """What a process has taken so far, all its threads together."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def produce_one(
    producer: Producer, topic: str, number: int, payload: bytes = PAYLOAD, group: str = "bench", partition: int = -1
) -> None:
    """One waiting record; while the queue is full, serve and try again."""
    headers = waiting_headers("bench", number, group)
    while True:
        try:
            producer.produce(topic, payload, b"k%d" % number, partition, headers=headers)
        except BufferError:
            producer.poll(0.1)
        else:
            return


def fill_ordinary(settings: Settings, topic: str, records: int) -> None:
    """Make an ordinary topic with one partition and fill it."""
    KafkaAdmin(settings.client_settings()).create(topic, 1, -1, {})
    producer = Producer(settings.client_settings() | {"linger.ms": 20})
    for _ in range(records):
        while True:
            try:
                producer.produce(topic, PAYLOAD)
            except BufferError:
                producer.poll(0.1)
            else:
                break
    producer.flush()


@contextmanager
def scheduler(settings: Settings, allowed_real_topics: str = "", instance_id: str = "bench") -> Iterator[int]:
    """A scheduler worker in a process of its own; gives its process id."""
    worker = subprocess.Popen(
        [
            *(sys.executable, "-m", "reconsume", "scheduler", "--management", "127.0.0.1:0"),
            *("--bootstrap-servers", settings.bootstrap_servers, "--log-level", "ERROR", "--instance-id", instance_id),
        ],
        env={
            "RECONSUME_TOPIC_PREFIX": settings.topic_prefix,
            "RECONSUME_ALLOWED_REAL_TOPICS": allowed_real_topics,
            "PATH": "/usr/bin:/bin",
        },
    )
    try:
        yield worker.pid
    finally:
        worker.terminate()
        worker.wait()


def read_all(settings: Settings, topics: dict[str, int], records: int) -> Iterator[tuple[str, bytes | None, int]]:
    """(topic, key, timestamp) of committed records from the beginning on, until so many were read."""
    consumer = Consumer(
        settings.client_settings()
        | {"group.id": "bench-reader", "enable.auto.commit": False, "auto.offset.reset": "earliest"}
    )
    consumer.assign(
        [TopicPartition(name, one, OFFSET_BEGINNING) for name, count in topics.items() for one in range(count)]
    )
    deadline, seen = time.monotonic() + 120, 0
    while seen < records and time.monotonic() < deadline:
        for message in consumer.consume(5_000, 0.2):
            if message.error() is None:
                seen += 1
                yield message.topic() or "", message.key(), message.timestamp()[1]
    consumer.close()
