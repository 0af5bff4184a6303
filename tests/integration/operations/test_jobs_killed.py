"""A job goes on when its process is killed, Kafka goes away, or the link is narrow: none twice, none left out."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator

import pytest

from reconsume.bridge.reading.range_reader import RangeReader
from reconsume.bridge.writing import exclusive_writer
from reconsume.cli.broker.kafka import LocalKafka
from reconsume.delay_levels.wire.dead_letter_states import RESENT, decode_state, parse_key
from reconsume.operations.dead_letter_states import resend_id
from reconsume.operations.jobs.runner import JobRunner
from reconsume.operations.jobs.service import JobDraft, create, show
from tests.integration.installation import Installation, installation, settings_for
from tests.integration.operations.test_dlq import headers_of, with_dead_letters
from tests.support.brokers.kafka import kafka_to_kill
from tests.support.brokers.kafka_tools import limit_producer
from tests.support.waiting import PATIENCE, wait_until

pytestmark = [pytest.mark.kafka, pytest.mark.more, pytest.mark.early(2)]

LETTERS = int(os.environ.get("RECONSUME_TEST_JOB_LETTERS", "3000"))
KILLS = 3
LEASE_MS = 2_000
LARGE_LETTERS = 200
LARGE_BYTES = 10_000
BYTES_PER_SECOND = 100_000
RUNNER = """
import sys, threading
from reconsume.bridge.kafka.cluster import Cluster
from reconsume.bridge.process.settings import Settings
from reconsume.operations.jobs.runner import JobRunner
cluster = Cluster(Settings(bootstrap_servers=sys.argv[1], topic_prefix=sys.argv[2]))
JobRunner(cluster, lease_ms=int(sys.argv[3])).run(threading.Event(), once=True)
"""


def made(bootstrap_servers: str) -> Installation:
    """An installation without a scheduler, so that `DELAY.0s` holds what was sent and no more."""
    here = Installation(settings_for(bootstrap_servers))
    here.make_topics()
    here.write_groups()
    return here


def runner(here: Installation) -> subprocess.Popen[bytes]:
    where = here.settings.bootstrap_servers, here.settings.topic_prefix, str(LEASE_MS)
    return subprocess.Popen([sys.executable, "-c", RUNNER, *where])


def committed(here: Installation, topic: str) -> Iterator[tuple[bytes | None, bytes | None, dict[str, bytes | None]]]:
    """Key, value and headers of all committed records: read apart from what jobs read."""
    partitions = [(topic, one) for one in range(here.admin.partitions([topic])[topic])]
    ends = here.admin.end_offsets(partitions)
    with RangeReader(here.cluster.base, "counts") as reader:
        for one in reader.records({where: (0, ends[where]) for where in partitions}):
            yield one.key, one.value, dict(one.headers)


def assert_each_was_sent_once(here: Installation, group: str, job: str, count: int) -> None:
    names = here.settings.names
    wanted = Counter(f"flights/0/{number}".encode() for number in range(count))
    found = Counter(headers["ORIGIN_MESSAGE_ID"] for _, _, headers in committed(here, names.delay(0)))
    assert found == wanted
    states = [
        (parse_key(key), decode_state(value or b"")) for key, value, _ in committed(here, names.dead_letter_states)
    ]
    assert Counter(key.offset for key, _ in states) == Counter(range(count))
    assert {(key.topic, state.state, state.job) for key, state in states} == {(names.dead_letter(group), RESENT, job)}


def test_a_resend_whose_process_is_killed_three_times_sends_each_once(bootstrap_servers: str) -> None:
    here = made(bootstrap_servers)
    group = with_dead_letters(here, LETTERS)
    rate = max(400, LETTERS // 30)
    job = create(here.cluster, JobDraft("resend", group, rate=rate), by="alice", count=LETTERS)
    began, kills = time.monotonic(), 0
    for kill in range(1, KILLS + 1):
        process = runner(here)
        try:
            share = LETTERS * kill // (2 * KILLS)  # long before the end, however late it is seen
            wait_until(lambda: show(here.cluster, job.name).handled >= share, "a share is sent")  # noqa: B023
        finally:
            process.send_signal(signal.SIGKILL)
            kills += process.wait(PATIENCE) == -signal.SIGKILL
    # Settings refuse what they do not know.
    environment = {name: text for name, text in os.environ.items() if not name.startswith("RECONSUME_")} | {
        "RECONSUME_BOOTSTRAP_SERVERS": here.settings.bootstrap_servers,
        "RECONSUME_TOPIC_PREFIX": here.settings.topic_prefix,
    }
    command = [
        sys.executable,
        "-c",
        "from reconsume.cli.main import main; main()",
        "jobs",
        "run",
        "--once",
        "-o",
        "json",
    ]
    last = subprocess.run(command, env=environment, timeout=600, check=True, capture_output=True, text=True)
    assert json.loads(last.stdout) == []
    ended = show(here.cluster, job.name).progress
    assert kills == KILLS
    assert (ended.ended, ended.counts) == ("DONE", {"sent": LETTERS})
    assert_each_was_sent_once(here, group, job.name, LETTERS)
    print(f"{LETTERS:,} letters, {KILLS} kills, rate {rate}: {time.monotonic() - began:.0f} s")  # noqa: T201


@pytest.fixture(scope="module")
def kafka() -> Iterator[LocalKafka]:
    with kafka_to_kill() as one:
        yield one


def test_a_job_waits_for_kafka_and_goes_on(kafka: LocalKafka) -> None:
    here = made(kafka.bootstrap_servers)
    group = with_dead_letters(here, 600)
    job = create(here.cluster, JobDraft("resend", group, rate=100), by="alice", count=600)
    stop = threading.Event()
    thread = threading.Thread(target=JobRunner(here.cluster).run, args=(stop,), kwargs={"once": True})
    thread.start()
    try:
        wait_until(lambda: show(here.cluster, job.name).handled >= 100, "some are sent")
        kafka.kill()
        assert not stop.wait(3)
        kafka.start()
        thread.join(PATIENCE)
        assert not thread.is_alive()
    finally:
        stop.set()
        thread.join(PATIENCE)
    assert show(here.cluster, job.name).progress.counts == {"sent": 600}
    assert_each_was_sent_once(here, group, job.name, 600)


def with_large_letters(here: Installation) -> str:
    group = here.unique("g")
    topic = here.settings.names.dead_letter(group)
    here.admin.create(topic, 1, -1, {"message.timestamp.type": "LogAppendTime"})
    producer = here.producer()
    for number in range(LARGE_LETTERS):
        # Compression would make the link wide again.
        producer.produce(topic, os.urandom(LARGE_BYTES), headers=dict(headers_of(group, number)))
    assert producer.flush(PATIENCE) == 0
    producer.close()
    return group


def test_a_transaction_that_cannot_be_written_in_time_is_followed_by_smaller_ones(
    bootstrap_servers: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """200 letters need 20 s, half of it after the burst that Kafka allows, and a transaction ends after 5 s."""
    monkeypatch.setattr(exclusive_writer, "TRANSACTION_SECONDS", 5.0)
    with installation(bootstrap_servers) as here:
        group = with_large_letters(here)
        job = create(here.cluster, JobDraft("resend", group), by="alice", count=LARGE_LETTERS)
        limit_producer(bootstrap_servers, resend_id(here.cluster, group), BYTES_PER_SECOND)
        stop = threading.Event()
        too_late = threading.Timer(200, stop.set)
        too_late.start()
        try:
            ended = JobRunner(here.cluster).run_until_ended(job, stop)
        finally:
            too_late.cancel()
        assert "job waits for Kafka" in caplog.text, "the first transaction was written in time"
        assert (ended.progress.ended, ended.progress.counts) == ("DONE", {"sent": LARGE_LETTERS})
        sent = Counter(one["ORIGIN_MESSAGE_ID"] for one in here.read(here.settings.names.delay(0)))
        assert sent == Counter(f"flights/0/{number}" for number in range(LARGE_LETTERS))
