"""What becomes of messages while the circuit breaker is open: nothing is called, sent back, timed out or lost."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import timedelta

import pytest

from reconsume.consumers import CircuitBreaker, CircuitChange, CircuitState
from reconsume.consumers.listener import ConsumeConcurrentlyContext, ConsumeConcurrentlyStatus
from reconsume.consumers.listeners.listener_call import Called
from reconsume.consumers.listeners.waiting_room import WaitingRoom
from reconsume.consumers.message import Message
from reconsume.consumers.partitions.process_queue import Chunk, ProcessQueue
from tests.unit.consumers.doubles import Clock, RecordingWriter, RunsNothing, message_at, safe_offset, service_of

SUCCESS = ConsumeConcurrentlyStatus.CONSUME_SUCCESS
LATER = ConsumeConcurrentlyStatus.RECONSUME_LATER
CLOSED, HALF_OPEN, OPEN = CircuitState.CLOSED, CircuitState.HALF_OPEN, CircuitState.OPEN


@dataclass
class Pool(RunsNothing):
    """Runs nothing until it is told to."""

    chunks: deque[Chunk] = field(default_factory=deque)

    def submit(self, chunk: Chunk) -> None:
        self.chunks.append(chunk)


class Group:
    """A service with a breaker that opens at the third failure, for 1 s, and probes twice."""

    def __init__(self, batch_size: int = 1) -> None:
        self.clock, self.writer, self.pool = Clock(), RecordingWriter(), Pool()
        self.changes: list[CircuitChange] = []
        self.poisoned: set[int] = set()
        self.works = False
        self.level = 0
        self.seen: list[int] = []
        self.counts: list[int] = []
        self.queue = ProcessQueue("flights", 0)
        self.next = 0
        settings = CircuitBreaker(
            minimum_calls=3, open_for=timedelta(seconds=1), probes=2, on_change=self.changes.append
        )
        self.service = service_of(
            self.listener,
            self.writer,
            self.clock,
            batch_size=batch_size,
            circuit_breaker=settings,
        )
        self.service.pool = self.pool

    def listener(self, messages: Sequence[Message], context: ConsumeConcurrentlyContext) -> ConsumeConcurrentlyStatus:
        offsets = [message.kafka.offset for message in messages]
        self.seen += offsets
        self.counts += [message.reconsume_times for message in messages]
        context.delay_level_when_next_consume = self.level
        return SUCCESS if self.works and not self.poisoned.intersection(offsets) else LATER

    def read(self, number: int, queue: ProcessQueue | None = None) -> None:
        queue = queue or self.queue
        messages = [message_at(self.next + one, partition=queue.partition) for one in range(number)]
        self.next += number
        self.service.accept(queue, queue.begin(messages))

    def run(self) -> list[int]:
        """What the pool calls the listener with now."""
        self.seen.clear()
        while self.pool.chunks:
            self.service.consume(self.pool.chunks.popleft())
        return list(self.seen)

    def turn(self, at_ms: float | None = None) -> list[int]:
        """A turn of the poll loop."""
        self.clock.now = self.clock.now if at_ms is None else at_ms
        self.service.tick()
        return self.run()

    @property
    def reads(self) -> bool:
        return not self.service.is_suspended(self.queue)

    @property
    def states(self) -> list[CircuitState]:
        return [change.state for change in self.changes]


def opened(waiting: int = 3) -> Group:
    """Three calls have failed, the rest was read before it opened."""
    group = Group()
    group.read(3 + waiting)
    assert group.run() == [0, 1, 2]
    group.service.tick()
    return group


def test_when_it_opens_what_was_read_is_kept_and_no_attempt_is_spent() -> None:
    group = opened(waiting=3)
    assert group.writer.origins == ["flights/0/0", "flights/0/1"], "the third opened it and is kept"
    assert (group.queue.size, safe_offset(group.queue)) == (6, 0)
    assert not group.reads
    assert group.turn(999) == []
    group.service.expire(group.queue, 0)
    assert len(group.writer.requests) == 2


def test_what_arrives_while_it_is_open_is_kept_too() -> None:
    group = opened(waiting=0)
    group.read(2)
    assert group.run() == []
    assert len(group.writer.requests) == 2


def test_a_failure_of_a_call_that_was_running_when_it_opened_is_kept() -> None:
    group = Group()
    late = Chunk(group.queue, tuple(group.queue.begin([message_at(0)])))
    assert group.service._begin(late) is not None
    group.next = 1
    group.read(3)
    group.run()
    group.service._settle(late, ConsumeConcurrentlyContext(message_queue=None), Called(LATER, None, None))  # type: ignore[arg-type]
    assert group.writer.origins == ["flights/0/1", "flights/0/2"]


def test_probes_that_fail_are_kept_and_come_after_those_that_have_not_failed() -> None:
    group = opened(waiting=5)
    assert group.turn(1_000) == [3, 4]
    assert group.turn(2_999) == []
    assert group.turn(3_000) == [5, 6]
    assert group.turn(7_000) == [7]
    assert group.reads, "one more that has not failed would do"
    assert group.turn(7_999) == []
    assert group.turn(8_000) == [2], "none came"
    assert len(group.writer.requests) == 2
    assert set(group.counts) == {0}
    assert safe_offset(group.queue) == 0


def test_messages_that_can_never_succeed_do_not_keep_it_open_when_others_come() -> None:
    group = opened(waiting=2)
    group.works, group.poisoned = True, {3, 4}
    assert group.turn(1_000) == [3, 4]
    group.turn(3_000)
    assert group.reads
    group.read(1)
    assert group.run() == [5]
    assert group.turn() == [2, 3, 4]
    assert group.states[-1] is CLOSED
    assert group.writer.origins[2:] == ["flights/0/3", "flights/0/4"], "sent back as ever"


def test_in_the_half_open_state_reading_stops_when_there_is_enough_for_the_probes() -> None:
    group = opened(waiting=0)
    group.works = True
    group.clock.now = 1_000
    group.service.tick()
    assert group.reads
    group.read(4)
    assert group.reads
    chunks = list(group.pool.chunks)
    for chunk in chunks:
        group.service._begin(chunk)
    assert not group.reads, "two are being tried, two wait"


def test_a_round_of_probes_that_fails_early_lets_nothing_pass() -> None:
    """With a small share the first failure of three probes opens the circuit again."""
    clock, changes = Clock(), list[CircuitChange]()
    breaker = CircuitBreaker(failure_share=0.3, minimum_calls=1, probes=3, on_change=changes.append)
    room, queue = WaitingRoom(clock, "departures", breaker), ProcessQueue("flights", 0)
    chunks = [Chunk(queue, [message_at(offset)]) for offset in range(5)]
    assert room.enter(chunks[0])
    assert room.settle(chunks[0], failed=True)
    assert [room.enter(chunk) for chunk in chunks[1:]] == [False] * 4
    clock.now = 5_000
    probes = room.due()
    assert probes == chunks[1:4]
    assert room.enter(probes[0])
    assert room.settle(probes[0], failed=True)
    assert room.due() == []
    assert changes[-1].state is OPEN


def test_when_a_probe_works_everything_that_was_kept_goes_on() -> None:
    group = opened(waiting=5)
    group.works = True
    assert group.turn(1_000) == [3, 4]
    assert group.turn() == [5, 6, 7, 2]
    assert group.reads
    group.writer.waiting[0](None)
    group.writer.waiting[1](None)
    assert (group.queue.size, safe_offset(group.queue)) == (0, 8)
    assert group.states == [CLOSED, OPEN, HALF_OPEN, CLOSED]


def test_what_was_kept_of_a_partition_that_goes_away_is_forgotten_and_others_are_not() -> None:
    group, other = opened(waiting=2), ProcessQueue("flights", 1)
    group.read(2, other)
    group.run()
    group.queue.drop()
    assert group.service.leave([group.queue], lambda: 1)
    group.works = True
    assert group.turn(1_000) == [5, 6]
    assert group.turn() == []
    assert (safe_offset(group.queue), safe_offset(other)) == (0, 7)


def test_a_probe_for_a_partition_that_went_away_leaves_its_place_to_another() -> None:
    group, other = opened(waiting=2), ProcessQueue("flights", 1)
    group.read(2, other)
    group.run()
    group.queue.drop()
    assert group.turn(1_000) == [], "two chunks of the dropped partition were taken"
    assert group.turn() == [5, 6]


@pytest.mark.parametrize("works", [True, False])
def test_hanging_probes_of_a_partition_that_went_away_leave_their_places_to_others(works: bool) -> None:
    group, other = opened(waiting=2), ProcessQueue("flights", 1)
    group.clock.now = 1_000
    group.service.tick()
    probes = list(group.pool.chunks)
    contexts = [group.service._begin(chunk) for chunk in probes]
    group.pool.chunks.clear()
    assert group.service.is_suspended(other), "two are being tried"
    group.queue.drop()
    assert group.service.leave([group.queue], lambda: 1)
    assert not group.service.is_suspended(other)
    group.read(3, other)
    group.works = works
    begun = [group.pool.chunks.popleft() for _ in range(2)]
    new_contexts = [group.service._begin(chunk) for chunk in begun]
    for chunk, context in zip(probes, contexts, strict=True):
        assert context is not None
        group.service._settle(chunk, context, Called(LATER if works else SUCCESS, None, None))
    assert group.turn() == [], "late results of the dropped partition are none"
    assert group.states == [CLOSED, OPEN, HALF_OPEN]
    for chunk, context in zip(begun, new_contexts, strict=True):
        assert context is not None
        group.service._settle(chunk, context, Called(SUCCESS if works else LATER, None, None))
    assert group.turn() == ([7] if works else [])
    assert group.states[3:] == [CLOSED if works else OPEN]


def test_a_probe_that_is_given_out_when_its_partition_goes_away_leaves_its_place_once() -> None:
    """It waits for a thread of the pool meanwhile."""
    group, other = opened(waiting=2), ProcessQueue("flights", 1)
    group.clock.now = 1_000
    group.service.tick()
    group.queue.drop()
    assert group.service.leave([group.queue], lambda: 1)
    assert group.run() == []
    group.read(4, other)
    assert group.run() == [5, 6], "two probes, not four"


def test_a_timeout_is_a_failure_and_its_late_result_is_none() -> None:
    group = Group()
    group.read(3)
    chunks = [group.pool.chunks.popleft() for _ in range(3)]
    contexts = [group.service._begin(chunk) for chunk in chunks]
    group.clock.now = 2
    group.service.expire(group.queue, 1)
    group.service.tick()
    assert group.states[-1] is OPEN
    assert len(group.writer.requests) == 3, "a listener still has them, so they are not kept"
    for chunk, context in zip(chunks, contexts, strict=True):
        assert context is not None
        group.service._settle(chunk, context, Called(SUCCESS, None, None))
    group.turn(1_002)
    assert group.states[-1] is HALF_OPEN


def test_of_a_batch_one_success_is_a_call_that_worked_and_a_failed_batch_is_one_failure() -> None:
    group = Group(batch_size=4)
    group.read(8)
    group.run()
    assert len(group.writer.requests) == 8, "two calls are too few"
    group.read(4)
    group.run()
    assert len(group.writer.requests) == 8
    group.service.tick()
    assert group.changes[-1] == CircuitChange("departures", OPEN, 3, 3, 1.0)


def test_asking_for_the_dead_letter_topic_is_an_answer_not_a_failure() -> None:
    group = Group()
    group.level = -1
    group.read(10)
    group.run()
    assert [request.delay_level for request in group.writer.requests] == [-1] * 10
    group.service.tick()
    assert group.states == [CLOSED]


def test_the_log_tells_why_and_for_how_long(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, logger="reconsume"):
        group = opened(waiting=2)
        group.works = True
        group.turn(1_500)
        group.turn()
    assert [record.getMessage() for record in caplog.records] == [
        "group departures: the listener failed in 3 of 3 calls; consumption pauses for 1.0 s",
        "group departures: probing the listener, 1.5 s after the first pause began",
        "group departures: the listener works again (0 of 1 probes failed) after 1.5 s; kept batches continue: 1",
    ]


def test_a_callback_that_raises_changes_nothing(caplog: pytest.LogCaptureFixture) -> None:
    def cannot(_change: CircuitChange) -> None:
        raise ValueError("no gauge")

    room = WaitingRoom(Clock(), "departures", CircuitBreaker(on_change=cannot))
    assert room.due() == []
    assert "group departures: the circuit breaker's on_change raised, which changes nothing" in caplog.text
