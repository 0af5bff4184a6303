"""One group floods a delay topic: ten messages of another group that fail after it do not wait for it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

import pytest

from reconsume.bridge.groups.groups import SystemConfig
from reconsume.bridge.groups.groups_store import read_groups, write_system
from reconsume.bridge.process.settings import SchedulerSettings, Settings, TopicSettings
from reconsume.bridge.writing.send_back import SendBackWriter
from reconsume.delay_levels.errors import SendBackFailed
from reconsume.delay_levels.rules import lane_budgets
from reconsume.delay_levels.rules.lane_budgets import BURST
from reconsume.delay_levels.wire.inbox import inbox_copy
from reconsume.delay_levels.wire.send_back_copy import SendBackRequest, Stored
from tests.integration.installation import LEVELS, Installation, scheduler, settings_for
from tests.support.waiting import PATIENCE, wait_until

pytestmark = [pytest.mark.kafka, pytest.mark.more, pytest.mark.early(2)]

FEW = 10
BATCH = 1_000
DELAY_MS = 1_000
NORMAL, BULK = 2, 2


@pytest.fixture
def one(bootstrap_servers: str) -> Installation:
    """Its batches are small, so that a flood lasts for a while."""
    base = settings_for(bootstrap_servers)
    topics = TopicSettings(delay_partitions=NORMAL, bulk_partitions=BULK)
    changed: dict[str, object] = {"topics": topics, "scheduler": _batches_of(BATCH, base)}
    found = Installation(base.model_copy(update=changed))
    found.make_topics()
    write_system(found.cluster, SystemConfig(message_delay_level=LEVELS).publishing(topics))
    return found


def _batches_of(records: int, settings: Settings) -> SchedulerSettings:
    return settings.scheduler.model_copy(update={"max_batch_records": records})


def _request(group: str, number: int) -> SendBackRequest:
    stored = Stored("orders", f"orders/0/{number}", 0, 0, None)
    return SendBackRequest(group, [], stored)


def _send_back(one: Installation, groups: list[tuple[str, int]]) -> None:
    """As a consumer's library does, group after group."""
    known = read_groups(one.cluster)
    writer = SendBackWriter(one.settings.client_settings(), one.settings.names, lambda: known, "flooding")
    failures = list[SendBackFailed | None]()
    for group, count in groups:
        for number in range(count):
            writer.send_back(_request(group, number), b"%d" % number, b"%d" % number, failures.append)
        assert writer.flush(PATIENCE) == 0
    writer.close()
    assert set(failures) == {None}


def _through_the_inbox(one: Installation, groups: list[tuple[str, int]]) -> None:
    """As any client can; the schedulers write to the delay topic."""
    names, producer = one.settings.names, one.producer()
    for group, count in groups:
        for number in range(count):
            headers = inbox_copy(_request(group, number), names).headers
            producer.produce(names.send_back, b"%d" % number, b"%d" % number, headers=list(headers))
            producer.poll(0)
    assert producer.flush(PATIENCE) == 0
    producer.close()


@pytest.mark.parametrize(("write", "size"), [(_send_back, 30_000), (_through_the_inbox, 6_000)])
def test_a_flood_delays_its_own_group_alone(
    one: Installation,
    write: Callable[[Installation, list[tuple[str, int]]], None],
    size: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # A busy machine floods hardly faster than a budget is filled again.
    monkeypatch.setattr(lane_budgets, "PER_SECOND", 1)
    flood, few = one.name("flood"), one.name("few")
    if write is _send_back:
        write(one, [(flood, size), (few, FEW)])
    with scheduler(one.settings):
        if write is _through_the_inbox:
            write(one, [(flood, size), (few, FEW)])
        wait_until(lambda: len(one.retries(few)) == FEW, "the few")
        topic = one.settings.names.retry(flood)
        wait_until(lambda: one.admin.end_offsets([(topic, 0)])[topic, 0] >= size, "most of the flood")
        wait_until(lambda: len(one.retries(flood)) == size, "the flood")
    for group, count in ((flood, size), (few, FEW)):
        moved = one.retries(group)
        assert Counter(record.value for record in moved) == Counter(b"%d" % number for number in range(count))
        stored = {record.value: record.timestamp for record in one.waiting(DELAY_MS, group)}
        assert min(record.timestamp - stored[record.value] for record in moved) >= DELAY_MS
    partitions = Counter(record.partition for record in one.waiting(DELAY_MS, flood))
    in_bulk = sum(count for partition, count in partitions.items() if partition >= NORMAL)
    assert in_bulk >= size - 2 * BURST
    assert {record.partition for record in one.waiting(DELAY_MS, few)} <= set(range(NORMAL))
    if write is _send_back:
        last = max(record.timestamp for record in one.retries(few))
        later = sum(record.timestamp > last for record in one.retries(flood))
        # In front of them are those of the flood that librdkafka has fetched ahead.
        assert later > size // 4, f"only {later} of the flood came after the ten"


def test_bulk_partitions_are_added_to_what_an_earlier_version_has_made(one: Installation) -> None:
    """Records that wait stay where they are, and are delivered."""
    lane = one.settings.names.delay(3_000)
    one.admin.create(lane, NORMAL, -1, {"message.timestamp.type": "LogAppendTime"})
    headers = [("REAL_TOPIC", f"%RETRY%{one.name('g')}".encode())]
    with scheduler(one.settings):
        for partition in range(NORMAL):
            one.produce(lane, b"before", headers=headers, partition=partition)
        one.admin.add_partitions(lane, NORMAL + BULK)
        for partition in range(NORMAL, NORMAL + BULK):
            one.produce(lane, b"after", headers=headers, partition=partition)
        wait_until(lambda: len(one.retries(one.name("g"))) == NORMAL + BULK, "all of them")
