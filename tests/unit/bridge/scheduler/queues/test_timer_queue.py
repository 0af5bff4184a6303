"""The last stretch: records leave at their own moments, whatever stands in front of them in the partition."""

from __future__ import annotations

from confluent_kafka import TIMESTAMP_LOG_APPEND_TIME, Message

from reconsume.bridge.process.polled_records import PolledRecord
from reconsume.bridge.scheduler.queues.partition_queues import TimerQueue
from reconsume.bridge.scheduler.queues.read_ahead import ReadAhead
from reconsume.delay_levels.progress.done_ahead import LONGEST_SPAN, decode_done
from tests.support.read_ahead import add

LANE = "reconsume.DELAY.0s"


def message(offset: int, due_ms: int) -> Message:
    stored = (TIMESTAMP_LOG_APPEND_TIME, 0)
    return Message(topic=LANE, partition=0, offset=offset, value=b"%d" % due_ms, timestamp=stored)


def due_of(one: PolledRecord) -> float:
    return float(one.value() or b"")


def offsets(queue: TimerQueue, now_ms: float, limit: int = 100) -> list[int | None]:
    return [one.offset() for _, one in queue.due(now_ms, limit)]


def held(*due_ms: int, done: tuple[int, ...] = ()) -> TimerQueue:
    queue = TimerQueue(LANE, 0, due_of)
    queue.learn(done)
    for offset, due in enumerate(due_ms):
        queue.append(message(offset, due))
    return queue


def test_the_earliest_leaves_first_and_the_commit_remembers_it() -> None:
    queue = held(900, 100, 500, 100)
    assert queue.next_due_ms == 100
    assert offsets(queue, 99) == []
    assert offsets(queue, 500) == [1, 3, 2]
    assert offsets(queue, 500, limit=2) == [1, 3]
    records = queue.due(100, 100)
    offset, metadata = queue.after(records)
    assert (offset, set(decode_done(offset, metadata))) == (0, {1, 3})
    queue.drop(records)
    assert (len(queue), queue.next_due_ms) == (2, 500)
    assert queue.after(queue.due(900, 100)) == (4, "")


def test_the_next_owner_does_not_deliver_again_what_was_done() -> None:
    queue = held(900, 100, 500, 100, done=(1, 3))
    assert offsets(queue, 10_000) == [2, 0]
    queue.drop(queue.due(500, 100))
    assert queue.after(queue.due(900, 100)) == (4, "")


def test_what_is_too_far_behind_the_first_waits_and_reading_stops() -> None:
    ahead = ReadAhead(1_000_000, 10**12)
    ahead.assign_held(LANE, 0, due_of)
    for offset in (0, LONGEST_SPAN - 1, LONGEST_SPAN, LONGEST_SPAN + 1):
        add(ahead, message(offset, 900 if offset == 0 else 10))
    (queue,) = ahead
    assert ahead.to_pause(500) == [queue]
    queue.paused = True
    (run,) = ahead.take_due(500, 100)
    assert [one.offset() for _, one in run.records] == [LONGEST_SPAN - 1]
    run.drop()
    assert (ahead.take_due(500, 100), ahead.next_due_ms(), len(queue)) == ([], 900, 3)
    ahead.take_due(900, 100)[0].drop()
    assert ahead.to_resume() == [queue]
    assert len(ahead.take_due(900, 100)[0].records) == 2


def test_a_partition_that_is_held_back_delivers_nothing() -> None:
    queue = held(5)
    queue.held_until_ms = 100
    assert (offsets(queue, 50), queue.next_due_ms, offsets(queue, 100)) == ([], 100, [0])


def test_what_is_read_before_a_batch_is_dropped_stays_also_if_it_is_due_earlier() -> None:
    queue = held(900, 500)
    records = queue.due(500, 100)
    queue.append(message(2, 100))
    queue.drop(records)
    assert offsets(queue, 10_000) == [2, 0]
    assert queue.after(queue.due(900, 100)) == (3, "")
