"""The group of the scheduler workers: places kept over a kill, given up at a planned stop, and what the dead leave."""

from __future__ import annotations

import logging
import os
import re
import signal
import subprocess
import sys
import threading
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from functools import partial
from itertools import combinations
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewPartitions

from reconsume.bridge.process.settings import Settings
from reconsume.bridge.scheduler.service import SchedulerService
from reconsume.delay_levels.errors import KafkaRefused
from tests.integration.installation import Installation, scheduler, settings_for
from tests.integration.supervised import Supervised, supervised
from tests.support.brokers.kafka import kafka_to_kill, local_kafka
from tests.support.waiting import PATIENCE, wait_until

pytestmark = [pytest.mark.kafka, pytest.mark.early(2)]

LONG_SESSION_MS = 120_000
"""Nothing here waits for so long: what needs the end of a session fails."""


def installed(bootstrap_servers: str, **scheduler_settings: object) -> Installation:
    settings = settings_for(bootstrap_servers)
    chosen = settings.scheduler.model_copy(update=scheduler_settings)
    one = Installation(settings.model_copy(update={"scheduler": chosen}))
    one.make_topics()
    one.write_groups()
    return one


@contextmanager
def process(settings: Settings, instance: str) -> Iterator[subprocess.Popen[bytes]]:
    command = [
        *(sys.executable, "-m", "reconsume", "scheduler", "--instance-id", instance, "--management", "127.0.0.1:0"),
        *("--bootstrap-servers", settings.bootstrap_servers, "--log-level", "WARNING"),
    ]
    environment = os.environ | {
        "RECONSUME_TOPIC_PREFIX": settings.topic_prefix,
        "RECONSUME_SCHEDULER__SESSION_TIMEOUT_MS": str(settings.scheduler.session_timeout_ms),
        "RECONSUME_SCHEDULER__MAX_POLL_INTERVAL_MS": str(max(60_000, settings.scheduler.session_timeout_ms)),
    }
    with subprocess.Popen(command, env=environment) as worker:
        try:
            yield worker
        finally:
            worker.send_signal(signal.SIGCONT)
            worker.kill()


def waiting(one: Installation, topic: str, name: str, partition: int = -1) -> None:
    headers = [("REAL_TOPIC", f"%RETRY%{one.name('g')}".encode()), ("ORIGIN_MESSAGE_ID", f"o/0/{name}".encode())]
    producer = Producer(one.settings.client_settings())
    producer.produce(topic, name.encode(), partition=partition, headers=headers)  # type: ignore[arg-type]
    assert producer.flush(PATIENCE) == 0
    producer.close()


def delivered(one: Installation) -> list[str]:
    return sorted((record.value or b"").decode() for record in one.retries(one.name("g")))


def test_a_killed_worker_takes_its_place_again_and_sees_topics_and_partitions_made_meanwhile(
    bootstrap_servers: str,
) -> None:
    one = installed(bootstrap_servers, session_timeout_ms=LONG_SESSION_MS)
    names = one.settings.names
    with process(one.settings, "only") as worker:
        waiting(one, names.delay(1_000), "before")
        wait_until(lambda: delivered(one) == ["before"], "the first delivery")
        worker.send_signal(signal.SIGKILL)
        worker.wait()
    one.admin.create(names.delay(3_000), 1, -1, {"message.timestamp.type": "LogAppendTime"})
    client = AdminClient({"bootstrap.servers": bootstrap_servers})
    client.create_partitions([NewPartitions(names.delay(2_000), 2)])[names.delay(2_000)].result()
    wait_until(lambda: one.admin.partitions([names.delay(2_000)])[names.delay(2_000)] == 2, "the new partition")
    with process(one.settings, "only"):
        waiting(one, names.delay(1_000), "after")
        waiting(one, names.delay(3_000), "new topic")
        waiting(one, names.delay(2_000), "new partition", 1)
        waiting(one, names.send_back, "inbox")
        expected = sorted(["before", "after", "new topic", "new partition"])
        wait_until(lambda: [name for name in delivered(one) if name != "inbox"] == expected, "all of them")
        wait_until(lambda: one.committed(f"{names.prefix}scheduler", names.send_back) == 1, "the inbox too")


