"""Records per second and CPU per record of scheduler workers, against a bare transactional consume-produce loop.

Both move the same backlog, with its headers, in transactions of 5,000, a process each. The rate is taken between the
first and the last append of what they wrote. For many groups the bare loop also finds each record's target by its
header and writes to as many topics; the loop that writes all of them to one topic stands beside it.
"""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass
from typing import Final

from confluent_kafka import Consumer, TopicPartition

from benchmarks.harness.registry import CPU, RATE, Place, Sample, measurement
from benchmarks.installation import (
    LANE_PARTITIONS,
    READ_SECONDS,
    Told,
    cpu_seconds,
    fill,
    installed,
    make_stamped,
    read_all,
    resident_mib,
    scheduler,
)
from reconsume.bridge.kafka.admin import KafkaAdmin
from reconsume.bridge.process.settings import Settings

LATE_SECONDS: Final = 6.0
"""How long the backlog is overdue when workers start."""
IN_TIME_LEVEL: Final = 8
"""Seconds until the backlog that a running worker waits for becomes due: longer than it takes to write it."""
ALL_GROUPS: Final = 200

BARE: Final = """
import sys, time
from confluent_kafka import Consumer, Producer, TopicPartition
servers, name, sources, target, wanted = *sys.argv[1:5], int(sys.argv[5])
consumer = Consumer({"bootstrap.servers": servers, "group.id": name, "auto.offset.reset": "earliest",
                     "enable.auto.commit": False, "isolation.level": "read_committed"})
producer = Producer({"bootstrap.servers": servers, "transactional.id": name, "linger.ms": 1,
                     "retry.backoff.ms": 1, "retry.backoff.max.ms": 10, "queue.buffering.max.messages": 200000})
producer.init_transactions()
sources = sources.split(",")
source = sources[0]
consumer.subscribe(sources)
done = 0
cpu = None
while done < wanted:
    first = consumer.poll(1)
    if first is None:
        continue
    cpu = cpu or time.process_time()
    batch = [one for one in (first, *consumer.consume(5000, 0)) if one.error() is None]
    if not batch:
        continue
    offsets = {}
    producer.begin_transaction()
    for one in batch:
        producer.produce(target, one.value(), one.key(), headers=one.headers(), partition=0)
        offsets[one.partition()] = one.offset() + 1
    where = [TopicPartition(source, partition, offset) for partition, offset in offsets.items()]
    producer.send_offsets_to_transaction(where, consumer.consumer_group_metadata())
    producer.commit_transaction()
    done += len(batch)
print(time.process_time() - cpu)
consumer.close()
"""
"""One source and one target: the least that a copy needs."""

SEVERAL_SOURCES: Final = BARE.replace("offsets[one.partition()] =", "offsets[one.topic(), one.partition()] =").replace(
    "TopicPartition(source, partition, offset) for partition, offset in",
    "TopicPartition(*partition, offset) for partition, offset in",
)
SEVERAL_TARGETS: Final = SEVERAL_SOURCES.replace(
    "producer.produce(target, one.value(), one.key(), headers=one.headers(), partition=0)",
    """headers = one.headers()
        producer.produce(targets[headers[4][1]], one.value(), one.key(), headers=headers, partition=0)""",
).replace(
    "done = 0\n",
    """done = 0
targets = dict(one.encode().split(b"=") for one in target.split(","))
targets = {group: topic.decode() for group, topic in targets.items()}
""",
)


@dataclass(frozen=True, slots=True)
class Case:
    """A backlog and the programs that move it."""

    levels: int = 1
    workers: int = 1
    groups: int = 1
    in_time: bool = False

    def __str__(self) -> str:
        counted = (f"{self.levels} level", self.levels), (f"{self.workers} worker", self.workers)
        words = [what + "s" * (count > 1) for what, count in counted]
        return ", ".join(
            [*words, f"{self.groups} group" + "s" * (self.groups > 1), "in time" if self.in_time else "late"]
        )

    @property
    def seconds(self) -> list[int]:
        """Return the levels' durations."""
        return [IN_TIME_LEVEL] if self.in_time else list(range(1, self.levels + 1))

    @property
    def group_names(self) -> list[str]:
        """Return the groups; the first is there in every case."""
        return ["bench", *(f"bench-{number}" for number in range(1, self.groups))]


FULL: Final = (
    Case(),
    Case(levels=4),
    Case(levels=18),
    Case(workers=2),
    Case(levels=4, workers=2),
    Case(groups=ALL_GROUPS),
    Case(groups=ALL_GROUPS, workers=2),
    Case(in_time=True),
    Case(groups=ALL_GROUPS, in_time=True),
)
QUICK: Final = (Case(), Case(groups=20))


@measurement("throughput", rounds=5, quick_rounds=2)
def throughput(place: Place) -> Iterator[Sample]:
    """Scheduler workers against a bare copy loop: levels, workers, groups, late and in time."""
    records = place.size(200_000, 100_000)
    for case in QUICK if place.quick else FULL:
        yield from _measure(place, case, records)


