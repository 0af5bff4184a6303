"""What two workers take of a machine: idle, at steady rates, and when much is due at once.

    python -m benchmarks.sizing

RocketMQ's level table, four partitions for each delay topic, records of 1,000 bytes with our headers. CPU is what the
kernel counts for the workers' processes, so other work on the machine changes it little.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import ExitStack

import psutil
from confluent_kafka import Producer

from benchmarks.installation import fill, install, produce_one, read_all, scheduler
from benchmarks.memory import resident_mib
from benchmarks.ratios import ROUNDS, spread
from reconsume.bridge.process.settings import Settings
from reconsume.cli.broker.jars import NEWEST_KAFKA_VERSION
from reconsume.cli.broker.kafka import LocalKafka
from reconsume.delay_levels.rules.levels import DEFAULT_LEVEL_TABLE

PAYLOAD = b"x" * 1_000
LEVEL_MS = 1_000
SETTLE_SECONDS, IDLE_SECONDS, LOAD_SECONDS = 20.0, 60.0, 30.0
RATES, BACKLOG = (10, 100, 1_000, 10_000), 200_000


class Workers:
    """Two of them.

    Attributes:
        settings: of their installation.
    """

    def __init__(self, settings: Settings, pids: Sequence[int]) -> None:
        self.settings = settings
        self._processes = [psutil.Process(pid) for pid in pids]
        self._moved = 0

    def cpu(self) -> float:
        """Seconds so far, of both together."""
        return sum(times.user + times.system for times in (one.cpu_times() for one in self._processes))

    def mib(self) -> tuple[float, float]:
        """Resident now, and at their peaks; of the larger one."""
        now, peak = zip(*(resident_mib(one.pid) for one in self._processes), strict=True)
        return max(now), max(peak)

    def await_moved(self, records: int) -> None:
        """Until so many more have come to the retry topic."""
        self._moved += records
        topic = self.settings.names.retry("bench")
        seen = sum(1 for _ in read_all(self.settings, {topic: 1}, self._moved))
        assert seen == self._moved, f"{seen} of {self._moved} records arrived"


def measure_idle(workers: Workers) -> None:
    """Print the share of a core that they take with nothing to do."""
    shares = []
    for _ in range(ROUNDS):
        before = workers.cpu()
        time.sleep(IDLE_SECONDS)
        shares.append((workers.cpu() - before) / IDLE_SECONDS * 100)
    print(f"idle: {spread(shares, '.2f')} % of a core for both; {workers.mib()[0]:.0f} MiB in the larger one")


def measure_rate(workers: Workers, per_second: int) -> None:
    """Print the share of a core that they take while so many records are moved each second."""
    shares = []
    for _ in range(ROUNDS):
        before, began = workers.cpu(), time.monotonic()
        records = _produce_steadily(workers.settings, per_second)
        passed = time.monotonic() - began
        workers.await_moved(records)
        shares.append((workers.cpu() - before) / passed * 100)
    print(f"{per_second:,} per second: {spread(shares, '.2f')} % of a core for both; {workers.mib()[0]:.0f} MiB")


def measure_backlog(workers: Workers) -> None:
    """Print what each record costs when many are due at once."""
    costs = []
    for _ in range(ROUNDS):
        before = workers.cpu()
        fill(workers.settings, workers.settings.names.delay(LEVEL_MS), BACKLOG, PAYLOAD)
        workers.await_moved(BACKLOG)
        costs.append((workers.cpu() - before) / BACKLOG * 1e6)
    print(f"{BACKLOG:,} at once: {spread(costs, '.1f')} us of a core for each; at most {workers.mib()[1]:.0f} MiB")


def _produce_steadily(settings: Settings, per_second: int) -> int:
    producer = Producer(settings.client_settings() | {"linger.ms": 5, "partitioner": "murmur2_random"})
    topic = settings.names.delay(LEVEL_MS)
    began, number = time.monotonic(), 0
    while (passed := time.monotonic() - began) < LOAD_SECONDS:
        while number < passed * per_second:
            produce_one(producer, topic, number, PAYLOAD)
            number += 1
        producer.poll(0.01)
    producer.flush()
    return number


def main() -> None:
    with ExitStack() as stack:
        kafka = stack.enter_context(LocalKafka(version=NEWEST_KAFKA_VERSION, progress=print))
        settings = install(kafka.bootstrap_servers, DEFAULT_LEVEL_TABLE)
        pids = [stack.enter_context(scheduler(settings, instance_id=f"bench-{one}")) for one in (1, 2)]
        workers = Workers(settings, pids)
        time.sleep(SETTLE_SECONDS)
        measure_idle(workers)
        for per_second in RATES:
            measure_rate(workers, per_second)
        measure_backlog(workers)


if __name__ == "__main__":
    main()
