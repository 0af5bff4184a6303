"""A topic is deleted under those who write to it: it is made again as it must be, and what comes later arrives."""

from __future__ import annotations

import threading
from collections.abc import Callable

import pytest
from confluent_kafka import Consumer
from confluent_kafka.admin import AdminClient
from pydantic import SecretStr

from reconsume.bridge.groups.groups import Groups, SystemConfig
from reconsume.bridge.kafka.admin import Commit
from reconsume.bridge.kafka.client_settings import consumer_settings
from reconsume.bridge.writing.exactly_once import ExactlyOnceWriter, Failed
from reconsume.bridge.writing.send_back import SendBackWriter
from reconsume.delay_levels.errors import KafkaNotReachable
from reconsume.delay_levels.wire.send_back_copy import Position, SendBackRequest, Stored
from tests.integration.installation import LEVELS, Installation, installation, scheduler, settings_for
from tests.support.waiting import PATIENCE, wait_until

pytestmark = [pytest.mark.kafka, pytest.mark.more, pytest.mark.early(4)]

COUNT = 5
NOTICING = {
    "topic.metadata.refresh.interval.ms": SecretStr("200"),
    "topic.metadata.propagation.max.ms": SecretStr("100"),
}
"""Clients notice a deletion within a second, not after half a minute."""


def wait_for(one: Installation, group: str, kind: str, *bodies: bytes) -> None:
    one.produce(one.settings.names.delay(1_000), *bodies, headers=[("REAL_TOPIC", f"%{kind}%{group}".encode())])


@pytest.mark.parametrize(("kind", "count"), [("RETRY", COUNT), ("DLQ", 1)])
def test_a_target_that_was_deleted_is_made_again(bootstrap_servers: str, kind: str, count: int) -> None:
    settings = settings_for(bootstrap_servers)
    with installation(bootstrap_servers, prefix=settings.topic_prefix) as one:
        names, admin = settings.names, AdminClient(settings.client_settings())
        group, other = one.name("g"), one.name("other")
        topic = names.retry(group) if kind == "RETRY" else names.dead_letter(group)
        for name in (group, other):
            wait_for(one, name, kind, b"before")
        wait_until(lambda: [record.value for record in one.read(topic)] == [b"before"], "the first one arrives")
        admin.delete_topics([topic])[topic].result()
        wait_until(lambda: topic not in one.admin.partitions([topic]), "it is gone")
        bodies = [b"%d" % number for number in range(count)]
        for name in (group, other):
            wait_for(one, name, kind, *bodies)
        of_other = names.retry(other) if kind == "RETRY" else names.dead_letter(other)
        for where, expected in ((of_other, [b"before", *bodies]), (topic, bodies)):
            wait_until(lambda where=where, all_of=expected: len(one.read(where)) >= len(all_of), where)  # type: ignore[misc]
            assert sorted(record.value or b"" for record in one.read(where)) == sorted(expected)
        assert one.read(names.quarantine) == []
        assert one.admin.settings([topic])[topic]["message.timestamp.type"] == "LogAppendTime"


def test_a_record_alone_whose_target_was_deleted_is_delivered_when_it_is_made_again(bootstrap_servers: str) -> None:
    """The worker's producer has noticed the deletion before the record is due, so it refuses the record at once."""
    one = Installation(settings_for(bootstrap_servers).model_copy(update={"kafka": NOTICING}))
    one.make_topics()
    one.write_groups()
    group, topic = one.name("g"), one.settings.names.retry(one.name("g"))
    with scheduler(one.settings):
        wait_for(one, group, "RETRY", b"before")
        wait_until(lambda: [record.value for record in one.read(topic)] == [b"before"], "the first one arrives")
        one.delete(topic)
        wait_for(one, group, "RETRY", b"after")
        wait_until(lambda: one.read(topic) or one.read(one.settings.names.quarantine), "it arrives, or is refused")
        assert [record.value for record in one.read(topic)] == [b"after"]
        assert one.read(one.settings.names.quarantine) == []