def shares(bootstrap_servers: str, group: str) -> list[int]:
    """The numbers of partitions of those members that have some."""
    client = AdminClient({"bootstrap.servers": bootstrap_servers})
    members = client.describe_consumer_groups([group])[group].result().members
    return [count for one in members if (count := len(one.assignment.topic_partitions))]


def test_a_worker_that_is_stopped_in_order_leaves_its_partitions_to_the_others_at_once(bootstrap_servers: str) -> None:
    one = installed(bootstrap_servers, session_timeout_ms=LONG_SESSION_MS, max_poll_interval_ms=LONG_SESSION_MS)
    group = f"{one.settings.topic_prefix}scheduler"
    with scheduler(one.settings):
        other = one.settings.scheduler.model_copy(update={"instance_id": one.name("other")})
        with scheduler(one.settings.model_copy(update={"scheduler": other})):
            # Who is told to stop while it joins has no membership to give up yet.
            wait_until(lambda: len(shares(bootstrap_servers, group)) == 2, "two members with partitions")
        left = {f"reconsume-scheduler-{one.settings.topic_prefix}"}
        wait_until(
            lambda: one.admin.member_names(group) == left, "the other one has left", deadline=LONG_SESSION_MS / 4_000
        )
        for topic in (one.settings.names.delay(delay_ms) for delay_ms in (0, 1_000, 2_000)):
            waiting(one, topic, topic)
        wait_until(lambda: len(delivered(one)) == 3, "deliveries of all topics")


def test_workers_say_how_many_of_the_partitions_they_have(
    bootstrap_servers: str, caplog: pytest.LogCaptureFixture
) -> None:
    one = installed(bootstrap_servers)
    names = one.settings.names
    total = sum(count for topic, count in one.admin.topics().items() if names.is_scheduled(topic))

    def ready() -> list[int]:
        told = [re.fullmatch(rf"ready, ([0-9]+) of {total} partitions", text) for text in list(caplog.messages)]
        return [int(match[1]) for match in told if match is not None]

    with caplog.at_level(logging.INFO), scheduler(one.settings):
        wait_until(lambda: ready()[-1:] == [total], "the only worker has all")
        alone = len(ready())
        other = one.settings.scheduler.model_copy(update={"instance_id": one.name("other")})
        with scheduler(one.settings.model_copy(update={"scheduler": other})):
            wait_until(lambda: any(sum(pair) == total for pair in combinations(ready()[alone:], 2)), "each has a share")


