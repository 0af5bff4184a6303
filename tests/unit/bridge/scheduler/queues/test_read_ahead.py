"""What a worker holds in memory: a bounded head of each partition, delivered in order and never early."""

from __future__ import annotations

import pytest
from confluent_kafka import TIMESTAMP_CREATE_TIME, TIMESTAMP_LOG_APPEND_TIME, Message

from reconsume.bridge.scheduler.queues.read_ahead import DueRun, ReadAhead
from tests.support.read_ahead import add


def message(topic: str, partition: int, offset: int, stored_ms: int, value: bytes = b"v") -> Message:
    return Message(
        topic=topic, partition=partition, offset=offset, value=value, timestamp=(TIMESTAMP_LOG_APPEND_TIME, stored_ms)
    )


def offsets(runs: list[DueRun]) -> dict[tuple[str, int], list[int | None]]:
    return {(run.queue.topic, run.queue.partition): [one.offset() for _, one in run.records] for run in runs}


def reading(*partitions: tuple[str, int, int], records: int = 100, total: int = 10**9) -> ReadAhead:
    ahead = ReadAhead(records, total)
    for topic, partition, delay_ms in partitions:
        ahead.assign(topic, partition, delay_ms)
    return ahead


@pytest.mark.rule("SC-03", "SC-04", "T-22")
def test_the_head_of_a_partition_holds_up_what_is_behind_it() -> None:
    ahead = reading(("d", 0, 1_000))
    for offset, stored in enumerate([0, 10, 20, 15]):
        add(ahead, message("d", 0, offset, stored))
    assert ahead.next_due_ms() == 1_000
    assert ahead.take_due(999, 10) == []
    assert offsets(ahead.take_due(1_010, 10)) == {("d", 0): [0, 1]}
    assert offsets(ahead.take_due(1_016, 10)) == {("d", 0): [0, 1]}
    assert offsets(ahead.take_due(1_020, 10)) == {("d", 0): [0, 1, 2, 3]}


@pytest.mark.rule("SC-09", "SC-10", "T-20")
@pytest.mark.parametrize("back_ms", [1, 60_000, 86_400_000])
def test_a_clock_that_went_back_never_makes_a_record_early(back_ms: int) -> None:
    ahead, stored = reading(("d", 0, 10_000)), 1_700_000_000_000
    add(ahead, message("d", 0, 0, stored))
    assert ahead.take_due(stored - back_ms, 10) == []
    assert ahead.take_due(stored + 9_999, 10) == []
    assert ahead.next_due_ms() == stored + 10_000


def test_what_is_taken_stays_until_it_is_dropped() -> None:
    ahead = reading(("d", 0, 0))
    for offset in range(5):
        add(ahead, message("d", 0, offset * 2, 0))
    (run,) = ahead.take_due(1, 3)
    assert (run.commit.offset, len(run.queue)) == (5, 5)
    run.drop()
    assert offsets(ahead.take_due(1, 3)) == {("d", 0): [6, 8]}


def test_a_flooded_partition_leaves_room_for_the_others() -> None:
    ahead = reading(("flood", 0, 0), ("quiet", 0, 0))
    for offset in range(100):
        add(ahead, message("flood", 0, offset, 0))
    add(ahead, message("quiet", 0, 0, 50))
    assert offsets(ahead.take_due(60, 10)) == {("quiet", 0): [0], ("flood", 0): list(range(9))}


def test_two_floods_get_the_same_share() -> None:
    ahead = reading(("one", 0, 0), ("two", 0, 0), ("quiet", 0, 0))
    for offset in range(100):
        add(ahead, message("one", 0, offset, 0))
        add(ahead, message("two", 0, offset, 20))
    add(ahead, message("quiet", 0, 0, 50))
    taken = ahead.take_due(60, 11)
    assert {run.queue.topic: len(run.records) for run in taken} == {"quiet": 1, "one": 5, "two": 5}