@pytest.mark.parametrize("count", [COUNT - 2, 2 * COUNT], ids=["shorter than the old one", "longer"])
def test_a_delay_topic_that_people_delete_and_make_again_at_once_loses_no_new_record(
    bootstrap_servers: str, count: int
) -> None:
    """Within 10 s consumers do not notice; to their queues the new records are copies of old ones."""
    one = Installation(settings_for(bootstrap_servers))
    one.make_topics()
    one.write_groups()
    group, lane = one.name("g"), one.settings.names.delay(1_000)
    with scheduler(one.settings):
        wait_for(one, group, "RETRY", *(b"old %d" % number for number in range(COUNT)))
        wait_until(lambda: len(one.retries(group)) == COUNT, "the old ones arrive")
        one.delete(lane)
        one.make_topics()
        bodies = {b"new %d" % number for number in range(count)}
        wait_for(one, group, "RETRY", *sorted(bodies))
        wait_until(lambda: bodies <= {record.value for record in one.retries(group)}, "the new ones arrive")
        workers = one.settings.topic_prefix + "scheduler"
        wait_until(lambda: one.committed(workers, lane) == count, "they are committed")
    assert one.read(one.settings.names.quarantine) == []


def exactly_once(one: Installation, group: str, topic: str) -> Callable[[int], None]:
    """Sends a message back by its offset, with its commit, as often as the brokers do not answer."""
    groups, base = Groups(SystemConfig(message_delay_level=LEVELS)), one.settings.client_settings()
    writer = ExactlyOnceWriter(base, one.settings.names, lambda: groups, group, f"{group}-writer")
    consumer = Consumer(consumer_settings(base, group) | {"group.id": group})
    consumer.subscribe([topic])
    wait_until(lambda: consumer.poll(0.1), "the consumer is a member")

    def send_back(offset: int) -> None:
        consumer.poll(0)
        where = {(topic, 0): Commit(offset + 1, "")}
        try:
            writer.send_back(
                [Failed(request(group, topic, offset), None, b"%d" % offset)], where, consumer.consumer_group_metadata()
            )
        except KafkaNotReachable:
            assert not writer.was_committed(where)
            send_back(offset)

    return send_back


def plain(one: Installation, group: str, topic: str) -> Callable[[int], None]:
    groups = Groups(SystemConfig(message_delay_level=LEVELS))
    writer = SendBackWriter(one.settings.client_settings(), one.settings.names, lambda: groups, group)

    def send_back(offset: int) -> None:
        results, is_done = list[Exception | None](), threading.Event()

        def done(error: Exception | None) -> None:
            results.append(error)
            is_done.set()

        writer.send_back(request(group, topic, offset), None, b"%d" % offset, done)
        assert is_done.wait(PATIENCE)
        assert results == [None]

    return send_back


def request(group: str, topic: str, offset: int) -> SendBackRequest:
    return SendBackRequest(group, [], Stored.first_copy(Position(topic, 0, offset), 0))


@pytest.mark.rule("SB-04")
@pytest.mark.parametrize("way", [plain, exactly_once])
def test_a_delay_topic_that_was_deleted_is_made_again(
    bootstrap_servers: str, way: Callable[[Installation, str, str], Callable[[int], None]]
) -> None:
    """Through the inbox, and by the scheduler: nobody has the brokers make it with the clock of its producers."""
    settings = settings_for(bootstrap_servers).model_copy(update={"kafka": NOTICING if way is plain else {}})
    one = Installation(settings)
    one.make_topics()
    one.write_groups()
    with scheduler(settings):
        group, topic = one.name("g"), one.topic("orders")
        one.produce(topic, b"0", b"1")
        admin, lane, retry = (
            AdminClient(settings.client_settings()),
            settings.names.delay(1_000),
            settings.names.retry(group),
        )
        send_back = way(one, group, topic)
        send_back(0)
        wait_until(lambda: one.read(retry), "the first one arrives")
        admin.delete_topics([lane])[lane].result()
        wait_until(lambda: lane not in one.admin.partitions([lane]), "it is gone")
        send_back(1)
        wait_until(lambda: len(one.read(retry)) == 2, "the second one arrives too")
        assert [record.value for record in one.read(retry)] == [b"0", b"1"]
        assert one.read(settings.names.quarantine) == []
        assert [record.value for record in one.read(settings.names.send_back)] == [b"1"]
        assert one.admin.settings([lane])[lane]["message.timestamp.type"] == "LogAppendTime"
