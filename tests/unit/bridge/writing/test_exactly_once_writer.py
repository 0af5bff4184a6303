"""The writer of send-backs with offsets while partitions are added; the rest is in the integration tests."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

import pytest
from confluent_kafka import KafkaError

from reconsume.bridge.groups.groups import Groups
from reconsume.bridge.kafka.admin import Commit
from reconsume.bridge.writing import exactly_once
from reconsume.bridge.writing.exactly_once import ExactlyOnceWriter, Failed
from reconsume.bridge.writing.lane_partitions import ANY_PARTITION
from reconsume.bridge.writing.new_record import NewRecord
from reconsume.bridge.writing.transactions import Undone
from reconsume.delay_levels.errors import TopicNotReady
from reconsume.delay_levels.rules import lane_budgets
from reconsume.delay_levels.rules.lane_budgets import BURST
from reconsume.delay_levels.wire.names import TopicNames
from reconsume.delay_levels.wire.send_back_copy import Position, SendBackRequest, Stored

NAMES = TopicNames()
REQUEST = SendBackRequest("departures", [], Stored.first_copy(Position("flights", 3, 42), 0))


class OfOldMetadata:
    """Transactions of a producer that knows four partitions of each topic."""

    def __init__(self, _settings: object) -> None:
        self.written: list[NewRecord] = []

    def write_records(self, records: Sequence[NewRecord], *_: object) -> None:
        if any(one.partition >= 4 for one in records):
            raise Undone(KafkaError(KafkaError._UNKNOWN_PARTITION))
        self.written += records

    def close(self) -> None: ...


def test_bulk_partitions_that_the_producer_does_not_know_yet_send_nothing_to_the_inbox(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(exactly_once, "Transactions", OfOldMetadata)
    monkeypatch.setattr(lane_budgets, "PER_SECOND", 0)
    writer = ExactlyOnceWriter({"bootstrap.servers": "127.0.0.1:9"}, NAMES, Groups, "departures", "under-test")
    monkeypatch.setattr(writer._existing, "require", lambda _topic: 6)
    writer.send_back([Failed(REQUEST, b"key", b"value")] * (BURST + 100), {("flights", 3): Commit(43, "")}, "member")
    written = cast("Any", writer._transactions).written
    writer.close()
    assert {one.topic for one in written} == {NAMES.delay(10_000)}
    assert [one.partition for one in written] == [ANY_PARTITION] * (BURST + 100), "by key, as without bulk partitions"


def test_while_a_delay_topic_refuses_everything_the_log_says_so_ten_times_a_second(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def exists(topic: str) -> int:
        if topic != NAMES.send_back:
            raise TopicNotReady("no such topic")
        return 4

    monkeypatch.setattr(exactly_once, "Transactions", OfOldMetadata)
    writer = ExactlyOnceWriter({"bootstrap.servers": "127.0.0.1:9"}, NAMES, Groups, "departures", "under-test")
    monkeypatch.setattr(writer._existing, "require", exists)
    now = [0.0]
    monkeypatch.setattr(writer._inbox_logger, "_clock", lambda: now[0])
    for second in [0] * 100 + [1]:
        now[0] = second * 1_000
        writer.send_back([Failed(REQUEST, b"key", b"value")], {("flights", 3): Commit(43, "")}, "member")
    writer.close()
    text = f"no such topic; sent through {NAMES.send_back} instead"
    assert caplog.messages == [text] * 10 + [f"{text}; 90 more such lines were left out"]
