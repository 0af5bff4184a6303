"""What a worker tells of what waits: from memory what it has read, by offsets what it has not."""

from __future__ import annotations

import threading
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, cast

import pytest
from confluent_kafka import TIMESTAMP_LOG_APPEND_TIME, Message

from reconsume.bridge.kafka.admin import Partition
from reconsume.bridge.metrics.registry import LevelWaiting
from reconsume.bridge.scheduler.queues.backlog import EndsSampler, PartitionHead, WorkerBacklog
from reconsume.bridge.scheduler.queues.partition_queues import PartitionQueue, TimerQueue
from reconsume.bridge.scheduler.service import FencedLives
from reconsume.delay_levels.errors import KafkaNotReachable, WorkerFenced
from reconsume.delay_levels.wire.names import TopicNames

WHERE = ("reconsume.DELAY.1s", 0)


def message(offset: int, stored_ms: int) -> Message:
    return Message(topic="t", partition=0, offset=offset, timestamp=(TIMESTAMP_LOG_APPEND_TIME, stored_ms))


@dataclass
class Clock:
    now: float = 0.0

    def __call__(self) -> float:
        return self.now


@dataclass
class FakeOffsets:
    ends: dict[Partition, int]
    due: dict[int, int] = field(default_factory=dict)
    asked: list[int] = field(default_factory=list)
    without_leader: set[Partition] = field(default_factory=set)

    def leaderless(self, topics: Iterable[str]) -> set[Partition]:
        wanted = set(topics)
        return {where for where in self.without_leader if where[0] in wanted}

    def end_offsets(self, partitions: Iterable[Partition]) -> dict[Partition, int]:
        partitions = list(partitions)
        if self.without_leader.intersection(partitions):
            raise KafkaNotReachable("Failed to query partition leaders")
        return {one: self.ends[one] for one in partitions}

    def offsets_at(self, partitions: Iterable[Partition], timestamp_ms: int) -> dict[Partition, int]:
        self.asked.append(timestamp_ms)
        return dict.fromkeys(partitions, self.due[timestamp_ms])


def head(*, in_memory: int, due: int, head_due_ms: float | None, read_to: int | None) -> PartitionHead:
    return PartitionHead(WHERE, 1_000, in_memory, due, head_due_ms, read_to)


def test_a_queue_counts_what_is_due_and_knows_how_far_it_has_read() -> None:
    queue = PartitionQueue("t", 0, 1_000)
    assert queue.look(0) == PartitionHead(("t", 0), 1_000, 0, 0, None, None)
    for offset, stored in ((4, 0), (5, 0), (6, 500)):
        queue.append(message(offset, stored))
    assert queue.look(999) == PartitionHead(("t", 0), 1_000, 3, 0, 1_000, 7)
    assert queue.look(1_000).due == 2
    queue.reached_end(9)
    queue.drop(queue.due(1_000, 10))
    assert queue.look(2_000) == PartitionHead(("t", 0), 1_000, 1, 1, 1_500, 9)
    queue.drop(queue.due(2_000, 10))
    assert queue.look(2_000) == PartitionHead(("t", 0), 1_000, 0, 0, None, 9)


def test_a_lane_of_own_moments_counts_by_them() -> None:
    queue = TimerQueue("t", 0, lambda one: one.timestamp()[1])
    queue.learn([11])
    for offset, due in ((10, 500), (11, 0), (12, 100)):
        queue.append(message(offset, due))
    assert queue.look(300) == PartitionHead(("t", 0), None, 2, 1, 100, 13)


def test_overdue_seconds_grow_while_the_worker_hangs() -> None:
    clock = Clock(2_000)
    waiting = WorkerBacklog(TopicNames(), clock)
    waiting.seen([head(in_memory=3, due=1, head_due_ms=1_500, read_to=3)])
    assert waiting.levels() == {"DELAY.1s": LevelWaiting(3, 1, 0.5)}
    clock.now = 62_000
    assert waiting.levels()["DELAY.1s"].overdue_seconds == 60.5


