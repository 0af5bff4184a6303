"""The parked topic of a group: nothing leaves while the group is paused, then everything in order."""

from __future__ import annotations

from confluent_kafka import TIMESTAMP_LOG_APPEND_TIME, Message

from reconsume.bridge.scheduler.queues.partition_queues import ParkedQueue
from reconsume.bridge.scheduler.queues.read_ahead import ReadAhead
from tests.support.read_ahead import add

PARKED = "reconsume.PARKED.departures"


class Pause:
    """A switch, and a clock that is set by hand."""

    def __init__(self) -> None:
        self.on = True
        self.now_ms = 0.0

    def is_on(self) -> bool:
        return self.on

    def clock(self) -> float:
        return self.now_ms


def message(offset: int) -> Message:
    stored = (TIMESTAMP_LOG_APPEND_TIME, 1_000 + offset)
    return Message(topic=PARKED, partition=0, offset=offset, value=b"%d" % offset, timestamp=stored)


def test_nothing_is_due_while_the_group_is_paused_and_everything_from_the_moment_it_is_not() -> None:
    pause = Pause()
    queue = ParkedQueue(PARKED, 0, pause.is_on, pause.clock)
    queue.extend([message(offset) for offset in range(3)])
    pause.now_ms = 90_000
    assert (queue.next_due_ms, queue.due(90_000, 10)) == (None, [])
    waiting = queue.look(90_000)
    assert (waiting.in_memory, waiting.due, waiting.head_due_ms) == (3, 0, None)
    pause.on = False
    assert queue.next_due_ms == 90_000
    assert [(due, one.offset()) for due, one in queue.due(90_000, 10)] == [(90_000, 0), (90_000, 1), (90_000, 2)]
    assert queue.look(90_000).due == 3
    pause.on = True
    assert queue.due(95_000, 10) == []


def test_a_parked_partition_is_read_no_further_than_its_beginning_until_the_pause_is_lifted() -> None:
    pause = Pause()
    ahead = ReadAhead(1_000, 10**9, pause.clock)
    ahead.assign_parked(PARKED, 0, pause.is_on)
    assert ahead.to_pause(0) == []
    add(ahead, message(0))
    [queue] = ahead.to_pause(0)
    queue.paused = True
    assert ahead.to_resume() == []
    pause.on = False
    assert ahead.to_resume() == [queue]
