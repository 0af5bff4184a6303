"""How long the partitions of a scheduler worker stand still after it, or the broker, dies.

    python -m benchmarks.scheduler.recovery --rounds 10

Two workers share a delay topic at a steady rate; one of them is killed (SIGKILL) at a random moment. All times are in
seconds from the kill, and for the broker from its return, as a reader of committed records sees them:

* again: each of the partitions concerned has delivered a record that became due later.
* caught up: no record is late by a second any more.
* readers: the longest time for which a committed record stood behind an open transaction.
"""

from __future__ import annotations

import argparse
import random
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any, Final, NamedTuple

from confluent_kafka import OFFSET_END, Consumer, KafkaError, Message, TopicPartition
from confluent_kafka.admin import AdminClient

from benchmarks.installation import PAYLOAD, install, waiting_headers
from reconsume.bridge.kafka.admin import KafkaAdmin
from reconsume.bridge.kafka.client_settings import consumer_settings, producer_settings
from reconsume.bridge.kafka.lasting_producer import LastingProducer
from reconsume.bridge.librdkafka.connections import Connections
from reconsume.bridge.process.settings import Settings
from reconsume.cli.broker.jars import KAFKA_VERSION
from reconsume.cli.broker.kafka import LocalKafka
from reconsume.delay_levels.errors import KafkaNotReachable

LEVEL_MS: Final = 1_000
PARTITIONS: Final = 4
LATE_MS: Final = 1_000
STEADY_SECONDS: Final = 4.0
DEADLINE_SECONDS: Final = 180.0
LOOK_SECONDS: Final = 0.1


class Delivered(NamedTuple):
    """One record; milliseconds since the epoch."""

    partition: int
    due_ms: float
    stored_ms: float
    read_ms: float


class Recovery(NamedTuple):
    """Seconds."""

    again: float
    caught_up: float
    readers: float
    was_open: bool


class Flow:
    """Records that become due at a steady rate, and a reader of what is delivered."""

    def __init__(self, settings: Settings, per_second: int) -> None:
        self._settings = settings
        self._per_second = per_second
        self._due: dict[bytes, tuple[int, float]] = {}
        self._stop = threading.Event()
        self._position = OFFSET_END
        self.delivered: list[Delivered] = []
        self._threads = [threading.Thread(target=one, daemon=True) for one in (self._feed, self._read)]

    def start(self) -> None:
        """Start both."""
        for one in self._threads:
            one.start()

    def close(self) -> None:
        """End both."""
        self._stop.set()
        for one in self._threads:
            one.join()

    def _feed(self) -> None:
        producer = LastingProducer(producer_settings(self._settings.client_settings(), "bench-feeder"))
        topic, number, started = self._settings.names.delay(LEVEL_MS), 0, time.monotonic()
        while not self._stop.wait(0.005):
            while number < (time.monotonic() - started) * self._per_second:
                partition, key = number % PARTITIONS, b"k%d" % number
                producer.produce(
                    topic, PAYLOAD, key, partition, headers=waiting_headers("bench", number), on_delivery=self._stored
                )
                number += 1
            producer.serve(0)
        producer.close()

    def _stored(self, error: KafkaError | None, message: Message) -> None:
        if error is None:
            self._due[message.key() or b""] = message.partition() or 0, message.timestamp()[1] + LEVEL_MS

    def _read(self) -> None:
        while not self._stop.is_set():
            connections = Connections(self._consumer_settings())
            consumer = Consumer(connections.settings)
            consumer.assign([TopicPartition(self._settings.names.retry("bench"), 0, self._position)])
            with suppress(KafkaNotReachable):
                while not self._stop.is_set():
                    self._note(consumer.consume(1_000, 0.02))
                    connections.check()
            consumer.close()

    def _consumer_settings(self) -> dict[str, Any]:
        base = consumer_settings(self._settings.client_settings(), "bench-reader")
        return base | {"group.id": "bench-reader", "fetch.wait.max.ms": 20}

    def _note(self, messages: Sequence[Message]) -> None:
        now = time.time() * 1_000
        for message in messages:
            if message.error() is None:
                self._position = (message.offset() or 0) + 1
                if (due := self._due.pop(message.key() or b"", None)) is not None:
                    self.delivered.append(Delivered(*due, message.timestamp()[1], now))

    def since(self, when_ms: float) -> list[Delivered]:
        """Return the delivered records that became due later."""
        found = []
        for one in reversed(list(self.delivered)):
            if one.read_ms < when_ms:
                break
            if one.due_ms > when_ms:
                found.append(one)
        return found

    def is_steady(self) -> bool:
        """Return whether every partition has delivered, and nothing was late for some seconds."""
        since = time.time() * 1_000 - STEADY_SECONDS * 1_000
        recent = self.since(since)
        return {one.partition for one in recent} == set(range(PARTITIONS)) and not any(
            one.read_ms - one.due_ms > LATE_MS for one in self.delivered[-self._per_second * 4 :] if one.read_ms > since
        )


