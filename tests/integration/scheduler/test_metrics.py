"""What a scheduler worker exports of what waits, on a real Kafka, with transactions and more than it reads ahead."""

from __future__ import annotations

import threading
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from prometheus_client.parser import text_string_to_metric_families

from reconsume.bridge.process.settings import SchedulerSettings, Settings
from reconsume.bridge.scheduler.service import SchedulerService
from tests.integration.installation import LEVELS, Installation, settings_for
from tests.support.waiting import PATIENCE, wait_until

pytestmark = pytest.mark.kafka


@contextmanager
def running(settings: Settings) -> Iterator[str]:
    """A worker and the address of its metrics."""
    stop, started, addresses = threading.Event(), threading.Event(), list[str]()

    def on_start(address: str) -> None:
        addresses.append(address)
        started.set()

    thread = threading.Thread(target=SchedulerService(settings, on_start).run, args=(stop,))
    thread.start()
    try:
        assert started.wait(PATIENCE)
        yield f"http://{addresses[0]}/metrics"
    finally:
        stop.set()
        thread.join(PATIENCE)
    assert not thread.is_alive()


def scraped(url: str) -> dict[tuple[str, str], float]:
    """Values by name and the first label, as Prometheus reads them."""
    with urllib.request.urlopen(url, timeout=10) as answer:  # noqa: S310 - our own address
        families = list(text_string_to_metric_families(answer.read().decode()))
    samples = [sample for family in families for sample in family.samples]
    return {(one.name, next(iter(one.labels.values()), "")): one.value for one in samples}


def test_backlog_and_overdue_are_told_by_level(bootstrap_servers: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("reconsume.bridge.scheduler.queues.backlog._EVERY_SECONDS", 0.2)
    small = settings_for(bootstrap_servers)
    one = Installation(
        small.model_copy(
            update={"scheduler": SchedulerSettings(instance_id=small.topic_prefix, read_ahead_records=100)}
        )
    )
    one.make_topics()
    one.write_groups()
    names = one.settings.names
    one.admin.create(names.delay(3_600_000), 1, -1, {"message.timestamp.type": "LogAppendTime"})
    group = one.name("g")
    waits = [("REAL_TOPIC", f"%RETRY%{group}".encode())]
    one.produce(names.delay(3_600_000), *(b"waits" for _ in range(700)), headers=waits)
    one.produce(names.delay(0), b"moves", headers=waits)
    one.produce(names.delay(0), b"for nobody", headers=[])
    with running(one.settings) as url:
        wait_until(lambda: scraped(url).get(("reconsume_scheduler_backlog_records", "DELAY.1h")) == 700, "all 700")
        wait_until(lambda: len(one.retries(group)) == 1, "the one that is due")
        wait_until(lambda: scraped(url)["reconsume_scheduler_backlog_records", "DELAY.0s"] == 0, "it left")
        found = scraped(url)
    assert found["reconsume_scheduler_overdue_records", "DELAY.1h"] == 0
    assert found["reconsume_scheduler_overdue_seconds", "DELAY.1h"] == 0
    assert found["reconsume_level_table_info", LEVELS] == 1
    assert found["reconsume_scheduler_refused_partitions", ""] == 0
    assert found["process_resident_memory_bytes", ""] > 0


def test_partitions_of_a_topic_that_is_set_up_wrongly_are_told(bootstrap_servers: str) -> None:
    one = Installation(settings_for(bootstrap_servers))
    one.make_topics()
    one.write_groups()
    names = one.settings.names
    one.admin.create(names.delay(60_000), 1, -1, {"message.timestamp.type": "CreateTime"})
    with running(one.settings) as url:
        wait_until(lambda: scraped(url).get(("reconsume_scheduler_refused_partitions", "")) == 1, "one refused")
        assert ("reconsume_scheduler_backlog_records", "DELAY.1m") not in scraped(url)
