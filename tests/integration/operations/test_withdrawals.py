"""Withdrawals on a real Kafka: known after a kill, forgotten when they are done, and bounded in memory."""

from __future__ import annotations

import os
import re
import secrets
import subprocess
import sys
import time
from datetime import timedelta
from pathlib import Path

import pytest
from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient

from reconsume.bridge.scheduler.withdrawals import withdrawn_topic
from reconsume.cli.chaos.cluster.worker import set_ahead
from reconsume.consumers import DelayProducer
from reconsume.delay_levels.wire import withdrawals
from reconsume.delay_levels.wire.withdrawals import RANDOM_BYTES, PositionInCancel, make_uniq_key, withdrawal_id
from tests.integration.consumers.test_delay_producer import allowing, orders, producing
from tests.integration.installation import Installation, scheduler
from tests.integration.scheduler.test_faults import worker_process
from tests.support.waiting import PATIENCE, wait_until

pytestmark = [pytest.mark.kafka, pytest.mark.early(2)]

FAR_MS = int((time.time() + 3_600) * 1000)
LONG_KEYS = 150
LONG_KEY_BYTES = 900_000


def values(here: Installation, topic: str) -> list[bytes | None]:
    return sorted((one.value for one in here.read(topic)), key=lambda value: value or b"")


def written_to(here: Installation, key: bytes) -> list[bytes | None]:
    """What was written to WITHDRAWN under a key; None is a tombstone."""
    return [one.value for one in here.read(here.settings.names.withdrawn) if one.key == key]


def position(here: Installation) -> int:
    """Up to where in CANCEL everything is written to WITHDRAWN."""
    found = [PositionInCancel.decode(b"read-0", value) for value in written_to(here, b"read-0") if value]
    return max((one.offset for one in found if one is not None), default=0)


def send_in(producer: DelayProducer, topic: str, body: bytes, seconds: float) -> str:
    return producer.send(topic, body, delay=timedelta(seconds=seconds)).msg_id


def produce(here: Installation, topic: str, *values: bytes, **headers: str) -> None:
    """As a plain client does it."""
    here.produce(topic, *values, headers=[(name, text.encode()) for name, text in headers.items()])


@pytest.mark.rule("TM-13")
def test_a_worker_that_was_killed_knows_what_it_had_read_and_what_came_later(bootstrap_servers: str) -> None:
    here = allowing(bootstrap_servers)
    topic, names = orders(here, "killed"), here.settings.names
    allowed = here.settings.allowed_real_topics
    produce(here, names.cancel, b"", TIMER_DEL_UNIQKEY="before")
    with worker_process(here.settings, here.name("a"), allowed) as worker:
        wait_until(lambda: position(here) == 1, "the first withdrawal to be written")
        produce(here, names.cancel, b"", TIMER_DEL_UNIQKEY="after")
        worker.kill()
        worker.wait()
    # From here on CANCEL alone does not tell of the first one.
    gone, admin = TopicPartition(names.cancel, 0, 1), AdminClient(here.settings.client_settings())
    admin.delete_records([gone])[gone].result(PATIENCE)
    for key in ("before", "after", "nobody's"):
        produce(here, names.send_back, key.encode(), REAL_TOPIC=topic, TIMER_DELAY_MS="1000", UNIQ_KEY=key)
    with worker_process(here.settings, here.name("b"), allowed):
        wait_until(lambda: values(here, topic), "the message that nobody withdrew")
        produce(here, names.send_back, b"last", REAL_TOPIC=topic, TIMER_DELAY_MS="1000")
        wait_until(lambda: b"last" in values(here, topic), "the last message")
    assert values(here, topic) == [b"last", b"nobody's"]


def test_a_worker_whose_clock_is_weeks_ahead_obeys_withdrawals(bootstrap_servers: str, tmp_path: Path) -> None:
    here = allowing(bootstrap_servers)
    topic, names, clock = orders(here, "ahead"), here.settings.names, tmp_path / "clock"
    produce(here, names.cancel, b"", TIMER_DEL_UNIQKEY="gone")
    for key in ("gone", "stays"):
        produce(here, names.send_back, key.encode(), REAL_TOPIC=topic, TIMER_DELAY_MS="1000", UNIQ_KEY=key)
    set_ahead(clock, 60 * 86_400)
    command = [
        *(sys.executable, "-m", "reconsume.cli.chaos.cluster.worker", str(clock), "scheduler"),
        *("--instance-id", here.name("ahead"), "--bootstrap-servers", bootstrap_servers, "--management", "127.0.0.1:0"),
    ]
    environment = os.environ | {
        "RECONSUME_TOPIC_PREFIX": here.settings.topic_prefix,
        "RECONSUME_ALLOWED_REAL_TOPICS": " ".join(here.settings.allowed_real_topics),
    }
    with subprocess.Popen(command, env=environment) as worker:
        try:
            wait_until(lambda: values(here, topic), "the message that nobody withdrew")
            produce(here, names.send_back, b"tail", REAL_TOPIC=topic, TIMER_DELAY_MS="1000")
            wait_until(lambda: b"tail" in values(here, topic), "the last message")
        finally:
            worker.kill()
    assert values(here, topic) == [b"stays", b"tail"]