@dataclass
class Worker:
    """A scheduler process that is started again after each kill."""

    name: str
    settings: Settings
    folder: Path
    options: Sequence[str] = ()
    process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start the process."""
        with (self.folder / f"{self.name}.log").open("ab") as log:
            self.process = subprocess.Popen(
                [
                    *(sys.executable, "-m", "reconsume", "scheduler", "--management", "127.0.0.1:0"),
                    *("--bootstrap-servers", self.settings.bootstrap_servers, "--instance-id", self.name),
                ],
                env={
                    "RECONSUME_TOPIC_PREFIX": self.settings.topic_prefix,
                    "PATH": "/usr/bin:/bin",
                    **dict(one.split("=", 1) for one in self.options),
                },
                stdout=log,
                stderr=log,
            )

    def kill(self) -> None:
        """Kill the process with SIGKILL."""
        assert self.process is not None
        self.process.kill()
        self.process.wait()


class Trial:
    """Two workers, their flow of records, and the faults."""

    def __init__(self, kafka: LocalKafka, settings: Settings, workers: Sequence[Worker], flow: Flow) -> None:
        self.kafka = kafka
        self.workers = workers
        self.flow = flow
        self._settings = settings
        self._admin = KafkaAdmin(settings.client_settings())

    def owned(self) -> dict[str, set[int]]:
        """Return the partitions of each worker by its name."""
        group = self._settings.topic_prefix + "scheduler"
        client = AdminClient(self._settings.client_settings() | {"log_level": 0})
        found = client.describe_consumer_groups([group], request_timeout=5)[group].result(6)
        topic = self._settings.names.delay(LEVEL_MS)
        return {
            worker.name: {
                one.partition
                for member in found.members
                if member.client_id.endswith(worker.name)
                for one in member.assignment.topic_partitions
                if one.topic == topic
            }
            for worker in self.workers
        }

    def settle(self) -> None:
        """Wait until nothing is late and both workers have partitions, and then a moment longer."""
        wait_until(lambda: self.flow.is_steady() and all(self.owned().values()), "a steady state")
        time.sleep(random.random())

    def has_open_transaction(self) -> bool:
        """Return whether readers of the retry topic are blocked now."""
        where = self._settings.names.retry("bench"), 0
        return self._admin.end_offsets([where])[where] < self._admin.end_offsets([where], uncommitted=True)[where]

    def recovery(self, partitions: set[int], since_ms: float) -> Recovery:
        """Wait until these partitions deliver again; return the time."""
        was_open = len(partitions) < PARTITIONS and self.has_open_transaction()

        def is_over() -> bool:
            return {one.partition for one in self.flow.since(since_ms)} >= partitions and self.flow.is_steady()

        wait_until(is_over, "the recovery")
        done = self.flow.since(since_ms)
        again = max(min(one.read_ms for one in done if one.partition == wanted) for wanted in partitions)
        late = [one.read_ms for one in done if one.read_ms - one.due_ms > LATE_MS]
        return Recovery(
            (again - since_ms) / 1_000,
            (max(late, default=since_ms) - since_ms) / 1_000,
            max(one.read_ms - one.stored_ms for one in done) / 1_000,
            was_open,
        )


def wait_until(condition: Callable[[], bool], what: str) -> None:
    """Check again and again until the condition holds.

    Raises:
        TimeoutError: it does not.
    """
    deadline = time.monotonic() + DEADLINE_SECONDS
    while not condition():
        if time.monotonic() > deadline:
            raise TimeoutError(f"no {what} within {DEADLINE_SECONDS:.0f} s")
        time.sleep(LOOK_SECONDS)


def kill_and_restart(trial: Trial, number: int) -> Recovery:
    victim = trial.workers[number % 2]
    partitions, killed = trial.owned()[victim.name], time.time() * 1_000
    victim.kill()
    starting = threading.Timer(1.0, victim.start)
    starting.start()
    return trial.recovery(partitions, killed)


def kill(trial: Trial, number: int) -> Recovery:
    victim = trial.workers[number % 2]
    partitions, killed = trial.owned()[victim.name], time.time() * 1_000
    victim.kill()
    found = trial.recovery(partitions, killed)
    victim.start()
    return found


def restart_broker(trial: Trial, _number: int) -> Recovery:
    trial.kafka.shut_down()
    trial.kafka.start()
    return trial.recovery(set(range(PARTITIONS)), time.time() * 1_000)


def kill_broker(trial: Trial, _number: int) -> Recovery:
    trial.kafka.kill()
    trial.kafka.start()
    return trial.recovery(set(range(PARTITIONS)), time.time() * 1_000)


KINDS: Final[dict[str, Callable[[Trial, int], Recovery]]] = {
    "killed, restarted after 1 s": kill_and_restart,
    "killed, not restarted": kill,
    "broker restarted": restart_broker,
    "broker killed and restarted": kill_broker,
}


@contextmanager
def trial(kafka: LocalKafka, per_second: int, options: Sequence[str]) -> Iterator[Trial]:
    settings = install(kafka.bootstrap_servers, "1s")
    folder = Path(tempfile.mkdtemp(prefix="recovery-"))
    print(f"logs: {folder}")
    workers = [Worker(f"w-{number}", settings, folder, options) for number in range(2)]
    flow = Flow(settings, per_second)
    for one in workers:
        one.start()
    flow.start()
    try:
        yield Trial(kafka, settings, workers, flow)
    finally:
        flow.close()
        for one in workers:
            one.kill()


def report(kind: str, found: Sequence[Recovery]) -> None:
    def figures(values: Iterable[float]) -> str:
        ordered = sorted(values)
        return f"median {median(ordered):.1f}, longest {ordered[-1]:.1f} ({' '.join(f'{one:.1f}' for one in ordered)})"

    print(f"{kind}, {len(found)} times, {sum(one.was_open for one in found)} with an open transaction:")
    print(f"  again      {figures(one.again for one in found)}")
    print(f"  caught up  {figures(one.caught_up for one in found)}")
    print(f"  readers    {figures(one.readers for one in found)}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--rate", type=int, default=200, help="records per second")
    parser.add_argument("--kinds", default=",".join(map(str, range(len(KINDS)))), help=f"of {list(KINDS)}, by number")
    parser.add_argument("--set", action="append", default=[], help="a variable of the workers, as in RECONSUME_X=1")
    options = parser.parse_args()
    kinds = [list(KINDS)[int(one)] for one in options.kinds.split(",")]
    # Otherwise a broker that was killed waits for the end of its own session before it may come back.
    properties = {"broker.session.timeout.ms": "2000"}
    with (
        LocalKafka(version=KAFKA_VERSION, properties=properties) as kafka,
        trial(kafka, options.rate, options.set) as under_test,
    ):
        for kind in kinds:
            found = []
            for number in range(options.rounds):
                under_test.settle()
                found.append(KINDS[kind](under_test, number))
                print(f"  {kind}: {found[-1]}", flush=True)
            report(kind, found)


if __name__ == "__main__":
    main()
