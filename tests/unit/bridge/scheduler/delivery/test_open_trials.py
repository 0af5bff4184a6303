"""Trials that a dead worker has left open: they block readers of their target until their timeout."""

from __future__ import annotations

from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException

from reconsume.bridge.process.settings import SchedulerSettings, Settings
from reconsume.bridge.scheduler import service as service_module
from reconsume.bridge.scheduler.delivery.writers import TransactionalWriter
from reconsume.bridge.scheduler.service import SchedulerService
from reconsume.bridge.writing import transactions as transactions_module

BASE = {"bootstrap.servers": "127.0.0.1:1"}


class Registered(list[str]):
    """The transactional ids that were registered, by one producer that stands for all.

    Attributes:
        refused: the id that cannot be registered.
    """

    def __init__(self) -> None:
        super().__init__()
        self.refused = ""
        self._made = ""

    def __call__(self, settings: dict[str, Any]) -> Registered:
        self._made = settings["transactional.id"]
        return self

    def init_transactions(self, *_: Any) -> None:
        if self._made == self.refused:
            raise KafkaException(KafkaError(KafkaError.COORDINATOR_NOT_AVAILABLE))
        self.append(self._made)

    def list_topics(self, *_: Any) -> None: ...

    def poll(self, *_: Any) -> None: ...

    def purge(self, *_: Any) -> None: ...

    def close(self) -> None: ...


@pytest.fixture
def registered(monkeypatch: pytest.MonkeyPatch) -> Registered:
    one = Registered()
    monkeypatch.setattr(transactions_module, "make_producer", one)
    return one


def test_a_worker_that_starts_ends_an_open_trial_of_its_predecessor(registered: Registered) -> None:
    writer = TransactionalWriter(BASE, "scheduler-one", 10_000)
    writer.start()
    assert registered == ["scheduler-one", "scheduler-one-trial"]
    writer.close()


def test_a_worker_starts_also_if_an_open_trial_is_not_ended(
    registered: Registered, caplog: pytest.LogCaptureFixture
) -> None:
    registered.refused = "scheduler-one-trial"
    writer = TransactionalWriter(BASE, "scheduler-one", 10_000)
    writer.start()
    assert registered == ["scheduler-one"]
    assert "an open trial of an earlier worker ends by its timeout" in caplog.text
    writer.close()


def test_the_transactions_of_a_dead_worker_are_its_batches_and_its_trials(monkeypatch: pytest.MonkeyPatch) -> None:
    ended: list[str] = []
    monkeypatch.setattr(service_module, "end_transactions", lambda one: ended.append(one["transactional.id"]))
    service = SchedulerService(Settings(scheduler=SchedulerSettings(instance_id="one")))
    service._end_transactions("dead")
    assert ended == ["reconsume.scheduler-dead", "reconsume.scheduler-dead-trial"]