def test_a_small_limit_is_for_the_most_overdue() -> None:
    ahead = reading(*((topic, 0, 0) for topic in "abc"))
    for topic, stored in (("a", 30), ("b", 10), ("c", 20)):
        add(ahead, message(topic, 0, 0, stored))
    assert offsets(ahead.take_due(60, 1)) == {("b", 0): [0]}
    assert offsets(ahead.take_due(60, 2)) == {("b", 0): [0], ("c", 0): [0]}


@pytest.mark.parametrize("lane", ["d", "held", "parked"])
@pytest.mark.parametrize("large", ["value", "key", "headers"])
def test_memory_is_bounded_whatever_of_a_record_is_large(lane: str, large: str) -> None:
    ahead, kilobyte = ReadAhead(10_000, 100_000), b"x" * 1_000
    ahead.assign("d", 0, 1_000)
    ahead.assign_held("held", 0, lambda _message: 1e15)
    ahead.assign_parked("parked", 0, lambda: False)
    record = {"value": {"value": kilobyte}, "key": {"key": kilobyte}, "headers": {"headers": [("h", kilobyte)]}}[large]
    for offset in range(200):
        if ahead.to_pause(0):
            break
        stored = (TIMESTAMP_LOG_APPEND_TIME, 10**15)
        add(ahead, Message(topic=lane, partition=0, offset=offset, timestamp=stored, **record))  # type: ignore[arg-type]
    assert 40 <= offset <= 60


def test_a_batch_is_bounded_in_bytes_and_one_record_larger_than_that_goes_alone() -> None:
    ahead = reading(("small", 0, 0), ("large", 0, 0), ("huge", 0, 0))
    for offset in range(10):
        add(ahead, message("large", 0, offset, 5, b"x" * 100))
        add(ahead, message("small", 0, offset, 10, b"x"))
    add(ahead, message("huge", 0, 0, 7, b"x" * 5_000))
    taken = []
    while runs := ahead.take_due(60, 100, 900):
        assert len(runs) == 1 or sum(run.bytes for run in runs) <= 900
        taken.append(offsets(runs))
        for run in runs:
            run.drop()
    assert taken == [
        {("large", 0): [0, 1, 2, 3], ("small", 0): list(range(10))},
        {("huge", 0): [0]},
        {("large", 0): [4, 5, 6, 7, 8, 9]},
    ]


def test_a_partition_with_something_due_is_paused_when_all_memory_is_taken() -> None:
    """A thousand late records of 1 MB would else be in memory together."""
    ahead = reading(("late", 0, 0), ("quiet", 0, 0), total=100_000)
    for offset in range(20):
        assert ahead.to_pause(60) == [] or offset >= 9
        add(ahead, message("late", 0, offset, 0, b"x" * 10_000))
    (queue,) = ahead.to_pause(60)
    assert queue.topic == "late"


def test_a_full_partition_is_paused_only_when_nothing_of_it_is_due() -> None:
    ahead = reading(("d", 0, 1_000), records=10)
    for offset in range(10):
        add(ahead, message("d", 0, offset, 0))
    assert ahead.to_pause(1_500) == []
    (queue,) = ahead.to_pause(500)
    queue.paused = True
    assert (ahead.to_pause(500), ahead.to_resume()) == ([], [])
    queue.drop(queue.due(9_999, 6))
    assert ahead.to_resume() == [queue]


def test_memory_is_shared_between_the_partitions_when_all_is_taken() -> None:
    ahead = reading(("a", 0, 9), ("b", 0, 9), ("c", 0, 9), records=10**6, total=100_000)
    for offset in range(5):
        add(ahead, message("a", 0, offset, 10**9, b"x" * 10_000))
    assert ahead.to_pause(0) == [], "nobody else needs it"
    for offset in range(5):
        add(ahead, message("b", 0, offset, 10**9, b"x" * (10_000 if offset < 3 else 5_000)))
    add(ahead, message("c", 0, 0, 10**9, b"x"))
    assert [queue.topic for queue in ahead.to_pause(0)] == ["a", "b"]


