"""What a scout finds behind a flood, and what the queue of the partition makes of it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, cast

import pytest
from confluent_kafka import TIMESTAMP_LOG_APPEND_TIME, KafkaError, KafkaException, Message, TopicPartition

from reconsume.bridge.scheduler.queues.out_of_turn import offset_of
from reconsume.bridge.scheduler.queues.read_ahead import ReadAhead
from reconsume.bridge.scheduler.queues.second_reader import Scout
from reconsume.delay_levels.progress.done_apart import decode_either
from tests.support.read_ahead import add

LANE = "reconsume.DELAY.1s"
LATE = 3_000
"""Everything that was stored at 0 is late by 2 s."""


def message(offset: int, group: bytes = b"flood", stored_ms: int = 0, partition: int = 0) -> Message:
    return Message(
        topic=LANE,
        partition=partition,
        offset=offset,
        value=b"v",
        headers=[("REAL_TOPIC", group)],
        timestamp=(TIMESTAMP_LOG_APPEND_TIME, stored_ms),
    )


def log(*few: int, count: int = 1_000, due_before: int | None = None) -> list[Message]:
    due = count if due_before is None else due_before
    return [message(one, b"few" if one in few else b"flood", 0 if one < due else LATE) for one in range(count)]


@dataclass
class Reader:
    """Gives so many at a time of one partition."""

    records: list[Message]
    at_once: int = 100
    at: int | None = None
    paused: bool = False
    closed: bool = False
    fails: Exception | None = None

    def incremental_assign(self, partitions: list[TopicPartition]) -> None:
        (self.at,) = (one.offset for one in partitions)

    def incremental_unassign(self, _partitions: list[TopicPartition]) -> None:
        self.at = None

    def consume(self, _count: int, _timeout: float) -> list[Message]:
        if self.fails is not None:
            raise self.fails
        if self.at is None or self.paused:
            return []
        found = self.records[self.at : self.at + self.at_once]
        self.at += len(found)
        return found

    def pause(self, _partitions: list[TopicPartition]) -> None:
        self.paused = True

    def resume(self, _partitions: list[TopicPartition]) -> None:
        self.paused = False

    def close(self) -> None:
        self.closed = True


@dataclass
class Bench:
    """A worker's memory of one partition, and a scout."""

    records: list[Message]
    passed: float = 0.0
    grace_ms: float = 0.0
    made: list[Reader] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.ahead = ReadAhead(1_000, 10**9)
        self.ahead.assign(LANE, 0, 1_000)
        (self.queue,) = self.ahead
        self.scout = Scout(cast("Any", self._make), lambda: self.passed, self.grace_ms)

    def _make(self) -> Reader:
        self.made.append(Reader(self.records))
        return self.made[-1]

    def read(self, to: int) -> None:
        for one in self.records[self.queue.next_offset : to]:
            add(self.ahead, one)

    def found(self, now_ms: float = LATE) -> list[int]:
        self.scout.look(self.ahead, now_ms)
        return [offset_of(one) for _, one in self.queue.overtaking(now_ms, 1_000)]


def test_the_few_are_found_in_memory_and_beyond() -> None:
    bench = Bench(log(50, 700, 999))
    bench.read(100)
    assert bench.found() == [50, 700, 999]


@pytest.mark.parametrize("now_ms", [1_500, 2_000], ids=["late by half a second", "late by a second"])
def test_nobody_looks_while_the_head_is_nearly_in_time(now_ms: int) -> None:
    bench = Bench(log(700))
    bench.read(100)
    assert (bench.found(now_ms), bench.made) == ([], [])


def test_nobody_looks_before_it_has_been_late_for_some_time() -> None:
    bench = Bench(log(700), grace_ms=5_000)
    bench.read(100)
    assert (bench.found(), bench.made) == ([], [])
    bench.passed = 4_999
    assert (bench.found(LATE + 4_999), bench.made) == ([], [])
    bench.passed = 5_000
    assert bench.found(LATE + 5_000) == [700]


def test_the_time_begins_anew_when_it_was_in_time_between() -> None:
    bench = Bench(log(700), grace_ms=5_000)
    bench.read(100)
    assert bench.found() == []
    bench.passed = 4_000
    assert bench.found(now_ms=1_500) == []
    for bench.passed in (4_100, 9_000):
        assert bench.found() == []
    bench.passed = 9_100
    assert bench.found() == [700]


def test_nobody_looks_where_the_worker_has_read_all() -> None:
    bench = Bench(log(99, count=100))
    bench.read(100)
    bench.ahead.reached_end((LANE, 0), 100)
    assert (bench.found(), bench.made) == ([], [])


def test_what_is_not_due_is_not_found_before_it_is() -> None:
    bench = Bench(log(700, due_before=600))
    bench.read(100)
    assert bench.found() == []
    assert bench.found(LATE + 999) == []
    assert bench.found(LATE + 1_000) == [700]


