"""Messages that were read together: made when they are looked at, decided about as a whole or one by one."""

from __future__ import annotations

import threading
from collections.abc import Iterable
from itertools import chain, pairwise
from typing import cast

import pytest
from confluent_kafka import KafkaError
from confluent_kafka import Message as KafkaMessage
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from reconsume.bridge.reading.by_partition import by_partition
from reconsume.consumers.partitions.batch import PolledBatch, Reading
from reconsume.consumers.partitions.process_queue import Chunk, ProcessQueue, chunks_of
from reconsume.delay_levels.progress.metadata import KeptProgress
from tests.support.waiting import PATIENCE
from tests.unit.consumers.doubles import RETRY_TOPIC, message_at, safe_offset


def batch_at(offsets: Iterable[int]) -> PolledBatch:
    polled = [KafkaMessage(topic="flights", partition=0, offset=one, value=b"x" * (one % 7)) for one in offsets]
    return PolledBatch(polled, Reading(RETRY_TOPIC, ""))


def begun(*offsets: int, size: int | None = None) -> tuple[ProcessQueue, list[Chunk]]:
    queue, batch = ProcessQueue("flights", 0), batch_at(offsets)
    assert queue.begin(batch) is batch
    return queue, list(chunks_of(queue, batch, size or len(batch)))


FLIGHTS, OTHER, RETRY = ("flights", 0), ("flights", 1), (RETRY_TOPIC, 0)


@pytest.mark.parametrize(
    "places",
    [
        [],
        [FLIGHTS],
        [FLIGHTS, FLIGHTS, FLIGHTS],
        [FLIGHTS, FLIGHTS, OTHER, FLIGHTS],
        [FLIGHTS, RETRY, RETRY],
    ],
)
@pytest.mark.parametrize("failing", [None, 0, 2])
def test_what_was_polled_comes_by_partition_in_order_and_errors_apart(
    places: list[tuple[str, int]], failing: int | None
) -> None:
    polled = [
        KafkaMessage(topic=topic, partition=number, offset=place, error=KafkaError(-1) if place == failing else None)
        for place, (topic, number) in enumerate(places)
    ]
    runs = list(by_partition(polled))
    assert [one for *_, run in runs for one in run] == polled
    for topic, number, failed, run in runs:
        assert {(one.topic(), one.partition(), one.error() is not None) for one in run} == {(topic, number, failed)}
    assert all(one[:3] != other[:3] for one, other in pairwise(runs)), "none is parted without need"


def test_it_is_a_sequence_of_messages_that_stay_the_same() -> None:
    batch = batch_at([4, 5, 7])
    assert len(batch) == 3
    assert [message.offset for message in batch] == [4, 5, 7]
    assert batch[1] is batch[1]
    assert batch[-2:] == (batch[1], batch[2])
    assert batch[0] in batch
    assert repr(batch[2:]) == "(<Message flights-0@7>,)"
    assert repr(batch) == repr(tuple(batch))
    with pytest.raises(IndexError):
        batch[3]


@given(st.sets(st.integers(0, 40), min_size=1), st.integers(1, 9))
def test_its_parts_are_all_of_it_in_order(offsets: set[int], size: int) -> None:
    read = batch_at(sorted(offsets))
    parts = list(chunks_of(ProcessQueue("flights", 0), read, size))
    assert [message.offset for part in parts for message in part] == sorted(offsets)
    assert all(len(part) == size for part in parts[:-1])


def test_offsets_without_a_gap_are_a_range() -> None:
    assert batch_at([4, 5, 6]).offsets() == range(4, 7)
    assert batch_at([4, 6, 7]).offsets() == [4, 6, 7]


def test_threads_that_take_parts_share_them_without_loss() -> None:
    parts = chunks_of(ProcessQueue("flights", 0), batch_at(range(2_000)), 1)
    line = threading.Barrier(4)
    taken: list[list[Chunk]] = [[] for _ in range(4)]

    def take(mine: list[Chunk]) -> None:
        line.wait(PATIENCE)
        mine.extend(parts)

    threads = [threading.Thread(target=take, args=(mine,)) for mine in taken]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE)
    offsets = [part.start for mine in taken for part in mine]
    assert sorted(offsets) == list(range(2_000))


@pytest.mark.rule("CC-15", "T-29")
def test_a_dropped_queue_starts_no_batch_and_takes_no_success() -> None:
    queue, (first, second) = begun(7, 8, size=1)
    assert queue.start(first, 0)
    queue.drop()
    assert not queue.start(second, 0)
    queue.succeed(first)
    assert safe_offset(queue) == 7


