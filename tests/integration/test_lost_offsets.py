"""A coordinator that has lost its group's offsets while the group's members live."""

from __future__ import annotations

import struct
import threading
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from confluent_kafka import Producer

from reconsume.bridge.known_offsets import KnownOffsets
from reconsume.bridge.scheduler.service import SchedulerService
from tests.integration.installation import SUCCESS, Deliveries, Installation, settings_for
from tests.support.kafka import kafka_to_kill
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.kafka, pytest.mark.timeout(240)]

PATIENCE_MS = 3_000.0


def commit_key(group: str, topic: str, partition: int) -> bytes:
    """Of a record of `__consumer_offsets` (`OffsetCommitKey`, version 1)."""
    names = b"".join(struct.pack(">h", len(one)) + one for one in (group.encode(), topic.encode()))
    return struct.pack(">h", 1) + names + struct.pack(">i", partition)


def lose_offsets(one: Installation, group: str, topics: Iterable[str]) -> None:
    """The next coordinator of the group reads that nothing is committed; the present one goes on.

    Only to clients with this id brokers open their own topics.
    """
    producer = Producer(one.settings.client_settings() | {"client.id": "__admin_client"})
    for partition in range(one.admin.partitions(["__consumer_offsets"])["__consumer_offsets"]):
        for topic in topics:
            producer.produce("__consumer_offsets", key=commit_key(group, topic, 0), value=None, partition=partition)
    assert producer.flush(30) == 0
    producer.close()


@contextmanager
def worker(one: Installation) -> Iterator[SchedulerService]:
    service, stop = SchedulerService(one.settings), threading.Event()
    service._known._patience_ms = PATIENCE_MS
    thread = threading.Thread(target=service.run, args=(stop,))
    thread.start()
    try:
        yield service
    finally:
        stop.set()
        thread.join(30)
    assert not thread.is_alive()


def test_what_was_delivered_is_not_delivered_again(caplog: pytest.LogCaptureFixture) -> None:
    with kafka_to_kill() as kafka:
        one = Installation(settings_for(kafka.bootstrap_servers))
        one.make_topics()
        one.write_groups()
        names, scheduler = one.settings.names, one.settings.topic_prefix + "scheduler"
        group, lanes = one.name("g"), [names.delay(delay_ms) for delay_ms in (0, 1_000, 2_000)]
        retry = [("REAL_TOPIC", f"%RETRY%{group}".encode()), ("RECONSUME_TIME", b"0")]

        def produce(values: Iterable[int]) -> None:
            for lane in lanes:
                one.produce(lane, *(b"%d" % value for value in values), headers=retry)

        with worker(one) as service:
            produce(range(50))
            wait_until(lambda: len(one.retries(group)) >= 150, 60, "all deliveries")
            lose_offsets(one, scheduler, lanes)
            kafka.kill()
            kafka.start()
            assert {where for where in one.all_committed(scheduler) if where[0] in lanes} == set(), "nothing was lost"
            produce(range(50, 60))
            wait_until(lambda: len(one.retries(group)) >= 180, 120, "the new ones")
            wait_until(lambda: service._observer.waiting.heads != (), 30, "the worker has its partitions")
            wait_until(
                lambda: all(one.all_committed(scheduler).get((lane, 0), 0) > 50 for lane in lanes), 60, "commits"
            )
        assert Counter(record.value for record in one.retries(group)) == Counter({b"%d" % n: 3 for n in range(60)})
        assert "restoring" in caplog.text


def test_an_idle_worker_restores_them_too() -> None:
    """Nothing is delivered after the loss, so no batch tells of it; the next worker would begin anew."""
    with kafka_to_kill() as kafka:
        one = Installation(settings_for(kafka.bootstrap_servers))
        one.make_topics()
        one.write_groups()
        names, scheduler = one.settings.names, one.settings.topic_prefix + "scheduler"
        group, lane = one.name("g"), names.delay(1_000)
        with worker(one):
            one.produce(
                lane, *(b"%d" % value for value in range(50)), headers=[("REAL_TOPIC", f"%RETRY%{group}".encode())]
            )
            wait_until(lambda: len(one.retries(group)) >= 50, 60, "all deliveries")
            before = one.all_committed(scheduler)[lane, 0]
            lose_offsets(one, scheduler, [lane])
            kafka.kill()
            kafka.start()
            assert (lane, 0) not in one.all_committed(scheduler), "nothing was lost"
            wait_until(lambda: one.all_committed(scheduler).get((lane, 0)) == before, 60, "the offset is back")
        with worker(one):
            one.produce(lane, b"50", headers=[("REAL_TOPIC", f"%RETRY%{group}".encode())])
            wait_until(lambda: b"50" in {record.value for record in one.retries(group)}, 60, "the next one")
        assert Counter(record.value for record in one.retries(group)) == Counter(b"%d" % value for value in range(51))


@pytest.mark.parametrize(
    ("start", "exactly_once"), [("latest", False), ("earliest", True)], ids=["plain", "exactly once"]
)
def test_a_consumer_goes_on_where_it_was(start: str, *, exactly_once: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """From the beginning it would repeat everything, from the end it would skip what came meanwhile."""
    monkeypatch.setattr(KnownOffsets, "ask", with_patience(KnownOffsets.ask))
    with kafka_to_kill() as kafka:
        one = Installation(settings_for(kafka.bootstrap_servers))
        one.make_topics()
        one.write_groups()
        group, topic = one.name("g"), one.topic("flights")
        seen = Deliveries(lambda _messages, _context: SUCCESS)
        with one.consumer(group, topic, seen, conf={"auto.offset.reset": start}, exactly_once=exactly_once):

            def begins() -> bool:
                one.produce(topic, b"first")
                return bool(seen.messages)

            wait_until(begins, 60, "it consumes")
            one.produce(topic, *(b"%d" % number for number in range(50)))
            end = one.admin.end_offsets([(topic, 0)])[topic, 0]
            wait_until(lambda: one.committed(group, topic) == end, 60, "all are committed")
            lose_offsets(one, group, [topic])
            kafka.kill()
            kafka.start()
            assert one.committed(group, topic) is None, "nothing was lost"
            one.produce(topic, *(b"%d" % number for number in range(50, 60)))
            wait_until(lambda: (b"59", 0) in seen.seen, 120, "the new ones")
        counts = Counter(body for body, _ in seen.seen)
        assert {body: counts[body] for body in counts if body != b"first"} == {b"%d" % n: 1 for n in range(60)}
        assert one.committed(group, topic) is not None


def with_patience(ask: Any) -> Any:
    def asking(self: KnownOffsets, *of_it: Any) -> Any:
        self._patience_ms = PATIENCE_MS
        return ask(self, *of_it)

    return asking