def test_reading_stops_where_much_is_not_due_and_goes_on_later() -> None:
    bench = Bench(log(4_000, count=5_000, due_before=600))
    bench.read(100)
    assert bench.found() == []
    (reader,) = bench.made
    assert reader.paused
    assert reader.at < 3_000  # type: ignore[operator]
    bench.found(LATE + 1_000)
    assert bench.found(LATE + 1_000) == [4_000]


def test_what_the_worker_reads_faster_than_the_scout_is_looked_at_too() -> None:
    bench = Bench(log(150, 170, 700))
    bench.read(100)
    bench.scout.look(bench.ahead, LATE)
    (reader,) = bench.made
    bench = Bench(log(150, 170, 700))
    bench.read(100)
    bench._make = lambda: Reader([], at=0)  # type: ignore[method-assign]
    bench.scout = Scout(cast("Any", lambda: reader), lambda: 0.0, 0.0)
    reader.at_once = 0
    assert bench.found() == []
    bench.read(160)
    assert bench.found() == [150]
    bench.read(200)
    reader.at_once = 50
    assert bench.found() == [150, 170, 700]


def test_what_left_in_its_turn_does_not_overtake() -> None:
    bench = Bench(log(150, 700, due_before=100))
    bench.read(100)
    assert bench.found() == []
    bench.read(200)
    now = LATE + 1_000
    bench.queue.drop(bench.queue.due(now, 200))
    assert bench.queue.head == 200
    bench.read(300)
    assert bench.found(now) == []
    assert bench.found(now + 2_000) == [700]


def test_a_commit_tells_who_overtook_until_the_head_is_past_them() -> None:
    bench = Bench(log(50, 700))
    bench.read(100)
    bench.found()
    (run,) = bench.ahead.take_overtaking(LATE, 10)
    at = run.position
    assert (at.offset, set(decode_either(at.offset, at.metadata))) == (0, {50, 700})
    run.drop()
    assert bench.queue.overtaking(LATE, 10) == []
    (run,) = bench.ahead.take_due(LATE, 60)
    assert [offset_of(one) for _, one in run.records] == [*range(50), *range(51, 61)]
    at = run.position
    assert (at.offset, set(decode_either(at.offset, at.metadata))) == (61, {700})
    run.drop()
    bench.read(1_000)
    for run in bench.ahead.take_due(LATE, 10_000):
        assert 700 not in [offset_of(one) for _, one in run.records]
        assert (run.position.offset, run.position.metadata) == (1_000, "")
        run.drop()
    assert (len(bench.queue), bench.queue.out_of_turn) == (0, None)


def test_a_new_owner_leaves_out_what_is_done() -> None:
    bench = Bench(log(count=10))
    bench.ahead.learn((LANE, 0), frozenset({0, 1, 5, 9}))
    bench.read(10)
    (run,) = bench.ahead.take_due(LATE, 100)
    assert [offset_of(one) for _, one in run.records] == [2, 3, 4, 6, 7, 8]
    assert (run.position.offset, run.position.metadata) == (10, "")


def test_those_who_overtake_and_are_held_hold_up_nobody() -> None:
    bench = Bench(log(700))
    bench.read(100)
    bench.found()
    (run,) = bench.ahead.take_overtaking(LATE, 10)
    run.hold(LATE + 500)
    assert bench.ahead.take_overtaking(LATE + 499, 10) == []
    assert len(bench.ahead.take_due(LATE, 10)) == 1
    assert len(bench.ahead.take_overtaking(LATE + 500, 10)) == 1


def test_a_scout_that_kafka_does_not_answer_lets_go_and_begins_anew(caplog: pytest.LogCaptureFixture) -> None:
    bench = Bench(log(700))
    bench.read(100)
    bench.records = []
    bench.scout.look(bench.ahead, LATE)
    bench.made[0].fails = KafkaException(KafkaError(KafkaError._ALL_BROKERS_DOWN))
    bench.records = log(700)
    assert bench.found() == []
    assert bench.made[0].closed
    assert "small groups wait for their turn" in caplog.text
    bench.passed = 9_999
    assert bench.found() == []
    bench.passed = 10_000
    assert bench.found() == [700]


def test_a_scout_that_is_not_needed_any_more_lets_go() -> None:
    bench = Bench(log(700))
    bench.read(100)
    bench.found()
    bench.ahead.revoke([(LANE, 0)])
    bench.passed = 60_000
    bench.scout.look(bench.ahead, LATE)
    assert not bench.made[0].closed
    bench.passed = 60_001
    bench.scout.look(bench.ahead, LATE)
    assert bench.made[0].closed
    assert not bench.scout.is_at_work