@pytest.mark.rule("CC-17", "EX-03", "EX-05", "T-27")
def test_a_batch_that_ran_too_long_is_decided_as_a_whole_and_its_late_success_changes_nothing() -> None:
    queue, (batch,) = begun(7, 8, 9)
    assert queue.start(batch, 1_000)
    assert queue.expired(1_000) == [], "not yet: exactly the timeout is in time"
    assert queue.expired(1_001) == [batch]
    queue.succeed(batch)
    assert (queue.size, safe_offset(queue)) == (3, 7)
    assert queue.expired(1e15) == []
    for message in batch:
        queue.finish(message)
    assert (queue.size, safe_offset(queue)) == (0, 10)
    assert not queue.is_full(1, 1, 1), "no bytes are left"


@pytest.mark.rule("CC-06", "T-13")
def test_the_messages_of_a_batch_that_is_taken_are_finished_one_by_one() -> None:
    queue, (batch,) = begun(7, 8)
    queue.start(batch, 0)
    assert queue.take(batch)
    assert queue.expired(1) == []
    queue.finish(batch[0])
    assert (queue.size, safe_offset(queue)) == (1, 8)


@pytest.mark.rule("CC-13", "EX-05", "T-15")
def test_while_threads_succeed_and_time_out_no_offset_is_committed_before_its_message_is_done() -> None:
    queue, parts = begun(*range(6_000), size=2)
    done: set[int] = set()
    line = threading.Barrier(5)

    def work(mine: list[Chunk]) -> None:
        line.wait(PATIENCE)
        for part in mine:
            assert queue.start(part, 0)
            done.update((part.start, part.start + 1))
            queue.succeed(part)

    threads = [threading.Thread(target=work, args=(parts[number::4],)) for number in range(4)]
    for thread in threads:
        thread.start()
    line.wait(PATIENCE)
    last = 0
    while any(thread.is_alive() for thread in threads) or queue.size:
        for message in chain.from_iterable(queue.expired(1)):
            done.add(message.offset)
            queue.finish(message)
        offset = safe_offset(queue)
        assert offset is not None
        assert offset >= last
        assert done.issuperset(range(offset))
        last = offset
    assert (safe_offset(queue), queue.size) == (6_000, 0)
    assert not queue.is_full(1, 1, 1), "no bytes are left, whoever decided"


def test_of_a_batch_that_was_partly_finished_in_an_earlier_life_the_rest_is_begun() -> None:
    queue = ProcessQueue("flights", 0)
    queue.keep(KeptProgress(frozenset({8}), {9: 2}), 7)
    left = queue.begin(batch_at([7, 8, 9]))
    assert [(one.offset, one.reconsume_times) for one in left] == [(7, 0), (9, 2)]


def test_of_a_batch_that_lies_partly_below_the_committed_offset_the_rest_is_begun() -> None:
    queue = ProcessQueue("flights", 0)
    queue.keep(KeptProgress(), 8)
    assert [one.offset for one in queue.begin(batch_at([7, 8, 9]))] == [8, 9]
    assert [one.offset for one in queue.begin(batch_at([9, 10]))] == [10]


@pytest.mark.parametrize(
    ("read", "left"),
    [
        ([100, 100, 101], [100, 101]),
        ([100, 100], [100]),
        ([100, 101, 100, 101, 102], [100, 101, 102]),
        ([100, 100, 102], [100, 102]),
    ],
    ids=["first-again", "only-again", "two-again", "as-long-as-without-a-gap"],
)
@pytest.mark.parametrize("kept", [KeptProgress(), KeptProgress(frozenset({107}), {101: 2})], ids=["new", "continued"])
@pytest.mark.parametrize("is_batch", [True, False], ids=["batch", "list"])
def test_of_a_record_that_comes_twice_in_one_read_one_is_begun(
    read: list[int], left: list[int], kept: KeptProgress, is_batch: bool, caplog: pytest.LogCaptureFixture
) -> None:
    queue = ProcessQueue("flights", 0)
    queue.keep(kept, 90)
    with caplog.at_level("INFO", logger="reconsume"):
        begun = queue.begin(batch_at(read) if is_batch else [message_at(one) for one in read])
    assert [one.offset for one in begun] == left
    assert (queue.size, safe_offset(queue)) == (len(left), 100)
    assert caplog.messages == [f"records read twice topic=flights partition=0 copies={len(read) - len(left)}"]
    for message in begun:
        queue.finish(message)
    assert (queue.size, safe_offset(queue)) == (0, left[-1] + 1)