def test_delayed_messages_of_the_last_stretch_have_room_whatever_the_setting() -> None:
    """They are held in memory, and a partition with more of them than there is room for is late."""
    ahead = ReadAhead(100, 10**9)
    ahead.assign_held("reconsume.DELAY.0s", 0, lambda _message: 5_000.0)
    for offset in range(15_000):
        add(ahead, message("reconsume.DELAY.0s", 0, offset, 0, b""))
    assert ahead.to_pause(0) == []


def test_a_partition_that_is_held_is_not_due_until_then() -> None:
    ahead = reading(("d", 0, 0))
    add(ahead, message("d", 0, 0, 0))
    next(iter(ahead)).held_until_ms = 500
    assert (ahead.take_due(499, 1), ahead.next_due_ms()) == ([], 500)
    assert len(ahead.take_due(500, 1)) == 1


@pytest.mark.rule("T-29")
def test_a_revoked_partition_is_forgotten_and_its_late_records_too() -> None:
    ahead = reading(("d", 0, 0))
    add(ahead, message("d", 0, 0, 0))
    ahead.revoke([("d", 0)])
    add(ahead, message("d", 0, 1, 0))
    assert (len(ahead), ahead.next_due_ms(), ahead.owns(("d", 0))) == (0, None, False)


def test_a_record_that_is_given_again_is_kept_once() -> None:
    ahead = reading(("d", 0, 0))
    for offset in (5, 6, 5, 6, 7):
        add(ahead, message("d", 0, offset, 0))
    assert offsets(ahead.take_due(1, 10)) == {("d", 0): [5, 6, 7]}
    ahead.assign("d", 0, 0)
    add(ahead, message("d", 0, 5, 0))
    assert offsets(ahead.take_due(1, 10)) == {("d", 0): [5]}, "an assignment begins anew"


@pytest.mark.parametrize("read", [[100, 100, 101], [100, 100], [100, 100, 102]])
def test_a_record_that_one_read_gives_twice_is_kept_once(read: list[int]) -> None:
    ahead = reading(("d", 0, 0))
    ahead.add(("d", 0), [message("d", 0, offset, 0) for offset in read])
    assert offsets(ahead.take_due(1, 10)) == {("d", 0): read[1:]}


def test_a_record_is_new_if_its_partition_was_read_to_its_end_and_not_paused_since() -> None:
    saw: list[tuple[int, bool]] = []
    ahead = ReadAhead(100, 10**9, saw=lambda append_ms, is_new: saw.append((append_ms, is_new)))
    ahead.assign("d", 0, 1_000)
    (queue,) = ahead
    add(ahead, message("d", 0, 0, 10))
    add(ahead, message("d", 0, 1, 20))
    ahead.reached_end(("d", 0), 2)
    ahead.add(("d", 0), [message("d", 0, 2, 30), message("d", 0, 3, 40)])
    add(ahead, message("d", 0, 4, 50))
    ahead.reached_end(("d", 0), 5)
    queue.paused = True
    ahead.reached_end(("d", 0), 5)
    queue.paused = False
    add(ahead, message("d", 0, 5, 60))
    assert saw == [(10, False), (20, False), (40, True), (50, False), (60, False)]


@pytest.mark.parametrize("created_ms", [5, 90_000], ids=["behind", "ahead"])
def test_a_record_with_its_producers_timestamp_waits_from_when_it_was_read_among_others_too(
    created_ms: int, caplog: pytest.LogCaptureFixture
) -> None:
    ahead = ReadAhead(100, 10**9, clock=lambda: 20_000.0)
    ahead.assign("d", 0, 1_000)
    created = Message(topic="d", partition=0, offset=1, value=b"v", timestamp=(TIMESTAMP_CREATE_TIME, created_ms))
    ahead.add(("d", 0), [message("d", 0, 0, 10), created, message("d", 0, 2, 20)])
    add(ahead, Message(topic="d", partition=0, offset=3, timestamp=(TIMESTAMP_CREATE_TIME, created_ms)))
    assert [due for run in ahead.take_due(10**6, 10) for due, _ in run.records] == [1_010, 21_000, 1_020, 21_000]
    assert offsets(ahead.take_due(20_999, 10)) == {("d", 0): [0]}
    assert "topic d has its producers' timestamps" in caplog.text