def _measure(place: Place, case: Case, records: int) -> Iterator[Sample]:
    with installed(place.bootstrap_servers, " ".join(f"{one}s" for one in case.seconds)) as settings:
        backlog = _Backlog(settings, case, records)
        if case.in_time:
            # Workers run before there is a backlog, so the loop can only follow.
            ours = backlog.delivered()
            bare = backlog.copied()
        else:
            backlog.write()
            time.sleep(max(case.seconds) + LATE_SECONDS)
            if place.turn % 2:
                bare = backlog.copied()
                ours = backlog.delivered()
            else:
                ours = backlog.delivered()
                bare = backlog.copied()
    yield from _samples(str(case), *ours, *bare)


def _samples(case: str, worker: Told, peak: float, same: Told, one_target: Told | None = None) -> Iterator[Sample]:
    yield Sample(case, "rate to the bare loop", RATE, worker.rate / same.rate)
    yield Sample(case, "CPU to the bare loop", CPU, worker.cpu / same.cpu)
    if one_target is not None:
        yield Sample(case, "rate to the bare loop with one target", RATE, worker.rate / one_target.rate)
        yield Sample(case, "CPU to the bare loop with one target", CPU, worker.cpu / one_target.cpu)
    yield Sample(case, "scheduler", "records/s", worker.rate)
    yield Sample(case, "bare loop", "records/s", same.rate)
    yield Sample(case, "scheduler's CPU", "s per million", worker.cpu * 1e6)
    yield Sample(case, "bare loop's CPU", "s per million", same.cpu * 1e6)
    yield Sample(case, "a worker's peak of memory", "MiB", peak)


class _Backlog:
    """Records of some groups on some levels, and both ways to move them."""

    def __init__(self, settings: Settings, case: Case, records: int) -> None:
        self._settings = settings
        self._case = case
        self._records = records
        self._lanes = [settings.names.delay(one * 1_000) for one in case.seconds]
        self._retry = [settings.names.retry(name) for name in case.group_names]
        make_stamped(settings, self._retry)

    def write(self) -> None:
        """Write the backlog."""
        fill(self._settings, self._lanes, self._records, groups=self._case.group_names)

    def delivered(self) -> tuple[Told, float]:
        """Let workers deliver the backlog; return their rate and CPU, and the largest peak of memory in MiB."""
        with ExitStack() as stack:
            names = [f"w{one}" for one in range(self._case.workers)]
            workers = [stack.enter_context(scheduler(self._settings, instance_id=name)) for name in names]
            if self._case.in_time:
                for one in workers:
                    one.seconds_until("/readyz")
                self.write()
            admin, pids = KafkaAdmin(self._settings.client_settings()), [one.pid for one in workers]
            before = cpu_seconds(*pids)
            while not sum(admin.end_offsets([(self._retry[0], 0)]).values()):
                time.sleep(0.001)
                before = cpu_seconds(*pids)  # of before the answer, which may take as long as the delivery
            self._wait_until_committed()
            spent, peak = cpu_seconds(*pids) - before, max(resident_mib(one)[1] for one in pids)
        return Told(append_rate(self._settings, self._retry, self._records), spent / self._records), peak

    def _wait_until_committed(self) -> None:
        """Wait until the workers are done, without reading their output, which would take a core from them."""
        group = {"group.id": self._settings.names.scheduler_group}
        lanes = [TopicPartition(lane, one) for lane in self._lanes for one in range(LANE_PARTITIONS)]
        with closing(Consumer(self._settings.client_settings() | group)) as asking:
            deadline = time.monotonic() + READ_SECONDS
            while sum(max(0, one.offset) for one in asking.committed(lanes, READ_SECONDS)) < self._records:
                if time.monotonic() > deadline:
                    raise TimeoutError(f"the workers did not deliver {self._records:,} records")
                time.sleep(0.05)

    def copied(self) -> list[Told]:
        """Let the loop copy the backlog to as many targets; for many groups also to a single target."""
        single = [self._settings.names.retry("bench") + ".bare"]
        one_target = BARE if self._case.levels == 1 else SEVERAL_SOURCES
        if self._case.groups == 1:
            return [self._copied(one_target, single, single[0])]
        topics = {f"%RETRY%{name}": self._settings.names.retry(name) + ".each" for name in self._case.group_names}
        mapped = ",".join(f"{group}={topic}" for group, topic in topics.items())
        return [
            self._copied(SEVERAL_TARGETS, list(topics.values()), mapped),
            self._copied(one_target, single, single[0]),
        ]

    def _copied(self, program: str, topics: Sequence[str], target: str) -> Told:
        make_stamped(self._settings, topics)
        arguments = (self._settings.bootstrap_servers, f"{topics[0]}.loop", ",".join(self._lanes), target)
        command = [sys.executable, "-c", program, *arguments, str(self._records)]
        cpu = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout
        return Told(append_rate(self._settings, topics, self._records), float(cpu) / self._records)


def append_rate(settings: Settings, topics: Sequence[str], records: int) -> float:
    """Return records per second between the first and the last append."""
    times = [timestamp for _, _, timestamp in read_all(settings, dict.fromkeys(topics, 1), records)]
    if len(times) != records:
        raise RuntimeError(f"{len(times):,} of {records:,} records arrived in {topics[0]}")
    return records / ((max(times) - min(times)) / 1000)
