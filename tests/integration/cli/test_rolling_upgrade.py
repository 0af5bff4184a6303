"""Two workers replaced one after the other under load: delivery goes on, nothing is lost, nothing comes twice."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

import pytest

from reconsume.bridge.process.settings import SchedulerSettings, Settings
from reconsume.operations.doctor.inspection import Inspector
from tests.integration.installation import Installation, scheduler, settings_for
from tests.support.waiting import PATIENCE, wait_until

pytestmark = pytest.mark.kafka


@contextmanager
def load(one: Installation, topic: str, group: str) -> Iterator[list[bytes]]:
    """Records for the group until the end; gives the values that were acknowledged."""
    stop, sent = threading.Event(), list[bytes]()
    headers = [("REAL_TOPIC", f"%RETRY%{group}".encode())]

    def produce() -> None:
        producer = one.producer()
        while not stop.wait(0.02):
            value = b"%d" % len(sent)
            producer.produce(topic, value=value, key=value, headers=list(headers))
            sent.append(value)
        assert producer.flush(PATIENCE) == 0
        producer.close()

    thread = threading.Thread(target=produce)
    thread.start()
    try:
        yield sent
    finally:
        stop.set()
        thread.join(PATIENCE)


def test_workers_are_replaced_one_after_the_other(bootstrap_servers: str) -> None:
    base = settings_for(bootstrap_servers)
    one = Installation(base.model_copy(update={"topics": base.topics.model_copy(update={"delay_partitions": 4})}))
    one.make_topics()
    one.write_groups()
    names, group = one.settings.names, one.name("g")
    lane, retry = names.delay(1_000), names.retry(group)
    one.admin.create(retry, 1, -1, {"message.timestamp.type": "LogAppendTime"})

    def worker(name: str) -> Settings:
        return one.settings.model_copy(update={"scheduler": SchedulerSettings(instance_id=one.name(name))})

    def delivered() -> int:
        return one.admin.end_offsets([(retry, 0)])[retry, 0]

    def goes_on() -> None:
        before = delivered()
        wait_until(lambda: delivered() > before + 20, "more is delivered")

    def both_work() -> None:
        inspector = Inspector(one.settings.client_settings())
        wait_until(lambda: len(inspector.members(names.prefix + "scheduler")) == 2, "both are members")

    with ExitStack() as everything:
        workers = {name: everything.enter_context(ExitStack()) for name in ("a", "b")}
        with load(one, lane, group) as sent:
            for name, stack in workers.items():
                stack.enter_context(scheduler(worker(name)))
            both_work()
            goes_on()
            for name, stack in workers.items():
                stack.close()
                goes_on()
                stack.enter_context(scheduler(worker(name)))
                both_work()
            goes_on()
        wait_until(lambda: len(one.retries(group)) >= len(sent), "all are delivered")
    found = one.retries(group)
    assert sorted(record.value or b"" for record in found) == sorted(sent)
    stored = {record.value: record.timestamp for record in one.read(lane)}
    assert all(record.timestamp >= stored[record.value] + 1_000 for record in found)
