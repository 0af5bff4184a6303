"""The messages of one partition that are read and not finished."""

from __future__ import annotations

import threading

import pytest

from reconsume.bridge.kafka.admin import Commit
from reconsume.consumers.message import Message
from reconsume.consumers.partitions.process_queue import Chunk, ProcessQueue, chunks_of
from reconsume.delay_levels.progress.metadata import KeptProgress
from tests.support.waiting import PATIENCE
from tests.unit.consumers.doubles import message_at, safe_offset


def queue_of(*offsets: int) -> tuple[ProcessQueue, dict[int, Message]]:
    queue = ProcessQueue("flights", 0)
    messages = {offset: message_at(offset) for offset in offsets}
    queue.begin(list(messages.values()))
    return queue, messages


@pytest.mark.rule("CC-13", "T-15")
def test_the_smallest_unfinished_offset_is_committed() -> None:
    queue, messages = queue_of(7, 8, 9)
    assert safe_offset(queue) == 7
    queue.finish(messages[8])
    queue.finish(messages[9])
    assert (safe_offset(queue), queue.size) == (7, 1)
    queue.finish(messages[7])
    assert (safe_offset(queue), queue.size) == (10, 0)


@pytest.mark.rule("CC-14")
def test_an_offset_is_committed_once() -> None:
    queue, messages = queue_of(7, 8)
    queue.committed = Commit(7, "")
    assert queue.to_commit is None
    queue.finish(messages[7])
    assert safe_offset(queue) == 8


def test_there_is_nothing_to_commit_before_something_was_read() -> None:
    assert ProcessQueue("flights", 0).to_commit is None


@pytest.mark.rule("CC-17", "EX-05", "T-27", "T-30")
def test_only_the_first_may_decide_what_becomes_of_a_chunk() -> None:
    queue, messages = queue_of(7)
    chunk = Chunk(queue, [messages[7]])
    assert not queue.take(chunk), "no listener has it"
    assert queue.start(chunk, 0)
    assert queue.take(chunk)
    assert not queue.take(chunk)


def test_of_many_threads_that_take_a_chunk_at_once_one_wins() -> None:
    queue, messages = queue_of(*range(50))
    chunks = list(chunks_of(queue, list(messages.values()), 1))
    assert all(queue.start(chunk, 0) for chunk in chunks)
    line = threading.Barrier(4)
    won: list[int] = []

    def take_all() -> None:
        line.wait(PATIENCE)
        won.extend(chunk[0].offset for chunk in chunks if queue.take(chunk))

    threads = [threading.Thread(target=take_all) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE)
    assert sorted(won) == list(range(50))


@pytest.mark.rule("CC-12")
def test_a_message_whose_send_back_failed_may_be_decided_again() -> None:
    queue, messages = queue_of(7)
    for _ in range(2):
        chunk = Chunk(queue, [messages[7]])
        assert queue.start(chunk, 0)
        assert queue.take(chunk)
        assert safe_offset(queue) == 7


@pytest.mark.rule("CC-15", "T-29")
def test_a_dropped_queue_calls_no_listener_and_takes_no_result() -> None:
    queue, messages = queue_of(7, 8)
    running, other = chunks_of(queue, list(messages.values()), 1)
    assert queue.start(running, 0)
    queue.drop()
    assert queue.dropped
    assert not queue.start(other, 0)
    assert not queue.take(running)


@pytest.mark.rule("CC-15")
def test_a_send_back_that_was_on_its_way_still_counts_after_the_drop() -> None:
    queue, messages = queue_of(7, 8)
    chunk = Chunk(queue, [messages[7]])
    queue.start(chunk, 0)
    assert queue.take(chunk)
    queue.drop()
    queue.finish(messages[7])
    assert safe_offset(queue) == 8


@pytest.mark.rule("CC-16")
def test_an_empty_list_changes_nothing() -> None:
    queue, _ = queue_of(7)
    assert list(chunks_of(queue, [], 1)) == []
    assert (safe_offset(queue), queue.size, queue.expired(1e9)) == (7, 1, [])