def test_partitions_of_a_level_are_added_up_and_the_worst_counts() -> None:
    waiting = WorkerBacklog(TopicNames(), Clock(10_000))
    waiting.seen(
        PartitionHead((WHERE[0], number), 1_000, 2, number, due, 5) for number, due in enumerate((9_000.0, 4_000.0))
    )
    assert waiting.levels() == {"DELAY.1s": LevelWaiting(4, 1, 6.0)}


def test_what_is_not_read_yet_is_counted_by_offsets_and_only_asked_for_behind_due_records() -> None:
    clock = Clock(100_000)
    waiting = WorkerBacklog(TopicNames(), clock)
    offsets = FakeOffsets(ends={WHERE: 5_000}, due={99_000: 3_000})
    sampler = EndsSampler(waiting, cast("Any", offsets), clock)
    waiting.seen([head(in_memory=2_000, due=2_000, head_due_ms=90_000, read_to=2_000)])
    sampler.run_once()
    assert waiting.levels() == {"DELAY.1s": LevelWaiting(5_000, 3_000, 10.0)}
    waiting.seen([head(in_memory=2_000, due=500, head_due_ms=90_000, read_to=4_000)])
    assert waiting.levels()["DELAY.1s"][:2] == (3_000, 500)
    sampler.run_once()
    assert offsets.asked == [99_000]


def test_an_error_that_nobody_expects_ends_no_sampling(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("reconsume.bridge.scheduler.queues.backlog._EVERY_SECONDS", 0)
    stop, looks = threading.Event(), list[int]()

    def look() -> None:
        looks.append(len(looks))
        if len(looks) == 3:
            stop.set()
        raise ValueError("a number that is none")

    EndsSampler(WorkerBacklog(TopicNames(), Clock()), cast("Any", FakeOffsets({})), Clock(), look).run(stop)
    assert looks == [0, 1, 2]


def test_a_partition_without_a_leader_hides_no_other_and_does_not_count_as_stalled() -> None:
    other, told = (WHERE[0], 1), list[PartitionHead]()
    waiting, offsets = WorkerBacklog(TopicNames(), Clock()), FakeOffsets({WHERE: 5, other: 9})
    sampler = EndsSampler(waiting, cast("Any", offsets), Clock(), told=lambda heads, _ends: told.extend(heads))
    both = [head(in_memory=1, due=0, head_due_ms=None, read_to=2)._replace(where=where) for where in (WHERE, other)]
    waiting.seen(both)
    sampler.run_once()
    offsets.without_leader, offsets.ends[other] = {WHERE}, 11
    told.clear()
    sampler.run_once()
    assert waiting.levels()["DELAY.1s"].backlog == 1 + 3 + 1 + 9
    assert told == both[1:]


@pytest.mark.parametrize("read_to", [None, 7])
def test_the_end_marks_of_transactions_behind_the_last_record_do_not_wait(read_to: int | None) -> None:
    waiting = WorkerBacklog(TopicNames(), Clock())
    waiting.seen([head(in_memory=0, due=0, head_due_ms=None, read_to=read_to)])
    EndsSampler(waiting, cast("Any", FakeOffsets(ends={WHERE: 7})), Clock()).run_once()
    assert waiting.levels() == {"DELAY.1s": LevelWaiting(0, 0, 0.0)}


def test_a_worker_gives_up_when_another_one_has_its_identity_but_not_after_rare_takeovers() -> None:
    fenced = WorkerFenced("taken over")
    lives = FencedLives()
    assert [lives.is_too_much(fenced, 2_000) for _ in range(3)] == [False, False, True]
    lives = FencedLives()
    assert not any(lives.is_too_much(fenced, 3_600_000) for _ in range(10))
    assert [lives.is_too_much(fenced, 2_000) for _ in range(2)] == [False, True]
    lives = FencedLives()
    told = [lives.is_too_much(error, 2_000) for error in (fenced, fenced, KafkaNotReachable("away"), fenced, fenced)]
    assert not any(told)
