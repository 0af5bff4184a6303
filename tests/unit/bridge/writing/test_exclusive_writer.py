"""Whether a writer knows that another one may have come in between, and when it returns."""

from __future__ import annotations

from collections.abc import Collection
from types import SimpleNamespace
from typing import Any, ClassVar

import pytest
from confluent_kafka import KafkaError, KafkaException

from reconsume.bridge.kafka.admin import Partition
from reconsume.bridge.writing import exclusive_writer
from reconsume.bridge.writing.exclusive_writer import ExclusiveWriter, wait_until_shown, write_exclusively
from reconsume.bridge.writing.new_record import NewRecord
from reconsume.bridge.writing.transactions import Transactions
from reconsume.delay_levels.errors import KafkaNotReachable, KafkaRefused
from tests.unit.bridge.writing.test_order_of_requests import Bench


class Base:
    """The part of a cluster that a writer looks at."""

    base: ClassVar[dict[str, Any]] = {"bootstrap.servers": "nowhere:1"}


def test_a_writer_is_not_alone_until_the_producer_behind_a_slow_transaction_is_registered(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    bench, refused = Bench(monkeypatch), list[bool]()

    def init(*_: Any) -> None:
        if refused:
            raise KafkaException(KafkaError(KafkaError.CONCURRENT_TRANSACTIONS, "a marker is missing"))

    monkeypatch.setattr(bench.calls, "init_transactions", init)
    with ExclusiveWriter(Base(), "one-writer", "testing") as writer:  # type: ignore[arg-type]
        assert isinstance(writer._transactions, Transactions)
        writer.take_over()
        assert writer.is_alone

        def slow(_producer: Any) -> None:
            bench.now += 1_000
            refused.append(True)

        writer.write(slow)
        assert not writer.is_alone, "another one may register and commit now"
        refused.clear()
        writer.take_over()
        assert writer.is_alone


@pytest.mark.parametrize("code", [KafkaError.INVALID_TXN_STATE, KafkaError.UNKNOWN_PRODUCER_ID])
def test_a_transaction_that_cannot_end_after_brokers_lost_it_is_in_doubt(
    monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    """For librdkafka these are fatal; a new producer goes on."""
    bench = Bench(monkeypatch)
    fatal = [KafkaException(KafkaError(code, "Failed to end transaction", fatal=True))]
    commit = bench.calls.commit_transaction

    def end(*_: Any) -> None:
        if fatal:
            raise fatal.pop()
        commit()

    monkeypatch.setattr(bench.calls, "commit_transaction", end)
    with ExclusiveWriter(Base(), "one-writer", "testing") as writer:  # type: ignore[arg-type]
        writer.take_over()
        with pytest.raises(KafkaNotReachable, match="Failed to end transaction; the last records may have been sent"):
            writer.write(lambda _producer: None)
        assert not writer.is_alone
        writer.take_over()
        writer.write(lambda _producer: None)
    assert bench.calls == ["begin", "begin", "commit"]


def test_a_right_that_is_missing_at_the_end_of_a_transaction_is_a_refusal(monkeypatch: pytest.MonkeyPatch) -> None:
    bench, code = Bench(monkeypatch), KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED

    def end(*_: Any) -> None:
        raise KafkaException(KafkaError(code, "Failed to end transaction", fatal=True))

    monkeypatch.setattr(bench.calls, "commit_transaction", end)
    with ExclusiveWriter(Base(), "one-writer", "testing") as writer:  # type: ignore[arg-type]
        writer.take_over()
        with pytest.raises(KafkaRefused, match="no right to use the transactional id"):
            writer.write(lambda _producer: None)


class LateMarks:
    """A cluster whose brokers write the marks of a transaction some looks after it was committed."""

    base: ClassVar[dict[str, Any]] = Base.base

    def __init__(self, looks: int) -> None:
        self.admin = SimpleNamespace(end_offsets=self.end_offsets)
        self.left = looks

    def end_offsets(self, partitions: Collection[Partition], *, uncommitted: bool = False) -> dict[Partition, int]:
        self.left -= not uncommitted
        return dict.fromkeys(partitions, 8 if uncommitted or self.left < 0 else 6)


def test_it_returns_when_readers_see_what_it_has_committed(monkeypatch: pytest.MonkeyPatch) -> None:
    Bench(monkeypatch)
    kafka = LateMarks(3)
    write_exclusively(kafka, "one-writer", "testing", lambda: [NewRecord("groups", b"v", b"k", 0)])  # type: ignore[arg-type]
    assert kafka.left < 0


def test_an_open_transaction_of_another_writer_holds_it_up_for_a_moment_only(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(exclusive_writer, "_SHOWN_SECONDS", 0.1)
    kafka = LateMarks(1_000_000)
    wait_until_shown(kafka, [("groups", 0)])  # type: ignore[arg-type]
    assert "committed, but not shown yet behind an open transaction: groups-0" in caplog.text


def test_what_is_committed_is_no_failure_without_an_answer(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def unanswered(*_: Any, **__: Any) -> Any:
        raise KafkaNotReachable("no answer from Kafka")

    kafka = LateMarks(0)
    monkeypatch.setattr(kafka.admin, "end_offsets", unanswered)
    wait_until_shown(kafka, [("groups", 0)])  # type: ignore[arg-type]
    assert "committed, but perhaps not shown yet: no answer from Kafka" in caplog.text
