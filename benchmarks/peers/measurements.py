"""Peers on the same Kafka, and the copy loops of other languages as the limit."""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
import uuid
from collections.abc import Iterator
from pathlib import Path

import confluent_kafka

from benchmarks.harness.registry import RATE, Place, Sample, measurement
from benchmarks.installation import fill, installed, make_stamped
from benchmarks.peers import rocketmq  # noqa: F401  # registers its measurements
from benchmarks.peers.maven import HERE, class_path, run_java
from benchmarks.scheduler.throughput import BARE, append_rate


@measurement("peer-spring", is_peer=True)
def spring(place: Place) -> Iterator[Sample]:
    """Spring Kafka's non-blocking retries (4.0): a retry topic of 2 s, with and without seeking back after an error."""
    path, seconds = class_path("spring"), place.size(15, 3)
    for case, *arguments in (
        ("backlog of 30, defaults", "seek", "backlog", 30),
        ("backlog, setSeekAfterError(false)", "keep", "backlog", place.size(10_000, 1_000)),
        ("steady, 10/s, defaults", "seek", "steady", 10 * seconds, 10),
        ("steady, 100/s, setSeekAfterError(false)", "keep", "steady", 100 * seconds, 100),
        ("steady, 1,000/s, setSeekAfterError(false)", "keep", "steady", 1_000 * seconds, 1_000),
    ):
        for told in run_java(path, "SpringBench", place.bootstrap_servers, *map(str, arguments)):
            yield Sample(case, *told)


@measurement("peer-parallel-consumer", is_peer=True)
def parallel_consumer(place: Place) -> Iterator[Sample]:
    """Confluent's parallel-consumer (0.5): retries after 2 s from memory."""
    path, seconds = class_path("parallel"), place.size(15, 3)
    for case, *arguments in (
        ("backlog", "backlog", place.size(50_000, 5_000)),
        ("steady, 100/s", "steady", 100 * seconds, 100),
        ("steady, 1,000/s", "steady", 1_000 * seconds, 1_000),
    ):
        for told in run_java(path, "ParallelBench", place.bootstrap_servers, *map(str, arguments)):
            yield Sample(case, *told)


@measurement("peer-share-group", is_peer=True)
def share_group(place: Place) -> Iterator[Sample]:
    """A share group of Kafka 4.3 that releases each record once; redelivery is immediate, without a delay."""
    records = str(place.size(50_000, 5_000))
    for told in run_java(class_path("kafka"), "ShareBench", place.bootstrap_servers, records):
        yield Sample("backlog, each released once", *told)


@measurement("peer-copy", rounds=5, is_peer=True)
def copy(place: Place) -> Iterator[Sample]:
    """Bare copy loops in transactions of 5,000 as the limit: Python, Java, C."""
    with tempfile.TemporaryDirectory() as folder, installed(place.bootstrap_servers) as settings:
        lane, records = settings.names.delay(1_000), place.size(200_000, 50_000)
        fill(settings, [lane], records)
        programs = {
            "Python": [sys.executable, "-c", BARE],
            "Java": ["java", "-Xmx2g", "-cp", class_path("kafka"), "CopyBench"],
            "C": [str(_compiled(Path(folder)))],
        }
        rates = {}
        for language in place.in_turn(programs):
            name = f"{settings.topic_prefix}{language}-{uuid.uuid4().hex[:6]}"
            make_stamped(settings, [name])
            arguments = [place.bootstrap_servers, name, lane, name, str(records)]
            told = subprocess.run([*programs[language], *arguments], check=True, stdout=subprocess.PIPE, text=True)
            rates[language] = append_rate(settings, [name], records)
            yield Sample(language, "copied", "records/s", rates[language])
            yield Sample(language, "CPU", "s per million", float(told.stdout) / records * 1e6)
    for language in ("Java", "C"):
        yield Sample(language, "rate to the loop in Python", RATE, rates[language] / rates["Python"])


def _compiled(folder: Path) -> Path:
    """Compile the loop in C against the librdkafka of confluent-kafka's wheel."""
    if shutil.which("gcc") is None:
        raise RuntimeError("the copy loop in C needs gcc")
    package = Path(confluent_kafka.__file__).parent
    (library,) = package.with_name("confluent_kafka.libs").glob("librdkafka-*.so*")
    made = folder / "copy"
    command = ["gcc", "-O2", "-o", str(made), str(HERE / "copy.c"), str(library), f"-Wl,-rpath,{library.parent}"]
    subprocess.run(command, check=True)
    return made
