"""An installation for one measurement: topics under a prefix of its own, records, scheduler processes."""

from __future__ import annotations

import os
import subprocess
import sys
import time
import urllib.request
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from confluent_kafka import OFFSET_BEGINNING, Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient

from reconsume.bridge.groups.groups import Groups, SystemConfig
from reconsume.bridge.groups.groups_store import write_system
from reconsume.bridge.kafka.admin import KafkaAdmin
from reconsume.bridge.kafka.cluster import Cluster
from reconsume.bridge.process.settings import Settings, TopicSettings
from reconsume.bridge.topics.topics import TopicMaker, wanted_topics
from reconsume.cli.broker.ports import free_port

__all__ = [
    "LANE_PARTITIONS",
    "PAYLOAD",
    "READ_SECONDS",
    "Told",
    "Worker",
    "cpu_seconds",
    "fill",
    "fill_ordinary",
    "install",
    "installed",
    "make_stamped",
    "produce_one",
    "read_all",
    "resident_mib",
    "run_program",
    "scheduler",
    "waiting_headers",
]

PAYLOAD: Final = b"x" * 200
LANE_PARTITIONS: Final = TopicSettings().delay_partitions + TopicSettings().bulk_partitions
READY_SECONDS: Final = 60.0
READ_SECONDS: Final = 240.0


@dataclass(frozen=True, slots=True)
class Told:
    """The figures that a program reports about itself.

    Attributes:
        rate: records per second.
        cpu: seconds of its process for a record, all threads together.
    """

    rate: float
    cpu: float


@dataclass(frozen=True, slots=True)
class Worker:
    """A scheduler process, with its management address."""

    pid: int
    management: str

    def seconds_until(self, path: str) -> float:
        """Wait until `/livez` or `/readyz` answers 200; return the seconds since this call.

        Raises:
            TimeoutError: it never does.
        """
        began = time.monotonic()
        while (passed := time.monotonic() - began) < READY_SECONDS:
            with suppress(OSError), urllib.request.urlopen(f"http://{self.management}{path}", timeout=5) as answer:
                if answer.status == 200:
                    return passed
            time.sleep(0.01)
        raise TimeoutError(f"the worker is not {path} within {READY_SECONDS:.0f} s")


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


@contextmanager
def installed(bootstrap_servers: str, table: str = "1s 2s") -> Iterator[Settings]:
    """Like `install`, but deletes the topics at the end, so that they do not affect the next measurement."""
    settings = install(bootstrap_servers, table)
    try:
        yield settings
    finally:
        client = AdminClient(settings.client_settings())
        prefix = settings.topic_prefix[:-1]
        if ours := [name for name in client.list_topics(timeout=30).topics if name.startswith(prefix)]:
            for deleted in client.delete_topics(ours, operation_timeout=30).values():
                deleted.result()


def waiting_headers(origin: str, offset: int, group: str = "bench") -> list[tuple[str, str | bytes | None]]:
    """Return the headers of a waiting record, as a consumer writes them."""
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
    settings: Settings,
    topics: Sequence[str],
    records: int,
    payload: bytes = PAYLOAD,
    groups: Sequence[str] = ("bench",),
) -> None:
    """Produce waiting records for some groups to some delay topics, in turns, as fast as possible."""
    producer = Producer(settings.client_settings() | {"linger.ms": 20, "partitioner": "murmur2_random"})
    for number in range(records):
        produce_one(producer, topics[number % len(topics)], number, payload, groups[number % len(groups)])
    producer.flush()


def produce_one(
    producer: Producer,
    topic: str,
    number: int,
    payload: bytes = PAYLOAD,
    group: str = "bench",
    partition: int = -1,
    more: Sequence[tuple[str, str | bytes | None]] = (),
) -> None:
    """Produce a waiting record, with `more` headers; while the queue is full, serve and try again."""
    headers = [*waiting_headers("bench", number, group), *more]
    while True:
        try:
            producer.produce(topic, payload, b"k%d" % number, partition, headers=headers)
        except BufferError:
            producer.poll(0.1)
        else:
            return


def fill_ordinary(settings: Settings, topic: str, records: int, partitions: int = 1) -> None:
    """Make an ordinary topic and fill it."""
    KafkaAdmin(settings.client_settings()).create(topic, partitions, -1, {})
    producer = Producer(settings.client_settings() | {"linger.ms": 20})
    for number in range(records):
        while True:
            try:
                producer.produce(topic, PAYLOAD, b"k%d" % number)
            except BufferError:
                producer.poll(0.1)
            else:
                break
    producer.flush()


def make_stamped(settings: Settings, topics: Sequence[str], partitions: int = 1) -> None:
    """Make topics whose records have the brokers' timestamps."""
    admin = KafkaAdmin(settings.client_settings())
    for topic in topics:
        admin.create(topic, partitions, -1, {"message.timestamp.type": "LogAppendTime"})


def cpu_seconds(*pids: int) -> float:
    """Return the CPU time of processes so far, all their threads together (Linux)."""
    total = 0.0
    for pid in pids:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        total += (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
    return total


def resident_mib(pid: int) -> tuple[float, float]:
    """Return the resident memory of a process, now and at its peak (Linux)."""
    status = dict(line.split(":", 1) for line in Path(f"/proc/{pid}/status").read_text().splitlines() if ":" in line)
    now, peak = (int(status[name].split()[0]) / 1024 for name in ("VmRSS", "VmHWM"))
    return now, peak


@contextmanager
def scheduler(settings: Settings, allowed_real_topics: str = "", instance_id: str = "bench") -> Iterator[Worker]:
    """Run a scheduler worker in a process of its own."""
    management = f"127.0.0.1:{free_port()}"
    process = subprocess.Popen(
        [
            *(sys.executable, "-m", "reconsume", "scheduler", "--management", management),
            *("--bootstrap-servers", settings.bootstrap_servers, "--log-level", "ERROR", "--instance-id", instance_id),
        ],
        env={
            "RECONSUME_TOPIC_PREFIX": settings.topic_prefix,
            "RECONSUME_ALLOWED_REAL_TOPICS": allowed_real_topics,
            "PATH": "/usr/bin:/bin",
            "PYTHONPATH": os.environ.get("PYTHONPATH", ""),
        },
    )
    try:
        yield Worker(process.pid, management)
    finally:
        process.terminate()
        process.wait()


def run_program(program: str, *arguments: str) -> Told:
    """Run a program in a process of its own; it prints its rate and its CPU time for a record."""
    done = subprocess.run(
        [sys.executable, "-c", program, *arguments], check=True, stdout=subprocess.PIPE, text=True
    ).stdout
    return Told(*map(float, done.split()[-2:]))


def read_all(settings: Settings, topics: dict[str, int], records: int) -> Iterator[tuple[str, bytes | None, int]]:
    """Yield (topic, key, timestamp) of committed records from the beginning, until this many were read."""
    consumer = Consumer(
        settings.client_settings()
        | {"group.id": "bench-reader", "enable.auto.commit": False, "auto.offset.reset": "earliest"}
    )
    consumer.assign(
        [TopicPartition(name, one, OFFSET_BEGINNING) for name, count in topics.items() for one in range(count)]
    )
    deadline, seen = time.monotonic() + READ_SECONDS, 0
    while seen < records and time.monotonic() < deadline:
        for message in consumer.consume(5_000, 0.2):
            if message.error() is None:
                seen += 1
                yield message.topic() or "", message.key(), message.timestamp()[1]
    consumer.close()
