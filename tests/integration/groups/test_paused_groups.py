"""A tap for each group: retries of a paused group wait, those of other groups do not, and nothing is lost."""

from __future__ import annotations

import sys
from collections import Counter
from pathlib import Path

import pytest

from reconsume.bridge.groups.groups import SystemConfig, parse_group_config
from reconsume.bridge.groups.groups_store import read_groups, write_group, write_system
from reconsume.bridge.topics.topics import make_parked_topics
from reconsume.operations.status import collect_status
from tests.integration.installation import LEVELS, Installation, scheduler, settings_for
from tests.integration.supervised import supervised
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.kafka]

MANY = 40
DELAY_MS = 1_000


def _send_back(one: Installation, group: str, numbers: range) -> None:
    """Put records on a delay topic, as a consumer of the library does."""
    for number in numbers:
        headers = [
            ("REAL_TOPIC", f"%RETRY%{group}".encode()),
            ("ORIGIN_MESSAGE_ID", f"orders/0/{number}".encode()),
            ("RECONSUME_TIME", b"1"),
        ]
        one.produce(one.settings.names.delay(DELAY_MS), b"%d" % number, key=b"k", headers=headers)


def _set_paused(one: Installation, group: str, *, paused: bool) -> None:
    config = parse_group_config(group, {"retryPaused": paused})
    groups = read_groups(one.cluster).with_record(group.encode(), config.to_json().encode())
    make_parked_topics(one.cluster, groups)
    write_group(one.cluster, config)


def _parked(one: Installation, group: str) -> int:
    found = {status.group: status.parked for status in collect_status(one.cluster).groups}
    return found[group].number if group in found else 0


def _expect_each_once_and_none_early(one: Installation, group: str, count: int) -> None:
    moved = one.retries(group)
    assert Counter(record.value for record in moved) == Counter(b"%d" % number for number in range(count))
    stored = {record.value: record.timestamp for record in one.waiting(DELAY_MS, group)}
    assert min(record.timestamp - stored[record.value] for record in moved) >= DELAY_MS


@pytest.fixture
def one(bootstrap_servers: str) -> Installation:
    found = Installation(settings_for(bootstrap_servers))
    found.make_topics()
    write_system(found.cluster, SystemConfig(message_delay_level=LEVELS))
    return found


def test_a_paused_group_holds_up_nobody_and_gets_everything_once_and_in_order_when_it_is_lifted(
    one: Installation,
) -> None:
    paused, other = one.name("paused"), one.name("other")
    _set_paused(one, paused, paused=True)
    with scheduler(one.settings):
        # Both groups' records stand in one partition, the paused group's in front.
        _send_back(one, paused, range(MANY))
        _send_back(one, other, range(MANY))
        wait_until(lambda: len(one.retries(other)) == MANY, "the retries of the other group")
        wait_until(lambda: _parked(one, paused) == MANY, "the parked records")
        assert one.retries(paused) == []
        _set_paused(one, paused, paused=False)
        wait_until(lambda: len(one.retries(paused)) >= MANY, "the retries of the group that was paused")
        _send_back(one, paused, range(MANY, MANY + 1))
        wait_until(lambda: len(one.retries(paused)) > MANY, "a retry after the pause")
    assert [record.value for record in one.retries(paused)] == [b"%d" % number for number in range(MANY + 1)]
    _expect_each_once_and_none_early(one, paused, MANY + 1)
    _expect_each_once_and_none_early(one, other, MANY)
    assert _parked(one, paused) == 0


def test_workers_that_are_killed_while_a_group_is_paused_lose_nothing_and_deliver_nothing_twice(
    one: Installation, tmp_path: Path
) -> None:
    group = one.name("paused")
    _set_paused(one, group, paused=True)
    prefix, servers = one.settings.topic_prefix, one.settings.bootstrap_servers
    environment = {
        "RECONSUME_BOOTSTRAP_SERVERS": servers,
        "RECONSUME_TOPIC_PREFIX": prefix,
        "RECONSUME_SCHEDULER__INSTANCE_ID": f"{prefix}killed",
        "RECONSUME_MANAGEMENT__PORT": "0",
    }
    command = [sys.executable, "-m", "reconsume", "scheduler"]
    with supervised(command, tmp_path / "log", **environment) as worker:
        _send_back(one, group, range(MANY))
        wait_until(lambda: _parked(one, group) > 0, "a parked record")
        worker.kill()
        _send_back(one, group, range(MANY, 2 * MANY))
        worker.keep_running()
        wait_until(lambda: _parked(one, group) == 2 * MANY, "all of them parked")
        worker.kill()
        _set_paused(one, group, paused=False)
        worker.keep_running()
        wait_until(lambda: one.retries(group), "the first delivery")
        worker.kill()
        worker.keep_running()
        wait_until(lambda: len(one.retries(group)) >= 2 * MANY, "all of them")
    _expect_each_once_and_none_early(one, group, 2 * MANY)
