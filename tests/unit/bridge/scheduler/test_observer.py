"""What a scheduler worker says of its partitions."""

from __future__ import annotations

import logging
from dataclasses import dataclass, field

import pytest
from confluent_kafka import TIMESTAMP_LOG_APPEND_TIME, Message

from reconsume.bridge.metrics.registry import SchedulerMetrics
from reconsume.bridge.scheduler.observer import WorkerObserver
from reconsume.bridge.scheduler.queues.read_ahead import ReadAhead
from reconsume.delay_levels.wire.names import TopicNames


@dataclass
class Watched:
    """An observer on a clock that goes on by a second at each look."""

    total: int = 80
    now: float = 0.0
    set_back: float = 0.0
    observer: WorkerObserver = field(init=False)

    def __post_init__(self) -> None:
        self.observer = WorkerObserver(
            TopicNames(), SchedulerMetrics(), lambda: self.now - self.set_back, lambda: self.total, lambda: self.now
        )

    def look(self, times: int = 1) -> None:
        for _ in range(times):
            self.now += 1_000
            self.observer.look(ReadAhead(100, 10**6))


def test_a_look_at_what_waits_is_put_off_while_records_are_due_but_not_for_ever() -> None:
    one, read_ahead, looked = Watched(), ReadAhead(100, 10**6), list[float]()
    read_ahead.assign("reconsume.DELAY.1s", 0, 1_000)
    record = Message(topic="reconsume.DELAY.1s", partition=0, offset=0, timestamp=(TIMESTAMP_LOG_APPEND_TIME, 0))
    read_ahead.add(("reconsume.DELAY.1s", 0), [record])
    for one.now in range(100, 20_000, 100):
        before = one.observer.waiting.heads
        one.observer.look(read_ahead)
        if one.observer.waiting.heads is not before:
            looked.append(one.now)
        if one.now == 12_300:
            [run] = read_ahead.take_due(one.now, 10)
            run.drop()
    assert looked == [5_000, 10_000, *range(12_400, 20_000, 1_000)]


def test_a_clock_that_is_set_back_hides_no_hung_loop_and_stops_no_look() -> None:
    one, read_ahead = Watched(), ReadAhead(100, 10**6)
    one.now = 3_600_000
    one.observer.alive()
    one.observer.look(read_ahead)
    one.set_back = 3_600_000
    read_ahead.assign("reconsume.DELAY.1s", 0, 1_000)
    one.now += 1_000
    one.observer.look(read_ahead)
    assert len(one.observer.waiting.heads) == 1
    assert one.observer.is_alive()
    one.now += 120_000
    assert not one.observer.is_alive()


@pytest.fixture(autouse=True)
def _info(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "reconsume.bridge.scheduler.observer")


def test_before_its_first_assignment_it_is_not_ready(caplog: pytest.LogCaptureFixture) -> None:
    Watched().look(3)
    assert caplog.messages == []


def test_it_says_its_partitions_once_and_when_they_change(caplog: pytest.LogCaptureFixture) -> None:
    one = Watched()
    one.observer.assigned(80, 0)
    one.look(3)
    one.observer.assigned(40, 0)
    one.look(3)
    one.total = 84
    one.look(3)
    assert caplog.messages == ["ready, 80 of 80 partitions", "ready, 40 of 80 partitions", "ready, 40 of 84 partitions"]


def test_the_steps_of_one_rebalance_are_one_line(caplog: pytest.LogCaptureFixture) -> None:
    one = Watched()
    one.observer.assigned(80, 0)
    one.look()
    one.observer.assigned(20, 0)
    one.observer.assigned(40, 0)
    one.look()
    assert caplog.messages == ["ready, 80 of 80 partitions", "ready, 40 of 80 partitions"]


@pytest.mark.parametrize(
    ("own", "refused", "total", "line"),
    [
        (0, 0, 80, "ready, 0 of 80 partitions"),
        (40, 0, 0, "ready, 40 partitions"),
        (40, 4, 80, "ready, 40 of 80 partitions, 4 are not scheduled from"),
        (80, 4, 80, "ready, 80 partitions, 4 are not scheduled from"),
    ],
)
def test_what_it_says(own: int, refused: int, total: int, line: str, caplog: pytest.LogCaptureFixture) -> None:
    one = Watched(total)
    one.observer.assigned(own, refused)
    one.look()
    assert caplog.messages == [line]


def test_the_next_life_says_it_again(caplog: pytest.LogCaptureFixture) -> None:
    one = Watched()
    for _ in range(2):
        one.observer.assigned(40, 0)
        one.look()
        one.observer.not_ready()
        one.look()
    assert caplog.messages == ["ready, 40 of 80 partitions"] * 2
