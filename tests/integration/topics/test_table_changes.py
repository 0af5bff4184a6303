"""The level table is changed while records wait: none is stuck, none early, each keeps the delay it was promised."""

from __future__ import annotations

import os
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

import pytest

from reconsume.bridge.groups.groups import SystemConfig
from reconsume.bridge.groups.groups_store import write_system
from reconsume.bridge.topics.topics import TopicMaker
from reconsume.delay_levels.rules.levels import DelayLevels
from reconsume.delay_levels.wire.properties import Header
from tests.integration.installation import Installation, Record, settings_for
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.kafka, pytest.mark.early(3), pytest.mark.more]

OLD = "1s 1s 4s 6s"
EACH = 5


@contextmanager
def worker(one: Installation, instance: str, own_table: str | None = None) -> Iterator[None]:
    """A scheduler process; with a table of its own it does not hear of changes, as one that is not updated yet."""
    command = [
        *(sys.executable, "-m", "reconsume", "scheduler", "--instance-id", instance, "--management", "127.0.0.1:0"),
        *("--bootstrap-servers", one.settings.bootstrap_servers, "--log-level", "WARNING"),
    ]
    own = {} if own_table is None else {"RECONSUME_MESSAGE_DELAY_LEVEL": own_table}
    environment = os.environ | {"RECONSUME_TOPIC_PREFIX": one.settings.topic_prefix} | own
    with subprocess.Popen(command, env=environment) as process:
        try:
            yield
            assert process.poll() is None, f"worker {instance} has ended by itself"
        finally:
            process.kill()


def make_lanes(one: Installation, table: str) -> None:
    maker = TopicMaker(one.admin, one.settings.names, one.settings.topics)
    for delay_ms in DelayLevels.parse(table).distinct_delays_ms():
        maker.make(maker.delay_topic(delay_ms))


def send_back(one: Installation, group: str, table: str) -> None:
    """Some on each of the levels 3 and 4; a body tells its level and the table that holds."""
    for level in (3, 4):
        headers: list[Header] = [
            ("REAL_TOPIC", f"%RETRY%{group}".encode()),
            ("RETRY_TOPIC", b"orders"),
            ("DELAY_LEVEL_WHEN_NEXT_CONSUME", b"%d" % level),
        ]
        bodies = [f"{level}|{table}|{number}".encode() for number in range(EACH)]
        one.produce(one.settings.names.send_back, *bodies, headers=headers)


def on_lanes(one: Installation, group: str, *tables: str) -> dict[bytes | None, list[tuple[int, Record]]]:
    """Every copy on any lane, with the lane's delay, by body."""
    found: dict[bytes | None, list[tuple[int, Record]]] = {}
    for delay_ms in {delay for table in tables for delay in DelayLevels.parse(table).distinct_delays_ms()}:
        for record in one.waiting(delay_ms, group):
            found.setdefault(record.value, []).append((delay_ms, record))
    return found


def delay_of(level: int, table: str) -> int:
    """By RocketMQ's rule: a level above the highest is the highest."""
    delays = DelayLevels.parse(table).delays_ms
    return delays[min(level, len(delays)) - 1]


@pytest.mark.parametrize(
    ("new", "lanes_are_made"),
    [
        pytest.param("1s 1s 2s 3s", False, id="shortened"),
        pytest.param("1s 1s 5s 7s", True, id="lengthened, lanes made before"),
        pytest.param("1s", False, id="levels removed"),
    ],
)
def test_each_record_keeps_the_delay_that_it_was_promised(
    bootstrap_servers: str, new: str, lanes_are_made: bool
) -> None:
    """Also where nobody has made the new lanes: brokers must not make them by themselves."""
    one = Installation(settings_for(bootstrap_servers))
    one.make_topics()
    make_lanes(one, OLD)
    write_system(one.cluster, SystemConfig(message_delay_level=OLD))
    group = one.name("g")
    with ExitStack() as stack:
        stack.enter_context(worker(one, "follows"))
        stack.enter_context(worker(one, "has its own", OLD))
        send_back(one, group, OLD)
        wait_until(lambda: len(on_lanes(one, group, OLD)) == 2 * EACH, "they wait")
        if lanes_are_made:
            make_lanes(one, new)
        write_system(one.cluster, SystemConfig(message_delay_level=new))
        send_back(one, group, new)
        wait_until(lambda: len(one.retries(group)) >= 4 * EACH, "all are delivered")
        assert one.read(one.settings.names.quarantine) == []
    lanes = on_lanes(one, group, OLD, new)
    arrived = {record.value: record.timestamp for record in one.retries(group)}
    assert Counter(record.value for record in one.retries(group)) == dict.fromkeys(lanes, 1)
    for body, copies in lanes.items():
        [(delay_ms, copy)] = copies
        assert arrived[body] - copy.timestamp >= delay_ms
        level, table, _ = (body or b"").decode().split("|")
        # Which of the two workers takes in what comes after the change is Kafka's choice.
        promised = {delay_of(int(level), table)} | ({delay_of(int(level), OLD)} if table == new else set())
        assert delay_ms in promised, f"{body!r} waited {delay_ms} ms"
