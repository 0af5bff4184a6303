"""One group floods a lane: ten records of another group behind it do not wait for it, and each is delivered once."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Sequence
from functools import partial
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException, Producer

from reconsume.bridge.process.settings import SchedulerSettings, Settings
from reconsume.bridge.scheduler import service
from reconsume.bridge.scheduler.delivery.at_least_once_writer import AtLeastOnceWriter
from reconsume.bridge.scheduler.delivery.writers import TransactionalWriter
from reconsume.bridge.scheduler.queues.second_reader import Scout
from reconsume.bridge.scheduler.service import SchedulerService
from reconsume.bridge.scheduler.targets.routing import Delivery
from reconsume.delay_levels.progress.done_apart import decode_either
from tests.integration.installation import Installation, scheduler, settings_for
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.kafka, pytest.mark.early(3), pytest.mark.more]

FLOOD = 30_000
FEW = 10
BATCH = 20
DELAY_MS = 1_000


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """A worker looks as soon as it is late, so that a flood need not last for long."""
    monkeypatch.setattr(service, "Scout", partial(Scout, grace_ms=0))


class Flooded:
    """An installation with a flood of one group on a lane's only partition, and ten records of another behind it."""

    def __init__(self, bootstrap_servers: str, **scheduler_settings: Any) -> None:
        small = settings_for(bootstrap_servers)
        self.scheduler = SchedulerSettings(max_batch_records=BATCH, **scheduler_settings)
        self.one = Installation(small.model_copy(update={"scheduler": self._named("first")}))
        self.one.make_topics()
        self.one.write_groups()
        self.flood, self.few = self.one.name("flood"), self.one.name("few")
        self.lane = self.one.settings.names.delay(DELAY_MS)

    def _named(self, instance: str) -> SchedulerSettings:
        return self.scheduler.model_copy(update={"instance_id": instance})

    def fill(self, few: Sequence[bytes]) -> None:
        """It is due when the first worker begins, by then."""
        producer = Producer(self.one.settings.client_settings() | {"enable.idempotence": True, "linger.ms": 5})
        for group, values in ((self.flood, (b"%d" % number for number in range(FLOOD))), (self.few, iter(few))):
            for value in values:
                producer.produce(self.lane, value, headers=[("REAL_TOPIC", f"%RETRY%{group}".encode())])
                producer.poll(0)
        assert producer.flush(60) == 0
        producer.close()

    def settings(self, instance: str) -> Settings:
        return self.one.settings.model_copy(update={"scheduler": self._named(instance)})

    def worker(self, instance: str) -> Any:
        return scheduler(self.settings(instance))

    def wait_for_few(self, count: int = FEW) -> None:
        wait_until(lambda: len(self.one.retries(self.few)) >= count, 120, f"{count} of the few")

    def wait_for_flood(self) -> None:
        topic = self.one.settings.names.retry(self.flood)

        wait_until(lambda: self.one.admin.end_offsets([(topic, 0)])[topic, 0] >= FLOOD, 180, "most of the flood")
        wait_until(lambda: len(self.one.retries(self.flood)) >= FLOOD, 120, "the flood")

    def done_apart(self) -> set[int]:
        """What the commit says beyond its offset."""
        where, group = (self.lane, 0), self.one.settings.topic_prefix + "scheduler"
        return set(decode_either(*self.one.admin.commits(group, [where])[where]))

    def assert_each_once(self, few: Sequence[bytes]) -> None:
        for group, values in ((self.flood, [b"%d" % number for number in range(FLOOD)]), (self.few, list(few))):
            moved = self.one.retries(group)
            assert Counter(record.value for record in moved) == Counter(values)
            assert [record.value for record in moved] == values, "each group is in its order"
            stored = {record.value: record.timestamp for record in self.one.waiting(DELAY_MS, group)}
            assert min(record.timestamp - stored[record.value] for record in moved) >= DELAY_MS

    def assert_few_overtook(self) -> None:
        last = max(record.timestamp for record in self.one.retries(self.few))
        later = sum(record.timestamp > last for record in self.one.retries(self.flood))
        assert later > FLOOD // 2, f"only {later} of the flood came after the ten"


VALUES = [b"few%d" % number for number in range(FEW)]


@pytest.mark.parametrize("writer", [TransactionalWriter, AtLeastOnceWriter])
def test_ten_records_overtake_a_flood_and_another_worker_does_not_repeat_them(
    bootstrap_servers: str, monkeypatch: pytest.MonkeyPatch, writer: type[TransactionalWriter | AtLeastOnceWriter]
) -> None:
    here = Flooded(bootstrap_servers, delivery="transactional" if writer is TransactionalWriter else "at_least_once")
    here.fill(VALUES)
    stop, delivered, write = threading.Event(), list[bytes | None](), writer.write

    def stops_after_the_few(self: Any, batch: Sequence[Delivery], *given: Any) -> None:
        write(self, batch, *given)
        delivered.extend(one.value for one in batch if one.group == here.few)
        if len(delivered) == FEW:
            stop.set()

    with monkeypatch.context() as patched:
        patched.setattr(writer, "write", stops_after_the_few)
        SchedulerService(here.settings("first")).run(stop)
    assert len(here.done_apart()) == FEW
    with here.worker("second"):
        here.wait_for_flood()
    here.assert_few_overtook()
    here.assert_each_once(VALUES)


@pytest.mark.long
def test_an_aborted_batch_of_those_who_overtake_is_delivered_again(
    bootstrap_servers: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    here = Flooded(bootstrap_servers)
    here.fill(VALUES)
    aborts = [True, True]
    produce = TransactionalWriter._produce

    def fails_at_first(self: TransactionalWriter, producer: Producer, batch: Sequence[Delivery]) -> None:
        produce(self, producer, batch)
        if aborts and batch[0].group == here.few:
            aborts.pop()
            raise KafkaException(KafkaError(KafkaError._TIMED_OUT, "planted"))

    monkeypatch.setattr(TransactionalWriter, "_produce", fails_at_first)
    with here.worker("first"):
        here.wait_for_few()
        here.wait_for_flood()
    assert not aborts
    here.assert_few_overtook()
    here.assert_each_once(VALUES)


@pytest.mark.long
@pytest.mark.rule("SC-19", "T-26")
def test_one_who_overtakes_and_is_refused_is_quarantined_alone(bootstrap_servers: str) -> None:
    here = Flooded(bootstrap_servers)
    names, stamps = here.one.settings.names, {"message.timestamp.type": "LogAppendTime"}
    here.one.admin.create(names.retry(here.few), 1, -1, {**stamps, "max.message.bytes": "2000"})
    here.fill([*VALUES[:5], b"x" * 5_000, *VALUES[5:]])
    with here.worker("first"):
        here.wait_for_few()
        wait_until(lambda: len(here.one.read(names.quarantine)) == 1, 60, "the one that is too large")
        here.wait_for_flood()
    (kept,) = here.one.read(names.quarantine)
    assert kept.value == b"x" * 5_000
    here.assert_few_overtook()
    assert [record.value for record in here.one.retries(here.few)] == VALUES
    assert [record.value for record in here.one.retries(here.flood)] == [b"%d" % number for number in range(FLOOD)]