def test_withdrawals_are_written_once_for_all_workers_and_removed_when_done(
    bootstrap_servers: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(withdrawals, "MET_KEPT_MS", 2_000)
    monkeypatch.setattr(withdrawals, "_MINUTE_MS", 1_000)
    monkeypatch.setattr(withdrawals, "_FORGET_AT_ONCE", withdrawals._SEGMENTS)
    here = allowing(bootstrap_servers)
    topic = orders(here, "done")
    with producing(here) as producer, scheduler(here.settings):
        met, unknown = send_in(producer, topic, b"met", 6), make_uniq_key(FAR_MS, secrets.token_bytes(RANDOM_BYTES))
        for one in (met, unknown):
            producer.cancel(one)
        key = withdrawal_id(met)
        wait_until(lambda: None in written_to(here, key), "the tombstone")
        wait_until(lambda: position(here) == 2, "the position")
        send_in(producer, topic, b"last", 1)
        wait_until(lambda: b"last" in values(here, topic), "the last message")
    assert written_to(here, key)[-1] is None
    assert written_to(here, withdrawal_id(unknown)) == [b"%d" % FAR_MS]
    assert values(here, topic) == [b"last"]


def test_without_its_topic_workers_read_all_of_cancel(bootstrap_servers: str) -> None:
    here = allowing(bootstrap_servers)
    topic, names = orders(here, "without"), here.settings.names
    admin = AdminClient(here.settings.client_settings())
    admin.delete_topics([names.withdrawn])[names.withdrawn].result(PATIENCE)
    with producing(here) as producer:
        producer.cancel(send_in(producer, topic, b"gone", 3))
        send_in(producer, topic, b"stays", 3)
        with scheduler(here.settings):
            wait_until(lambda: values(here, topic), "the message that stays")
            send_in(producer, topic, b"last", 1)
            wait_until(lambda: b"last" in values(here, topic), "the last message")
    assert values(here, topic) == [b"last", b"stays"]


def test_a_cancel_topic_that_is_made_again_is_read_from_its_start(bootstrap_servers: str) -> None:
    here = allowing(bootstrap_servers)
    topic, names = orders(here, "again"), here.settings.names
    admin = AdminClient(here.settings.client_settings())
    with producing(here) as producer:
        for _ in range(3):
            producer.cancel(send_in(producer, topic, b"gone", 3_600))
        with scheduler(here.settings):
            wait_until(lambda: position(here) == 3, "the position")
        admin.delete_topics([names.cancel])[names.cancel].result(PATIENCE)
        wait_until(lambda: _made_again(here, names.cancel), "the topic to be made again")
        for number in range(5):
            producer.cancel(send_in(producer, topic, b"gone %d" % number, 5))
        with scheduler(here.settings):
            send_in(producer, topic, b"last", 6)
            wait_until(lambda: b"last" in values(here, topic), "the last message")
    assert values(here, topic) == [b"last"]


def test_withdrawals_in_a_partition_that_was_added_to_cancel_are_obeyed(bootstrap_servers: str) -> None:
    here = allowing(bootstrap_servers)
    topic, names = orders(here, "grown"), here.settings.names
    with producing(here) as producer, scheduler(here.settings):
        send_in(producer, topic, b"first", 1)
        wait_until(lambda: b"first" in values(here, topic), "the first message")
        gone = send_in(producer, topic, b"gone", 8)
        here.admin.add_partitions(names.cancel, 2)
        here.produce(names.cancel, b"", headers=[("TIMER_DEL_UNIQKEY", gone.encode())], partition=1)
        send_in(producer, topic, b"last", 9)
        wait_until(lambda: b"last" in values(here, topic), "the last message")
    assert values(here, topic) == [b"first", b"last"]


def _made_again(here: Installation, topic: str) -> bool:
    here.make_topics()
    return topic in here.admin.partitions([topic])


def test_long_keys_cost_a_worker_no_memory(bootstrap_servers: str) -> None:
    here = allowing(bootstrap_servers)
    topic, names = orders(here, "long"), here.settings.names
    keys = [secrets.token_hex(LONG_KEY_BYTES // 2) for _ in range(LONG_KEYS)]
    with worker_process(here.settings, here.name("a"), here.settings.allowed_real_topics) as worker:
        produce(here, names.send_back, b"v", REAL_TOPIC=topic)
        wait_until(lambda: len(values(here, topic)) == 1, "the worker to work")
        before = resident_mib(worker.pid)
        for key in keys:
            produce(here, names.cancel, b"", TIMER_DEL_UNIQKEY=key)
        for key in (keys[-1], keys[-1] + "0"):
            produce(here, names.send_back, b"v", REAL_TOPIC=topic, TIMER_DELAY_MS="2000", UNIQ_KEY=key)
        wait_until(lambda: len(values(here, topic)) == 2, "the one that nobody withdrew")
        grown = resident_mib(worker.pid) - before
    assert [len(one["UNIQ_KEY"] or "") for one in here.read(topic)] == [0, LONG_KEY_BYTES + 1]
    assert grown < LONG_KEYS * LONG_KEY_BYTES / 1024**2 / 2, f"{grown:.0f} MiB"


def resident_mib(pid: int) -> float:
    """Resident memory of a process (Linux)."""
    (kib,) = re.findall(r"VmRSS:\s+(\d+)", Path(f"/proc/{pid}/status").read_text(encoding="utf-8"))
    return int(kib) / 1024


@pytest.fixture(autouse=True)
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """Workers in this process write to WITHDRAWN after a second or two, not after a minute."""
    monkeypatch.setattr(withdrawn_topic, "_EVERY_MS", 1_000)
