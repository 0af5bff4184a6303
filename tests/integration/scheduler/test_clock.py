"""A worker whose own clock is wrong delivers by the brokers' clock."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Literal

import pytest
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource

from reconsume.bridge.process.clock import now_ms
from reconsume.bridge.process.settings import SchedulerSettings
from reconsume.cli.chaos.cluster.worker import set_ahead
from tests.integration.installation import Installation, installation, scheduler, settings_for
from tests.support.brokers.set_clock import kafka_with_clock
from tests.support.waiting import PATIENCE, wait_until

pytestmark = [pytest.mark.kafka, pytest.mark.early(1)]

DELAY_MS = 1_000


def deliver(one: Installation, value: bytes, count: int) -> None:
    """Produce a record to the delay topic, and wait for delivery `count`."""
    group = one.name("g")
    one.produce(one.settings.names.delay(DELAY_MS), value, headers=[("REAL_TOPIC", f"%RETRY%{group}".encode())])
    wait_until(lambda: len(one.retries(group)) == count, f"delivery {count}")


@pytest.mark.parametrize(
    ("ahead", "delivery"), [(40.0, "transactional"), (-40.0, "at_least_once")], ids=["ahead", "behind"]
)
def test_a_clock_that_is_set_wrong_makes_nothing_early_and_nothing_late(
    bootstrap_servers: str, tmp_path: Path, ahead: float, delivery: str
) -> None:
    settings = settings_for(bootstrap_servers)
    one = Installation(settings)
    one.make_topics()
    one.write_groups()
    clock = tmp_path / "clock"
    set_ahead(clock, 0)
    command = [
        *(sys.executable, "-m", "reconsume.cli.chaos.cluster.worker", str(clock), "scheduler"),
        *("--instance-id", "wrong", "--bootstrap-servers", bootstrap_servers, "--management", "127.0.0.1:0"),
    ]
    environment = os.environ | {
        "RECONSUME_TOPIC_PREFIX": settings.topic_prefix,
        "RECONSUME_SCHEDULER__DELIVERY": delivery,
    }
    with subprocess.Popen(command, env=environment) as worker:
        try:
            deliver(one, b"1", 1)
            set_ahead(clock, ahead)
            for count in (2, 3):
                deliver(one, b"%d" % count, count)
        finally:
            worker.kill()
    group = one.name("g")
    stored = {record.value: record.timestamp for record in one.waiting(DELAY_MS, group)}
    waited = {record.value: record.timestamp - stored[record.value] for record in one.retries(group)}
    assert min(waited.values()) >= DELAY_MS
    assert max(waited[b"2"], waited[b"3"]) < DELAY_MS + 30_000, "a clock that is 40 s behind made them late"


def installation_with(bootstrap_servers: str, delivery: Literal["transactional", "at_least_once"]) -> Installation:
    settings = settings_for(bootstrap_servers)
    worker = SchedulerSettings(instance_id=settings.topic_prefix, delivery=delivery)
    one = Installation(settings.model_copy(update={"scheduler": worker}))
    one.make_topics()
    one.write_groups()
    return one


def test_a_brokers_clock_that_is_set_back_while_a_worker_is_idle_makes_nothing_early(tmp_path: Path) -> None:
    with kafka_with_clock(tmp_path) as (kafka, clock):
        transactional = installation_with(kafka.bootstrap_servers, "transactional")
        at_least_once = installation_with(kafka.bootstrap_servers, "at_least_once")
        with scheduler(transactional.settings), scheduler(at_least_once.settings):
            for one in (transactional, at_least_once):
                deliver(one, b"right", 1)  # which tells the brokers' time
            set_ahead(clock, -120)
            for one in (transactional, at_least_once):
                deliver(one, b"set back", 2)
        for one in (transactional, at_least_once):
            (before, stored), (_, delivered) = one.waiting(DELAY_MS, one.name("g")), one.retries(one.name("g"))
            assert stored.timestamp < before.timestamp - 60_000, "the clock was not set back"
            assert DELAY_MS <= delivered.timestamp - stored.timestamp < DELAY_MS + 30_000


@pytest.mark.parametrize("keyless", [0, 1], ids=["all taken", "one refused"])
def test_a_clock_that_is_hours_ahead_of_the_brokers_delivers_to_topics_that_keep_timestamps(
    tmp_path: Path, keyless: int
) -> None:
    """Kafka 4 refuses records that are created an hour ahead of its clock."""
    with (
        kafka_with_clock(tmp_path, -7_200) as (kafka, _),
        installation(kafka.bootstrap_servers, allowed=["flights"]) as one,
    ):
        names, topic = one.settings.names, "flights"
        one.admin.create(topic, 1, 1, {"cleanup.policy": "compact"})
        headers = [("REAL_TOPIC", topic.encode())]
        one.produce(names.delay(DELAY_MS), *[b"no key"] * keyless, headers=headers)
        one.produce(names.delay(DELAY_MS), b"1", b"2", b"3", key=b"UA1545", headers=headers)
        wait_until(lambda: len(one.read(topic)) + len(one.read(names.quarantine)) == 3 + keyless, "all have left")
        reasons = [record["QUARANTINE_REASON"] for record in one.read(names.quarantine)]
        assert len(reasons) == keyless, reasons
        assert [record.value for record in one.read(topic)] == [b"1", b"2", b"3"]


def test_a_topic_that_takes_its_producers_timestamps_makes_nothing_early_and_holds_nothing_up(
    bootstrap_servers: str,
) -> None:
    with installation(bootstrap_servers) as one:
        group, lane = one.name("g"), one.settings.names.delay(DELAY_MS)
        headers = [("REAL_TOPIC", f"%RETRY%{group}".encode())]
        one.produce(lane, b"first", headers=headers)
        wait_until(lambda: len(one.retries(group)) == 1, "a delivery, so the worker reads the lane")
        resource = ConfigResource(ConfigResource.Type.TOPIC, lane)
        entry = ConfigEntry("message.timestamp.type", "CreateTime", incremental_operation=AlterConfigOpType.SET)
        resource.add_incremental_config(entry)
        admin = AdminClient(one.settings.client_settings())
        admin.incremental_alter_configs([resource])[resource].result()
        began, half_an_hour = now_ms(), 1_800_000
        producer = one.producer()
        for value, created in ((b"old", began - half_an_hour), (b"of tomorrow", began + half_an_hour)):
            producer.produce(lane, value, headers=[*headers], timestamp=int(created))
        assert producer.flush(PATIENCE) == 0
        producer.close()
        wait_until(lambda: len(one.retries(group)) == 3, "their deliveries")
        delivered = one.retries(group)
    assert [record.value for record in delivered] == [b"first", b"old", b"of tomorrow"]
    assert delivered[1].timestamp - began >= DELAY_MS