@pytest.mark.rule("EX-03")
def test_expired_is_what_a_listener_has_had_for_longer_than_the_timeout() -> None:
    queue, messages = queue_of(7, 8, 9)
    first, second = chunks_of(queue, list(messages.values()), 2)
    queue.start(first, 1_000)
    queue.start(second, 1_001)
    assert queue.expired(1_000) == [], "not yet: exactly the timeout is in time"
    assert queue.expired(1_001) == [first]
    assert queue.expired(1_002) == [second], "each once"


@pytest.mark.rule("EX-02", "EX-03", "EX-08")
def test_what_waits_for_a_listener_never_expires() -> None:
    queue, messages = queue_of(7, 8)
    _waiting, running = chunks_of(queue, list(messages.values()), 1)
    queue.start(running, 0)
    assert queue.expired(1e15) == [running], "and the one before it does not hide it"


@pytest.mark.rule("EX-03")
def test_what_was_decided_expires_no_more() -> None:
    queue, messages = queue_of(7)
    chunk = Chunk(queue, [messages[7]])
    queue.start(chunk, 0)
    queue.take(chunk)
    assert queue.expired(1e15) == []


@pytest.mark.rule("FC-02")
def test_a_queue_is_full_at_its_number_of_messages() -> None:
    queue, messages = queue_of(7, 8, 9)
    assert queue.is_full(3, 1_000, 1_000)
    queue.finish(messages[8])
    assert not queue.is_full(3, 1_000, 1_000)


@pytest.mark.rule("FC-02")
def test_a_queue_is_full_at_its_size_in_bytes() -> None:
    queue = ProcessQueue("flights", 0)
    large, tombstone = message_at(7, body=b"x" * 100), message_at(8, body=None)
    queue.begin([large, tombstone])
    assert queue.is_full(1_000, 100, 1_000)
    assert not queue.is_full(1_000, 101, 1_000)
    queue.finish(large)
    queue.finish(large)
    assert not queue.is_full(1_000, 1, 1_000), "finished twice is counted once"


@pytest.mark.rule("FC-03")
def test_a_queue_is_full_when_one_stuck_message_is_far_behind() -> None:
    queue, messages = queue_of(7, 107)
    assert queue.is_full(1_000, 1_000, 100)
    assert not queue.is_full(1_000, 1_000, 101)
    assert queue.room(1_000, 101) == 1, "the span leaves less room than the count"
    queue.finish(messages[7])
    assert not queue.is_full(1_000, 1_000, 100)


def test_the_late_success_of_a_chunk_that_somebody_else_has_decided_changes_nothing() -> None:
    queue = ProcessQueue("flights", 0)
    first, second = chunks_of(queue, queue.begin([message_at(offset) for offset in range(4)]), 2)
    queue.start(first, 0)
    queue.start(second, 1)
    assert queue.expired(1) == [first]
    queue.succeed(first)
    queue.succeed(second)
    assert (queue.size, safe_offset(queue)) == (2, 0)
    for message in first:
        queue.finish(message)
    assert (queue.size, safe_offset(queue)) == (0, 4)
    assert not queue.is_full(1, 1, 1), "no bytes are left"


def test_a_batch_that_succeeds_after_its_partition_was_dropped_changes_nothing() -> None:
    queue = ProcessQueue("flights", 0)
    chunk = Chunk(queue, queue.begin([message_at(0)]))
    queue.start(chunk, 0)
    queue.drop()
    queue.succeed(chunk)
    assert safe_offset(queue) == 0


def test_what_is_read_again_is_not_begun_again_and_what_is_new_behind_it_is() -> None:
    queue, messages = queue_of(7, 8, 9)
    queue.finish(messages[8])
    again = [message_at(offset) for offset in (8, 9, 10)]
    assert [message.offset for message in queue.begin(again)] == [10]
    assert queue.begin(again) == []
    assert (safe_offset(queue), queue.size) == (7, 3)


def test_what_lies_before_the_first_message_of_this_life_must_not_come() -> None:
    queue, _ = queue_of(7, 8)
    with pytest.raises(ValueError, match="must rise from 9 or higher"):
        queue.begin([message_at(6)])


def test_a_record_from_below_the_committed_offset_is_left_out() -> None:
    queue = ProcessQueue("flights", 0)
    queue.keep(KeptProgress(), 38)
    assert queue.begin([message_at(0)]) == []
    assert queue.commit_point() is None, "the committed offset does not go back"
    assert [one.offset for one in queue.begin([message_at(37), message_at(38), message_at(40)])] == [38, 40]
