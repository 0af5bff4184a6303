"""Whether a writer knows that another one may have come in between."""

from __future__ import annotations

from typing import Any, ClassVar

import pytest
from confluent_kafka import KafkaError, KafkaException

from reconsume.bridge.writing.exclusive_writer import ExclusiveWriter
from reconsume.bridge.writing.transactions import Transactions
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