def test_workers_without_an_instance_id_start_side_by_side(
    bootstrap_servers: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    one = installed(bootstrap_servers, instance_id=None)
    group, stop = f"{one.settings.topic_prefix}scheduler", threading.Event()
    services = [SchedulerService(one.settings) for _ in range(2)]
    threads = [threading.Thread(target=service.run, args=(stop,)) for service in services]
    for thread in threads:
        thread.start()
    try:
        wait_until(lambda: len(one.admin.member_names(group)) == 2, "two members")
    finally:
        stop.set()
        for thread in threads:
            thread.join(PATIENCE)


def test_the_readmes_command_starts_a_worker_beside_another_and_beside_a_sidecar_and_a_console(
    bootstrap_servers: str, tmp_path: Path
) -> None:
    one = installed(bootstrap_servers)
    environment = {
        "RECONSUME_BOOTSTRAP_SERVERS": bootstrap_servers,
        "RECONSUME_TOPIC_PREFIX": one.settings.topic_prefix,
        "XDG_STATE_HOME": str(tmp_path),
    }
    elsewhere = ("--listen", "127.0.0.1:0")  # a test beside this one may have the port of the API
    lines = [("scheduler",), ("scheduler",), ("sidecar", *elsewhere), ("console", *elsewhere)]
    with ExitStack() as stack:
        running = [
            stack.enter_context(
                supervised([sys.executable, "-m", "reconsume", *line], tmp_path / f"{number}.log", **environment)
            )
            for number, line in enumerate(lines)
        ]

        def ready(process: Supervised) -> str | None:
            found = re.search(r"management: (http://127[.]0[.]0[.]1:[0-9]+)", process.printed)
            if found is None:
                return None
            with suppress(OSError), urllib.request.urlopen(f"{found[1]}/readyz", timeout=10):  # noqa: S310 - our own
                return found[1]
            return None

        addresses = {wait_until(partial(ready, process), "it is ready") for process in running}
        assert len(addresses) == len(lines)
        assert len(one.admin.member_names(f"{one.settings.topic_prefix}scheduler")) == 2


@pytest.mark.more
def test_a_session_that_the_brokers_refuse_is_told_with_the_name_of_the_setting() -> None:
    with local_kafka(properties={"group.min.session.timeout.ms": "20000"}) as kafka:
        one = installed(kafka.bootstrap_servers)
        with pytest.raises(KafkaRefused, match=r"scheduler\.session_timeout_ms"):
            SchedulerService(one.settings).run(threading.Event())


@pytest.mark.parametrize("of_kind", ["", "-trial"], ids=["batch", "trial"])
def test_a_dead_workers_transaction_is_ended_by_the_worker_that_gets_its_partitions(
    bootstrap_servers: str, of_kind: str
) -> None:
    """The brokers themselves would end it after five minutes."""
    one = installed(bootstrap_servers, session_timeout_ms=6_000)
    group, names = f"{one.settings.topic_prefix}scheduler", one.settings.names
    base = one.settings.client_settings()
    with scheduler(one.settings):
        waiting(one, names.delay(1_000), "first")
        wait_until(lambda: delivered(one) == ["first"], "the first delivery")
        dead = Consumer(
            base
            | {"group.id": group, "group.instance.id": "reconsume-scheduler-dead", "session.timeout.ms": 6_000}
            | {"partition.assignment.strategy": "cooperative-sticky", "enable.auto.commit": False}
        )
        dead.subscribe([names.scheduled_pattern])
        wait_until(lambda: dead.poll(0.1) is None and bool(dead.assignment()), "partitions of the other worker")
        owned = dead.assignment()
        producer = Producer(base | {"transactional.id": f"{group}-dead{of_kind}", "transaction.timeout.ms": 300_000})
        producer.init_transactions(30)
        producer.begin_transaction()
        producer.produce(names.retry(one.name("g")), b"never committed")
        producer.flush(PATIENCE)
        if not of_kind:
            offsets = [TopicPartition(each.topic, each.partition, 0) for each in owned]
            producer.send_offsets_to_transaction(offsets, dead.consumer_group_metadata(), 30)
        dead.close()
        for each in owned:
            waiting(one, each.topic, f"{each.topic}-{each.partition}", each.partition)
        retried = [each for each in owned if each.topic != names.send_back]
        wait_until(lambda: len(delivered(one)) == 1 + len(retried), "what stood behind the open transaction")


def test_a_worker_that_was_paused_and_shut_out_registers_again_however_often(bootstrap_servers: str) -> None:
    one = installed(bootstrap_servers, session_timeout_ms=1_000)
    group = f"{one.settings.topic_prefix}scheduler"

    def members(count: int) -> Callable[[], bool]:
        return lambda: len(one.admin.member_names(group)) == count

    with process(one.settings, "paused") as paused, process(one.settings, "other") as other:
        for number in range(4):
            wait_until(members(2), "both members")
            paused.send_signal(signal.SIGSTOP)
            wait_until(members(1), "the end of the session")
            for delay_ms in (0, 1_000, 2_000):
                waiting(one, one.settings.names.delay(delay_ms), f"{number}-{delay_ms}")
            wait_until(lambda number=number: len(delivered(one)) == 3 * number + 3, "deliveries")  # type: ignore[misc]
            paused.send_signal(signal.SIGCONT)
        wait_until(members(2), "both members")
        assert paused.poll() is None
        assert other.poll() is None


@pytest.mark.long
def test_a_broker_that_is_away_for_longer_than_the_session_shuts_no_worker_out_for_good() -> None:
    """To the brokers it then looks each time as if a second worker had its instance id."""
    with kafka_to_kill() as kafka:
        one = installed(kafka.bootstrap_servers, session_timeout_ms=1_000)
        with process(one.settings, "only") as worker:
            for number in range(4):
                for delay_ms in (0, 1_000, 2_000):
                    waiting(one, one.settings.names.delay(delay_ms), f"{number}-{delay_ms}")
                kafka.kill()
                kafka.start()
                wait_until(lambda number=number: len(delivered(one)) == 3 * number + 3, "deliveries")  # type: ignore[misc]
            assert worker.poll() is None