def test_a_record_below_one_that_came_before_it_in_the_same_read_is_never_dropped_silently() -> None:
    queue = ProcessQueue("flights", 0)
    with pytest.raises(ValueError, match="must rise"):
        queue.begin(batch_at([105, 105, 100, 101]))


class BatchesAgainstAModel(RuleBasedStateMachine):
    """Batches begin, succeed, fail by message, run too long, in any order; with gaps as compaction leaves them."""

    @initialize(start=st.integers(0, 2**40))
    def start(self, start: int) -> None:
        self.queue = ProcessQueue("flights", 0)
        self.next = start
        self.waiting: list[Chunk] = []
        self.running: list[Chunk] = []
        self.unfinished: set[int] = set()
        self.late: set[Chunk] = set()
        self.decided: set[int] = set()

    @rule(gaps=st.lists(st.integers(0, 2), min_size=1, max_size=8), size=st.integers(1, 4))
    def begin(self, gaps: list[int], size: int) -> None:
        offsets = []
        for gap in gaps:
            offsets.append(self.next + gap)
            self.next = offsets[-1] + 1
        read = batch_at(offsets)
        assert self.queue.begin(read) is read
        self.unfinished.update(offsets)
        self.waiting += chunks_of(self.queue, read, size)

    @precondition(lambda self: self.waiting)
    @rule(data=st.data())
    def call(self, data: st.DataObject) -> None:
        batch = self._taken(self.waiting, data)
        assert self.queue.start(batch, 0)
        self.running.append(batch)

    @precondition(lambda self: self.running)
    @rule(data=st.data())
    def succeed(self, data: st.DataObject) -> None:
        batch = self._taken(self.running, data)
        self.queue.succeed(batch)
        if batch in self.late:
            self.late.remove(batch)
        else:
            self.unfinished -= {one.offset for one in batch}

    @precondition(lambda self: self.running)
    @rule(data=st.data())
    def fail(self, data: st.DataObject) -> None:
        batch = self._taken(self.running, data)
        assert self.queue.take(batch) == (batch not in self.late)
        if batch in self.late:
            self.late.remove(batch)
        else:
            self.decided.update(one.offset for one in batch)

    @precondition(lambda self: self.running)
    @rule()
    def run_too_long(self) -> None:
        expired = self.queue.expired(1)
        assert set(expired) == set(self.running) - self.late
        self.late.update(expired)
        self.decided.update(one.offset for batch in expired for one in batch)

    @precondition(lambda self: self.decided)
    @rule(data=st.data())
    def finish(self, data: st.DataObject) -> None:
        offset = data.draw(st.sampled_from(sorted(self.decided)))
        self.queue.finish(message_at(offset, body=b"x" * (offset % 7)))
        self.decided.remove(offset)
        self.unfinished.remove(offset)

    def _taken(self, batches: list[Chunk], data: st.DataObject) -> Chunk:
        return batches.pop(data.draw(st.integers(0, len(batches) - 1)))

    @invariant()
    def agrees_with_the_model(self) -> None:
        assert self.queue.size == len(self.unfinished)
        safe = safe_offset(self.queue)
        assert safe == min(self.unfinished, default=self.next if safe is not None else None)
        held = sum(one % 7 for one in self.unfinished)
        assert self.queue.is_full(2**62, held, 2**62)
        assert not self.queue.is_full(2**62, held + 1, 2**62)


BatchesAgainstAModel.TestCase.settings = settings(max_examples=60, stateful_step_count=30, deadline=None)
TestBatchesAgainstAModel = pytest.mark.rule("CC-13", "CC-17", "T-15", "T-27")(
    cast("type", BatchesAgainstAModel.TestCase)
)


@given(st.lists(st.sets(st.integers(0, 20), min_size=1), min_size=1, max_size=3), st.integers(1, 5), st.data())
def test_parts_that_succeed_in_any_order_are_finished_once(
    batches: list[set[int]], size: int, data: st.DataObject
) -> None:
    queue, left, parts = ProcessQueue("flights", 0), set[int](), list[Chunk]()
    for number, offsets in enumerate(batches):
        read = batch_at([100 * number + one for one in sorted(offsets)])
        assert queue.begin(read) is read
        parts += chunks_of(queue, read, size)
        left |= {message.offset for message in read}
    for part in data.draw(st.permutations(parts)):
        queue.start(part, 0)
        queue.succeed(part)
        left -= {message.offset for message in part}
        if data.draw(st.booleans()):
            assert queue.size == len(left)
            assert queue.commit_point() is not None
            assert not left or safe_offset(queue) == min(left)
    assert queue.size == 0
    assert not queue.is_full(1, 1, 1), "no bytes are left"
