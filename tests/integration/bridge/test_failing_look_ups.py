"""A topic that cannot be made, or looked at: what it costs the cluster, and groups that have nothing to do with it."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient, NewPartitions

from reconsume.bridge.kafka.admin import KafkaAdmin, WantedTopic
from reconsume.bridge.process.settings import TopicSettings
from tests.integration.installation import Installation, Record, scheduler, settings_for
from tests.support.waiting import PATIENCE, wait_until

pytestmark = pytest.mark.kafka
logger = logging.getLogger(__name__)

RECORDS = 5_000
NEW_GROUPS = 300
GROUPS = 300


@dataclass
class Calls:
    """Questions about retry topics, and requests to make some.

    Attributes:
        created: topics of those requests.
        seconds: how long each takes besides, as in a cluster that is far away.
    """

    describe: int = 0
    create: int = 0
    created: int = 0
    seconds: float = 0.0


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> Calls:
    counted, distance = Calls(), threading.Event()
    describe, create = KafkaAdmin._described, KafkaAdmin._create_others

    def counting_describe(self: KafkaAdmin, topics: list[str], *more: Any) -> Any:
        if threading.current_thread().name == "scheduler-under-test" and any(".RETRY." in topic for topic in topics):
            counted.describe += 1
            distance.wait(counted.seconds)
        return describe(self, topics, *more)

    def counting_create(self: KafkaAdmin, topics: list[WantedTopic], *more: Any) -> Any:
        counted.create += 1
        counted.created += len(topics)
        distance.wait(counted.seconds)
        return create(self, topics, *more)

    monkeypatch.setattr(KafkaAdmin, "_described", counting_describe)
    monkeypatch.setattr(KafkaAdmin, "_create_others", counting_create)
    return counted


@pytest.fixture
def one(bootstrap_servers: str) -> Iterator[Installation]:
    """An installation whose workers cannot make topics: they are told to give them more replicas than brokers."""
    base = settings_for(bootstrap_servers)
    found = Installation(base)
    found.make_topics()
    found.write_groups()
    found.admin.create(base.names.retry(found.name("fine")), 1, -1, {"message.timestamp.type": "LogAppendTime"})
    worker = base.model_copy(update={"topics": TopicSettings(delay_partitions=1, replication_factor=9)})
    with scheduler(worker):
        yield found


def flood(one: Installation, groups: list[str], number: int) -> None:
    producer = one.producer()
    for count in range(number):
        headers = [("REAL_TOPIC", f"%RETRY%{groups[count % len(groups)]}".encode())]
        producer.produce(one.settings.names.delay(2_000), value=b"%d" % count, headers=list(headers))
    assert producer.flush(PATIENCE) == 0
    producer.close()


def lateness_ms(one: Installation, delay_ms: int) -> int:
    """Of the one record of the group that is fine."""
    group = one.name("fine")
    [came] = wait_until(lambda: one.retries(group), "the group that is fine has its record") or []
    [stored] = one.waiting(delay_ms, group)
    return came.timestamp - stored.timestamp - delay_ms


def quarantined(one: Installation, number: int) -> list[Record]:
    topic = one.settings.names.quarantine
    # To read them all takes long, so it is not tried before there may be enough.
    wait_until(lambda: one.admin.end_offsets([(topic, 0)])[topic, 0] >= number, "they are in the quarantine")

    def all_of_them() -> list[Record]:
        found = one.read(topic)
        return found if len(found) >= number else []

    return wait_until(all_of_them, f"{number} records in the quarantine")


def test_a_topic_that_cannot_be_made_is_tried_once_in_a_while_and_costs_others_little(
    one: Installation, calls: Calls
) -> None:
    """Before: 10,032 calls, and the other group's record 15.2 s late."""
    flood(one, [one.name("bad")], RECORDS)
    flood(one, [one.name("fine")], 1)
    late = lateness_ms(one, 2_000)
    found = quarantined(one, RECORDS)
    logger.info("%d questions, %d tries, %d ms late", calls.describe, calls.create, late)
    assert all("INVALID_REPLICATION_FACTOR" in (record["QUARANTINE_REASON"] or "") for record in found)
    assert len(found) == RECORDS
    assert calls.create + calls.describe <= RECORDS // 50


def test_any_number_of_topics_that_cannot_be_made_hold_up_no_other_partition(one: Installation, calls: Calls) -> None:
    """Look-ups have a budget, so a batch with many of them is delivered in parts."""
    calls.seconds = 0.008
    flood(one, [one.name(f"bad-{number}") for number in range(GROUPS)], GROUPS)
    wait_until(lambda: calls.create > 0, "the first one is tried")
    one.produce(one.settings.names.delay(0), b"v", headers=[("REAL_TOPIC", f"%RETRY%{one.name('fine')}".encode())])
    late, tried = lateness_ms(one, 0), calls.create
    assert len(quarantined(one, GROUPS)) == GROUPS
    logger.info("%d ms late, when %d of %d were tried", late, tried, GROUPS)
    assert tried < GROUPS, "it did not wait for all of them"


def test_partitions_that_are_added_to_a_retry_topic_are_used(one: Installation) -> None:
    group = one.name("fine")
    lane, retry = one.settings.names.delay(0), one.settings.names.retry(group)

    def comes_to(partition: int) -> bool:
        one.produce(lane, b"v", headers=[("REAL_TOPIC", f"%RETRY%{group}".encode()), ("REAL_QID", b"1")])
        return one.admin.end_offsets([(retry, partition)])[retry, partition] > 0

    wait_until(lambda: comes_to(0), "it has one partition")
    admin = AdminClient(one.settings.client_settings())
    for future in admin.create_partitions([NewPartitions(retry, 2)]).values():
        future.result()
    wait_until(lambda: len(one.admin.partitions([retry])) == 1 and one.admin.partitions([retry])[retry] == 2)
    wait_until(lambda: comes_to(1), "the new partition is used")


def test_a_topic_that_is_made_meanwhile_is_seen(one: Installation) -> None:
    names, group = one.settings.names, one.name("late")
    bad = [("REAL_TOPIC", f"%RETRY%{group}".encode())]
    one.produce(names.delay(0), b"refused", headers=bad)
    assert [record.value for record in quarantined(one, 1)] == [b"refused"]
    one.admin.create(names.retry(group), 1, -1, {"message.timestamp.type": "LogAppendTime"})

    def comes() -> bool:
        one.produce(names.delay(0), b"v", headers=bad)
        return bool(one.retries(group))

    wait_until(comes, "it comes")


def test_topics_of_many_new_groups_are_made_together(bootstrap_servers: str, calls: Calls) -> None:
    """One after the other they took 68 ms each."""
    one = Installation(settings_for(bootstrap_servers))
    one.make_topics()
    one.write_groups()
    groups = [one.name(f"new-{number}") for number in range(NEW_GROUPS)]
    flood(one, groups, 2 * NEW_GROUPS)
    with scheduler(one.settings):
        wait_until(lambda: calls.created >= NEW_GROUPS, "all are made")
        topics = [one.settings.names.retry(group) for group in groups]
        wait_until(lambda: len(one.admin.partitions(topics)) == NEW_GROUPS, "all are there")
        wheres = [(topic, 0) for topic in topics]
        wait_until(lambda: min(one.admin.end_offsets(wheres).values()) >= 2, "all are delivered")
    assert one.read(one.settings.names.quarantine) == []
    assert calls.create <= NEW_GROUPS // 10
