"""Workers and brokers that die in the middle: nothing lost, nothing twice, nothing early."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
import traceback
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import pytest
from confluent_kafka import Producer

from reconsume.bridge.process.settings import Settings
from reconsume.bridge.scheduler.service import SchedulerService
from reconsume.delay_levels.errors import WorkerFenced
from tests.integration.installation import Installation, settings_for
from tests.support.brokers.kafka import kafka_to_kill
from tests.support.waiting import PATIENCE, wait_until

pytestmark = [pytest.mark.kafka, pytest.mark.early(3)]

RECORDS = 10_000


@contextmanager
def worker_process(settings: Settings, instance: str, allowed: Sequence[str] = ()) -> Iterator[subprocess.Popen[bytes]]:
    command = [
        *(sys.executable, "-m", "reconsume", "scheduler", "--instance-id", instance, "--management", "127.0.0.1:0"),
        *("--bootstrap-servers", settings.bootstrap_servers, "--log-level", "WARNING"),
    ]
    environment = os.environ | {
        "RECONSUME_TOPIC_PREFIX": settings.topic_prefix,
        "RECONSUME_ALLOWED_REAL_TOPICS": " ".join(allowed),
    }
    with subprocess.Popen(command, env=environment) as worker:
        try:
            yield worker
        finally:
            worker.kill()


def produce_waiting(one: Installation, group: str, delay_ms: int, count: int) -> None:
    """Records that wait, as a consumer writes them."""
    producer = Producer(one.settings.client_settings() | {"enable.idempotence": True, "linger.ms": 5})
    for number in range(count):
        producer.produce(
            one.settings.names.delay(delay_ms),
            b"%d" % number,
            headers=[("REAL_TOPIC", f"%RETRY%{group}".encode()), ("ORIGIN_MESSAGE_ID", b"o/0/%d" % number)],
        )
        if number % 1_000 == 0:
            producer.poll(0)
    assert producer.flush(PATIENCE) == 0
    producer.close()


def assert_each_once_and_never_early(one: Installation, group: str, delay_ms: int, count: int) -> None:
    moved = one.retries(group)
    assert Counter(record.value for record in moved) == Counter({b"%d" % number: 1 for number in range(count)})
    stored = {record.value: record.timestamp for record in one.waiting(delay_ms, group)}
    assert min(record.timestamp - stored[record.value] for record in moved) >= delay_ms


def moved(one: Installation, group: str) -> int:
    """How far the retry topic has grown; markers of transactions count too."""
    topic = one.settings.names.retry(group)
    if topic not in one.admin.partitions([topic]):
        return 0
    return one.admin.end_offsets([(topic, 0)])[topic, 0]


@pytest.mark.rule("SC-11", "SC-12", "SC-13", "SC-14", "SC-15", "T-24")
def test_a_worker_that_is_killed_under_load_loses_and_repeats_nothing(bootstrap_servers: str) -> None:
    one = Installation(settings_for(bootstrap_servers).model_copy(update={"topics": Settings().topics}))
    one.make_topics()
    one.write_groups()
    group = one.name("g")
    with worker_process(one.settings, "first") as first, worker_process(one.settings, "second") as second:
        for delay_ms in (1_000, 2_000):
            produce_waiting(one, f"{group}{delay_ms}", delay_ms, RECORDS)
        wait_until(lambda: moved(one, f"{group}1000") > 1_000, "deliveries to begin")
        first.send_signal(signal.SIGKILL)
        for delay_ms in (1_000, 2_000):
            name = f"{group}{delay_ms}"
            wait_until(lambda name=name: len(one.retries(name)) >= RECORDS, f"all of {name}")  # type: ignore[misc]
        assert second.poll() is None
    for delay_ms in (1_000, 2_000):
        assert_each_once_and_never_early(one, f"{group}{delay_ms}", delay_ms, RECORDS)


@pytest.mark.parametrize(
    "away_seconds",
    [pytest.param(0, id="soon"), pytest.param(12, marks=pytest.mark.long, id="after the worker's session")],
)
def test_a_broker_that_is_killed_and_comes_back_costs_nothing(away_seconds: float) -> None:
    """After its session a worker's partitions are lost, the one that it has paused too, and come back to it."""
    with kafka_to_kill() as kafka:
        one = Installation(settings_for(kafka.bootstrap_servers))
        one.make_topics()
        one.write_groups()
        group = one.name("g")
        with worker_process(one.settings, "only") as worker:
            produce_waiting(one, group, 1_000, 2_000)
            wait_until(lambda: moved(one, group) > 0, "deliveries to begin")
            produce_waiting(one, group + "2", 2_000, 2_000)
            kafka.kill()
            back = time.monotonic() + away_seconds
            wait_until(lambda: time.monotonic() >= back, "the broker may come back", deadline=away_seconds + 10)
            kafka.start()
            for name in (group, group + "2"):
                wait_until(lambda name=name: len(one.retries(name)) >= 2_000, f"all of {name}")  # type: ignore[misc]
            assert worker.poll() is None
        assert_each_once_and_never_early(one, group, 1_000, 2_000)
        assert_each_once_and_never_early(one, group + "2", 2_000, 2_000)


def test_two_workers_with_one_instance_id_do_not_fight_for_ever(bootstrap_servers: str) -> None:
    one = Installation(settings_for(bootstrap_servers))
    one.make_topics()
    one.write_groups()
    stop, ended = threading.Event(), threading.Event()
    failures: list[BaseException] = []

    def work() -> None:
        try:
            SchedulerService(one.settings).run(stop)
        except BaseException as error:  # noqa: BLE001 - looked at below
            failures.append(error)
            ended.set()

    threads = [threading.Thread(target=work) for _ in range(2)]
    for thread in threads:
        thread.start()
    feeding = threading.Thread(target=_feed_until, args=(one, ended))
    feeding.start()
    try:
        assert ended.wait(PATIENCE), "one of the two should give up"
    finally:
        ended.set()
        stop.set()
        for thread in (*threads, feeding):
            thread.join(PATIENCE)
    assert isinstance(failures[0], WorkerFenced), "".join(traceback.format_exception(failures[0]))
    assert "--instance-id" in str(failures[0])


def _feed_until(one: Installation, ended: threading.Event) -> None:
    """A worker notices that it is fenced when it has something to deliver, so every partition gets something."""
    topics = [one.settings.names.send_back, *(one.settings.names.delay(delay_ms) for delay_ms in (0, 1_000, 2_000))]
    while not ended.wait(0.2):
        for topic in topics:
            one.produce(topic, b"fed", headers=[("REAL_TOPIC", b"%RETRY%g"), ("RETRY_TOPIC", b"fed")])
