"""The end of parts: a part that fails to end leaves no other one open."""

from __future__ import annotations

import threading
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, cast

import pytest
from confluent_kafka import KafkaError, KafkaException

from reconsume.bridge.groups.groups import Groups
from reconsume.bridge.kafka import lasting_producer
from reconsume.bridge.kafka.group_consumer import GroupConsumer
from reconsume.bridge.kafka.lasting_producer import LastingProducer
from reconsume.bridge.process.settings import ManagementSettings, Settings
from reconsume.bridge.reading.record_reader import RecordReader
from reconsume.bridge.scheduler.delivery.writers import TransactionalWriter
from reconsume.bridge.scheduler.service import SchedulerService
from reconsume.bridge.scheduler.withdrawals.withdrawals_reader import WithdrawalsReader
from reconsume.bridge.writing import transactions
from reconsume.bridge.writing.send_back import SendBackWriter
from reconsume.bridge.writing.transactions import Transactions
from reconsume.delay_levels.errors import KafkaNotReachable, RecordNotFound
from reconsume.delay_levels.wire.names import TopicNames
from reconsume.delay_levels.wire.send_back_copy import Position, SendBackRequest, Stored

AWAY = {"bootstrap.servers": "127.0.0.1:9"}


class Part:
    """Notes whether it was closed."""

    def __init__(self) -> None:
        self.closed = 0

    def close(self) -> None:
        self.closed += 1


def fails(*_: Any) -> None:
    raise KafkaException(KafkaError(KafkaError._STATE))


class Leaving(Part):
    """A consumer that still gets an assignment while it leaves, whose owner cannot take it."""

    def unsubscribe(self) -> None: ...

    def memberid(self) -> str:
        return "me"

    def poll(self, _seconds: float) -> None:
        raise KafkaNotReachable("positions unknown")


def test_an_assignment_that_fails_while_a_worker_leaves_does_not_keep_its_consumer_open() -> None:
    GroupConsumer({}, lambda _settings: cast("Any", Leaving())).leave()


def test_an_assignment_that_waits_while_a_worker_leaves_is_not_taken() -> None:
    """Its owner would subscribe again, and so join the group that it leaves."""

    class Assigning(Leaving):
        def subscribe(self, _topics: list[str], **callbacks: Callable[..., None]) -> None:
            self.on_assign = callbacks["on_assign"]

        def poll(self, _seconds: float) -> None:
            self.on_assign(self, [])
            raise KafkaNotReachable("left")

    owner = SimpleNamespace(taken=list[Any]())
    owner.assigned = owner.taken.append
    consumer = GroupConsumer({}, lambda _settings: cast("Any", Assigning()))
    consumer.owner = cast("Any", owner)
    consumer.subscribe(["^reconsume"])
    consumer.leave()
    assert owner.taken == []


def test_the_second_producer_of_a_writer_is_closed() -> None:
    writer, last = TransactionalWriter(AWAY, "w", 10_000), Part()
    writer._transactions, writer._trials = cast("Any", SimpleNamespace(close=fails)), cast("Any", last)
    with pytest.raises(KafkaException):
        writer.close()
    assert last.closed == 1


def test_the_thread_of_transactions_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transactions, "discard_producer", fails)
    one, last = Transactions({"transaction.timeout.ms": 10_000}), Part()
    monkeypatch.setattr(one._bounded, "close", last.close)
    one._producer = cast("Any", object())
    with pytest.raises(KafkaException):
        one.close()
    assert last.closed == 1


def test_the_reader_of_withdrawals_is_closed() -> None:
    one, last = WithdrawalsReader(AWAY, TopicNames(), cast("Any", None), lambda: 0.0), Part()
    one._reader.close()
    one._writer, one._reader = cast("Any", SimpleNamespace(close=fails)), cast("Any", last)
    with pytest.raises(KafkaException):
        one.close()
    assert last.closed == 1


def test_the_consumer_of_a_record_reader_is_closed() -> None:
    one, last = RecordReader(AWAY, "test", 10), Part()
    one._consumer.close()
    one._consumer = cast("Any", last)
    one.read(Position("orders", 0, 1), fails)
    with pytest.raises(KafkaException):
        one.close()
    assert last.closed == 1


def test_a_producer_whose_reports_fail_is_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    one, closed = LastingProducer(AWAY), list[Any]()
    monkeypatch.setattr(lasting_producer, "_give_up", fails)
    monkeypatch.setattr(lasting_producer, "close_producer", closed.append)
    with pytest.raises(KafkaException):
        one.close()
    assert closed == [one._producer]


def test_the_producer_of_send_backs_is_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    writer, last = SendBackWriter(AWAY, TopicNames(), Groups, "test"), Part()
    monkeypatch.setattr(writer._producer, "close", last.close)
    stored = Stored.first_copy(Position("orders", 0, 1), 0)
    writer.send_back(SendBackRequest("g", [], stored), None, None, fails)
    with pytest.raises(KafkaException):
        writer.close()
    assert last.closed == 1
    assert not writer._thread.is_alive()


def test_a_scheduler_ends_all_its_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    service = SchedulerService(Settings(bootstrap_servers="127.0.0.1:9", management=ManagementSettings(port=0)))
    cancels, identity = Part(), Part()
    for name in ("_orphans", "_follower"):
        monkeypatch.setattr(service, name, SimpleNamespace(start=lambda: None, close=fails))
    monkeypatch.setattr(service, "_cancels", SimpleNamespace(start=lambda: None, close=cancels.close))
    monkeypatch.setattr(service, "_identity", SimpleNamespace(release=identity.close))
    monkeypatch.setattr(service, "_see_topics", lambda: None)
    monkeypatch.setattr(service, "_run", lambda _stop: None)
    monkeypatch.setattr("reconsume.bridge.scheduler.service.publish_allowed_topics", lambda *_: None)
    with pytest.raises(KafkaException):
        service.run(threading.Event())
    assert (cancels.closed, identity.closed) == (1, 1)


def test_a_position_that_no_kafka_has_ends_no_reader() -> None:
    one, found = RecordReader(AWAY, "test", 10), list[Any]()
    try:
        one.read(Position("orders", 0, 2**63), found.append)
        one.read(Position("orders", 2**31, 0), found.append)
        one.run_once()
    finally:
        one.close()
    assert [type(answer) for answer in found] == [RecordNotFound, RecordNotFound]
