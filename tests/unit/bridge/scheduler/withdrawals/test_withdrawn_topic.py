"""What a worker writes to WITHDRAWN: ids first, the position only when brokers have them, and nothing twice."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from confluent_kafka import KafkaError

from reconsume.bridge.scheduler.withdrawals import withdrawn_topic
from reconsume.bridge.scheduler.withdrawals.withdrawn_topic import WithdrawnTopicWriter
from reconsume.delay_levels.errors import KafkaRefused
from reconsume.delay_levels.wire.withdrawals import PositionInCancel

LATER_MS = 1e9


class Producer:
    """Remembers what was produced; `answer` gives the brokers' answers."""

    def __init__(self) -> None:
        self.written: list[tuple[bytes, bytes | None]] = []
        self._waiting: list[Callable[[Any, Any], None]] = []
        self.error: KafkaError | None = None

    def produce(self, _topic: str, value: bytes | None, key: bytes, on_delivery: Any = None) -> None:
        self.written.append((key, value))
        if on_delivery is not None:
            self._waiting.append(on_delivery)

    def poll(self, _seconds: float) -> None:
        """Answers come when the test says so."""

    def answer(self) -> None:
        for report in self._waiting:
            report(self.error, None)
        self._waiting.clear()


class Written:
    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.producer, self.now = Producer(), 0.0
        monkeypatch.setattr(withdrawn_topic, "make_producer", lambda _settings: self.producer)
        self.writer = WithdrawnTopicWriter({}, "WITHDRAWN", "id", lambda: self.now)
        self.offset = 0

    def learn(self, count: int) -> None:
        for _ in range(count):
            self.writer.learned(0, self.offset, b"%016d" % self.offset, 7)
            self.offset += 1

    def turn(self) -> None:
        self.writer.turn({0: self.offset})

    def ids(self) -> list[int]:
        return [int(key) for key, value in self.producer.written if len(key) == 16 and value == b"7"]

    def positions(self) -> list[int]:
        return [json.loads(value or b"")["offset"] for key, value in self.producer.written if key == b"read-0"]


@pytest.fixture
def one(monkeypatch: pytest.MonkeyPatch) -> Written:
    return Written(monkeypatch)


def test_the_position_is_told_when_all_ids_before_it_are_acknowledged(one: Written) -> None:
    one.learn(3)
    one.now = LATER_MS
    one.turn()
    one.learn(2)
    one.turn()
    assert (one.ids(), one.positions()) == ([0, 1, 2], [])
    one.producer.answer()
    one.turn()
    assert (one.ids(), one.positions()) == ([0, 1, 2], [3])
    one.turn()
    assert one.ids() == [0, 1, 2], "the others wait for their time"
    one.now *= 2
    one.turn()
    one.producer.answer()
    one.turn()
    assert (one.ids(), one.positions()) == ([0, 1, 2, 3, 4], [3, 5])


def test_what_another_worker_has_written_is_not_written_again(one: Written) -> None:
    one.learn(3)
    one.writer.saw(PositionInCancel(0, "another id", 3))
    one.writer.saw(PositionInCancel(1, "id", 3))
    one.writer.saw(PositionInCancel(0, "id", 2))
    one.now = LATER_MS
    one.turn()
    assert one.ids() == [2]


def test_ids_that_were_refused_are_written_again_later(one: Written) -> None:
    one.learn(3)
    one.now, one.producer.error = LATER_MS, KafkaError(KafkaError.TOPIC_AUTHORIZATION_FAILED)
    one.turn()
    one.producer.answer()
    one.turn()
    one.turn()
    assert (one.ids(), one.positions()) == ([0, 1, 2], [])
    one.now, one.producer.error = 2 * LATER_MS, None
    one.turn()
    one.producer.answer()
    one.turn()
    assert (one.ids(), one.positions()) == ([0, 1, 2, 0, 1, 2], [3])


def test_many_are_written_at_once_and_memory_for_refused_ones_is_bounded(one: Written) -> None:
    one.learn(withdrawn_topic._AT_ONCE)
    one.turn()
    assert len(one.ids()) == withdrawn_topic._AT_ONCE
    one.learn(withdrawn_topic._MOST_UNWRITTEN - withdrawn_topic._AT_ONCE)
    assert one.writer.is_full
    one.producer.error = KafkaError(KafkaError.TOPIC_AUTHORIZATION_FAILED)
    one.producer.answer()
    with pytest.raises(KafkaRefused):
        one.turn()


def test_tombstones_are_written_at_once(one: Written) -> None:
    one.writer.done([b"x" * 16])
    assert one.producer.written == [(b"x" * 16, None)]
