"""Whether the offsets or the records of a transaction go first."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka import TopicPartition

from reconsume.bridge.kafka.admin import Commit, Partition
from reconsume.bridge.writing import transactions as transactions_module
from reconsume.bridge.writing.transactions import Transactions


class Calls(list[str]):
    """A producer that only notes what it is asked for."""

    def list_topics(self, *_: Any) -> None: ...

    def init_transactions(self, *_: Any) -> None: ...

    def begin_transaction(self) -> None:
        self.append("begin")

    def send_offsets_to_transaction(self, offsets: list[TopicPartition], *_: Any) -> None:
        self.append(f"offsets {offsets[0].offset}")

    def produce(self, *_: Any, **__: Any) -> None: ...

    def commit_transaction(self, *_: Any) -> None:
        self.append("commit")

    def poll(self, *_: Any) -> None: ...

    def purge(self, *_: Any, **__: Any) -> None: ...

    def close(self) -> None: ...


class Bench:
    """Transactions on a clock that is set by hand."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now, self.calls = 1_000.0, Calls()
        monkeypatch.setattr(transactions_module, "make_producer", lambda _settings: self.calls)
        monkeypatch.setattr(transactions_module, "monotonic_ms", lambda: self.now)
        self.transactions = Transactions({"transaction.timeout.ms": 10_000})

    def write(self, *, grows: bool = False) -> list[str]:
        offsets: dict[Partition, Commit] = {("source", 0): Commit(1, "")}

        def produce(_producer: Any) -> None:
            self.calls.append("records")
            if grows:
                offsets["source", 0] = Commit(2, "")

        self.calls.clear()
        self.transactions.write(produce, offsets, b"", grows=grows)
        return list(self.calls)


@pytest.fixture
def bench(monkeypatch: pytest.MonkeyPatch) -> Iterator[Bench]:
    one = Bench(monkeypatch)
    yield one
    one.transactions.close()


def test_offsets_go_first_right_after_a_commit_and_records_else(bench: Bench) -> None:
    records_first = ["begin", "records", "offsets 1", "commit"]
    assert bench.write() == records_first
    bench.now += 1
    assert bench.write() == ["begin", "offsets 1", "records", "commit"]
    bench.now += 3
    assert bench.write() == records_first


def test_offsets_that_change_with_the_records_go_once(bench: Bench) -> None:
    """Of two requests the first may be sent again, and come last."""
    for _ in range(2):
        assert bench.write(grows=True) == ["begin", "records", "offsets 2", "commit"]


def test_a_transaction_ends_with_any_error_of_its_records(bench: Bench) -> None:
    def produce(_producer: Any) -> None:
        raise TypeError("expected header value to be None, binary, or unicode string, not int")

    bench.transactions.register(1)
    registered = bench.transactions.registrations
    with pytest.raises(TypeError, match="not int"):
        bench.transactions.write(produce)
    assert bench.transactions.registrations == registered + 1, "a new producer has ended the open transaction"
    assert bench.write() == ["begin", "records", "offsets 1", "commit"]
