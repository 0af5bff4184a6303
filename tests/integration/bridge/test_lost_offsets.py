"""A coordinator that has lost its group's offsets."""

from __future__ import annotations

import struct
from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Any

import pytest
from confluent_kafka import Producer

from reconsume.bridge.process.settings import Settings
from reconsume.bridge.reading.known_offsets import KnownOffsets
from reconsume.cli.broker.kafka import LocalKafka
from tests.integration.installation import SUCCESS, Deliveries, Installation, scheduler, settings_for
from tests.support.brokers.kafka import kafka_to_kill
from tests.support.waiting import PATIENCE, wait_until

pytestmark = [pytest.mark.kafka, pytest.mark.early(3), pytest.mark.more]

PATIENCE_MS = 3_000.0


@pytest.fixture(scope="module")
def broker() -> Iterator[LocalKafka]:
    with kafka_to_kill() as one:
        yield one


@pytest.fixture
def kafka(broker: LocalKafka) -> LocalKafka:
    """The broker, also after a test that failed while it was down."""
    if not broker.alive():
        broker.start()
    return broker


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
    assert producer.flush(PATIENCE) == 0
    producer.close()


def test_schedulers_that_all_start_anew_deliver_nothing_again(kafka: LocalKafka) -> None:
    """Nobody is left who remembers, also not in the lane whose records have moments of their own."""
    one, group = installed(kafka)
    names, group_of_workers = one.settings.names, one.settings.topic_prefix + "scheduler"
    lanes = [names.delay(delay_ms) for delay_ms in (0, 1_000, 2_000)]
    retry = [("REAL_TOPIC", f"%RETRY%{group}".encode()), ("RECONSUME_TIME", b"0")]
    with scheduler(one.settings), scheduler(second_worker(one)):
        for lane in lanes:
            one.produce(lane, *(b"%d" % value for value in range(50)), headers=retry)
        wait_until(lambda: len(one.retries(group)) >= 150, "all deliveries")
    lose_offsets(one, group_of_workers, lanes)
    kafka.kill()
    kafka.start()
    assert {where for where in one.all_committed(group_of_workers) if where[0] in lanes} == set()
    for lane in lanes:
        one.produce(lane, *(b"%d" % value for value in range(50, 60)), headers=retry)
    with scheduler(one.settings), scheduler(second_worker(one)):
        wait_until(lambda: len(one.retries(group)) >= 180, "the new ones")
        wait_until(lambda: all(one.all_committed(group_of_workers).get((lane, 0), 0) > 50 for lane in lanes), "commits")
    assert Counter(record.value for record in one.retries(group)) == Counter({b"%d" % n: 3 for n in range(60)})


def test_a_worker_that_lives_delivers_nothing_again(kafka: LocalKafka) -> None:
    one, group = installed(kafka)
    names, group_of_workers = one.settings.names, one.settings.topic_prefix + "scheduler"
    busy, idle = names.delay(1_000), names.delay(2_000)
    retry = [("REAL_TOPIC", f"%RETRY%{group}".encode())]
    with scheduler(one.settings):
        for lane in (busy, idle):
            one.produce(lane, *(b"%d" % value for value in range(50)), headers=retry)
        wait_until(lambda: len(one.retries(group)) >= 100, "all deliveries")
        lose_offsets(one, group_of_workers, [busy, idle])
        kafka.kill()
        kafka.start()
        assert not {(busy, 0), (idle, 0)} & one.all_committed(group_of_workers).keys(), "nothing was lost"
        one.produce(busy, b"50", headers=retry)
        wait_until(lambda: b"50" in {record.value for record in one.retries(group)}, "the next one")
    with scheduler(one.settings):
        one.produce(idle, b"50", headers=retry)
        wait_until(lambda: len(one.retries(group)) >= 102, "the one of the idle lane")
    assert Counter(record.value for record in one.retries(group)) == Counter({b"%d" % n: 2 for n in range(51)})


def installed(kafka: LocalKafka) -> tuple[Installation, str]:
    """An installation, and a group of it."""
    one = Installation(settings_for(kafka.bootstrap_servers))
    one.make_topics()
    one.write_groups()
    return one, one.name("g")


def second_worker(one: Installation) -> Settings:
    identity = f"{one.settings.topic_prefix}2"
    return one.settings.model_copy(
        update={"scheduler": one.settings.scheduler.model_copy(update={"instance_id": identity})}
    )


def test_a_consumer_goes_on_where_it_was(kafka: LocalKafka, monkeypatch: pytest.MonkeyPatch) -> None:
    """From the beginning it would repeat everything, from the end it would skip what came meanwhile."""
    monkeypatch.setattr(KnownOffsets, "ask", with_patience(KnownOffsets.ask))
    one, _ = installed(kafka)
    plain, exactly_once = one.topic("plain"), one.topic("exactly-once")  # groups have the names of their topics
    seen = {topic: Deliveries(lambda _messages, _context: SUCCESS) for topic in (plain, exactly_once)}
    late, early = {"auto.offset.reset": "latest"}, {"auto.offset.reset": "earliest"}
    with (
        one.consumer(plain, plain, seen[plain], conf=late),
        one.consumer(exactly_once, exactly_once, seen[exactly_once], conf=early, exactly_once=True),
    ):
        for topic, deliveries in seen.items():
            begin(one, topic, deliveries)
        for topic in seen:
            lose_offsets(one, topic, [topic])
        kafka.kill()
        kafka.start()
        assert [one.committed(topic, topic) for topic in seen] == [None, None], "nothing was lost"
        for topic in seen:
            one.produce(topic, *(b"%d" % number for number in range(50, 60)))
        for deliveries in seen.values():
            wait_until(lambda to=deliveries: (b"59", 0) in to.seen, "the new ones")  # type: ignore[misc]
    for topic, deliveries in seen.items():
        counts = Counter(body for body, _ in deliveries.seen)
        assert {body: counts[body] for body in counts if body != b"first"} == {b"%d" % n: 1 for n in range(60)}
        assert one.committed(topic, topic) is not None


def begin(one: Installation, topic: str, seen: Deliveries) -> None:
    """Produce, and wait until the group with the topic's name has committed all."""

    def begins() -> bool:
        one.produce(topic, b"first")
        return bool(seen.messages)

    wait_until(begins, "it consumes")
    one.produce(topic, *(b"%d" % number for number in range(50)))
    end = one.admin.end_offsets([(topic, 0)])[topic, 0]
    wait_until(lambda: one.committed(topic, topic) == end, "all are committed")


def with_patience(ask: Any) -> Any:
    def asking(self: KnownOffsets, *of_it: Any) -> Any:
        self._patience_ms = PATIENCE_MS
        return ask(self, *of_it)

    return asking
