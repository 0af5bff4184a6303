"""Exactly-once consumers that die in the middle of a transaction and start again."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from confluent_kafka import Consumer, TopicPartition

from reconsume.bridge.groups.groups import Groups
from reconsume.bridge.kafka.admin import Commit
from reconsume.bridge.writing.exactly_once import ExactlyOnceWriter, OutcomeUnknown
from tests.integration.installation import Installation, settings_for
from tests.support.waiting import wait_until

pytestmark = pytest.mark.kafka

CRASHING = """
import os, signal, sys, threading
from reconsume.bridge.writing import transactions

def dies(producer, seconds):
    producer.flush(300)
    print("open", flush=True)
    os.kill(os.getpid(), signal.SIGKILL)

kind, address, group, topic, prefix, *more = sys.argv[1:]
conf = {"auto.offset.reset": "earliest", "session.timeout.ms": 6_000, "heartbeat.interval.ms": 500}
conf |= dict(one.split("=") for one in more if "=" in one)
if "healthy" not in more:
    transactions.commit = dies
if kind == "push":
    from reconsume.consumers import PushConsumer

    consumer = PushConsumer(group, bootstrap_servers=address, conf=conf, topic_prefix=prefix, exactly_once=True)
    consumer.subscribe(topic).register_message_listener(lambda _messages, _context: None)
    consumer.start()
    print("started", flush=True)
    threading.Event().wait()
else:
    from reconsume.consumers import Consumer

    own = {"bootstrap.servers": address, "group.id": group, "enable.auto.commit": False}
    consumer = Consumer(conf | own, topic_prefix=prefix, exactly_once=True)
    consumer.subscribe([topic])
    print("started", flush=True)
    while True:
        message = consumer.poll(1.0)
        if message is not None and message.error() is None:
            consumer.send_message_back(message)
"""


@pytest.fixture(scope="module")
def here(bootstrap_servers: str) -> Installation:
    one = Installation(settings_for(bootstrap_servers))
    one.make_topics()
    one.write_groups()
    return one


@contextmanager
def running(here: Installation, kind: str, group: str, topic: str, *more: str) -> Iterator[subprocess.Popen[str]]:
    command = [sys.executable, "-c", CRASHING, kind, here.settings.bootstrap_servers, group, topic]
    with subprocess.Popen([*command, here.settings.topic_prefix, *more], stdout=subprocess.PIPE, text=True) as process:
        try:
            yield process
        finally:
            process.kill()


def says(process: subprocess.Popen[str], word: str) -> None:
    assert process.stdout is not None
    assert process.stdout.readline().strip() == word


class Readable:
    """Whether readers of committed records come to the end of a partition."""

    def __init__(self, here: Installation, topic: str) -> None:
        self._partition = TopicPartition(topic, 0)
        self._readers = [
            Consumer(here.settings.client_settings() | {"group.id": "looks", "isolation.level": level})
            for level in ("read_committed", "read_uncommitted")
        ]

    def __call__(self) -> bool:
        committed, stored = [one.get_watermark_offsets(self._partition, timeout=10)[1] for one in self._readers]
        return committed == stored

    def close(self) -> None:
        for one in self._readers:
            one.close()


@pytest.mark.parametrize(("kind", "restarts"), [("push", 2), ("drop-in", 1)])
def test_a_crash_in_a_transaction_holds_readers_up_until_the_restart(
    here: Installation, kind: str, restarts: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    group, topic = here.name(f"crash-{kind}"), here.topic(f"crash-{kind}")
    here.produce(topic, b"flight")
    readable = Readable(here, here.settings.names.delay(1_000))
    held_up: list[float] = []
    with running(here, kind, group, topic) as first:
        says(first, "started")
        says(first, "open")
    for left in reversed(range(restarts)):
        assert not readable(), "the dead consumer's transaction is open"
        with running(here, kind, group, topic, *(() if left else ("healthy",))) as again:
            says(again, "started")
            started = time.monotonic()
            wait_until(readable, "readers of committed records come to the end")
            held_up.append(time.monotonic() - started)
            if left:
                says(again, "open")
            else:
                wait_until(lambda: here.committed(group, topic) == 1, "the message is sent back")
    readable.close()
    assert max(held_up) < 5, f"{held_up}: the transaction's own timeout is 10 s, and it is looked for every 10 s"


def test_two_that_have_one_id_all_the_same_do_not_shut_each_other_out_for_ever(here: Installation) -> None:
    topic = here.topic("one-id")
    here.produce(topic, b"flight")
    members = []
    for name in ("one", "other"):
        group = here.name(f"one-id-{name}")
        settings = here.settings.client_settings() | {"group.id": group, "auto.offset.reset": "earliest"}
        consumer = Consumer(settings)
        consumer.subscribe([topic])
        wait_until(lambda consumer=consumer: consumer.poll(0.1), "it is a member")  # type: ignore[misc]
        writer = ExactlyOnceWriter(here.settings.client_settings(), here.settings.names, Groups, group, "one-id")
        members.append((consumer, writer))
    shut_out = 0
    for offset in range(1, 6):
        for consumer, writer in members:
            offsets = {(topic, 0): Commit(offset, "")}
            try:
                writer.send_back([], offsets, consumer.consumer_group_metadata())
            except OutcomeUnknown:
                shut_out += 1
                assert not writer.was_committed(offsets)
                writer.send_back([], offsets, consumer.consumer_group_metadata())
    assert shut_out == 2, "each once: who registers to look something up shuts the other one out"
    for consumer, writer in members:
        writer.close()
        consumer.close()
