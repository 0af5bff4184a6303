"""A listener of ours says "not now", or sends back by itself: nothing is counted without a try, nothing is lost."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field

import pytest

from reconsume.consumers import ConsumeMessageContext, ConsumeMessageHook, ConsumeReturnType
from reconsume.consumers.listener import (
    ConsumeConcurrentlyContext,
    ConsumeConcurrentlyStatus,
    ConsumeOrderlyContext,
    ConsumeOrderlyStatus,
    NotNow,
    SendBack,
)
from reconsume.consumers.listeners.concurrently import ConcurrentlyService
from reconsume.consumers.listeners.listener_call import Called
from reconsume.consumers.listeners.listener_pool import AsyncListenerPool
from reconsume.consumers.message import Message
from reconsume.consumers.observing.hooks import ConsumeHooks
from reconsume.consumers.partitions.process_queue import Chunk, ProcessQueue
from reconsume.consumers.sending import send_back_log
from reconsume.delay_levels.errors import SendBackFailed
from reconsume.delay_levels.wire.send_back_copy import Cause
from tests.support.waiting import wait_until
from tests.unit.consumers.doubles import Clock, RecordingWriter, RunsNothing, message_at, parts_of, safe_offset
from tests.unit.consumers.listeners.test_orderly import World

SUCCESS = ConsumeConcurrentlyStatus.CONSUME_SUCCESS
IN_ORDER = ConsumeOrderlyStatus.SUCCESS
WHY = Cause("no dep_time", "app.Rejected")


class Told(ConsumeMessageHook):
    def __init__(self) -> None:
        self.types: list[ConsumeReturnType | None] = []

    def consume_message_after(self, context: ConsumeMessageContext) -> None:
        self.types.append(context.return_type)


@dataclass
class Concurrent(RunsNothing):
    """A service whose listener does what `says` has for an offset; what it lacks succeeds."""

    batch_size: int = 1
    says: dict[int, Exception] = field(default_factory=dict)
    clock: Clock = field(default_factory=Clock)
    writer: RecordingWriter = field(default_factory=RecordingWriter)
    queue: ProcessQueue = field(default_factory=lambda: ProcessQueue("flights", 0))
    told: Told = field(default_factory=Told)
    chunks: deque[Chunk] = field(default_factory=deque)
    seen: list[int] = field(default_factory=list)

    def __post_init__(self) -> None:
        hooks = ConsumeHooks("departures", [self.told], 1_000, self.clock)
        parts = parts_of(self._listener, self.writer, self.clock, hooks)
        self.service = ConcurrentlyService(**parts, batch_size=self.batch_size)
        self.service.pool = self

    def submit(self, chunk: Chunk) -> None:
        self.chunks.append(chunk)

    def read(self, *offsets: int) -> None:
        messages = [message_at(offset) for offset in offsets]
        self.service.accept(self.queue, self.queue.begin(messages))

    def run(self) -> list[int]:
        self.seen.clear()
        while self.chunks:
            self.service.consume(self.chunks.popleft())
        return list(self.seen)

    def turn(self, at_ms: float) -> list[int]:
        self.clock.now = at_ms
        self.service.tick()
        return self.run()

    def _listener(self, messages: Sequence[Message], _context: ConsumeConcurrentlyContext) -> ConsumeConcurrentlyStatus:
        self.seen += [message.offset for message in messages]
        for message in messages:
            if message.offset in self.says:
                raise self.says[message.offset]
        return SUCCESS


def test_not_now_holds_the_partition_and_counts_nothing() -> None:
    world = Concurrent(says={0: NotNow(500)})
    world.read(0, 1, 2)
    assert world.run() == [0], "what is behind it is not begun"
    assert (world.writer.requests, safe_offset(world.queue)) == ([], 0)
    assert world.told.types == [None], "no outcome"
    assert world.service.next_due_ms() == 500
    assert world.turn(499) == []


def test_one_message_at_a_time_is_tried_and_when_it_gets_through_all_go_on() -> None:
    world = Concurrent(says={0: NotNow(500)})
    world.read(0, 1, 2)
    world.run()
    world.says = {0: NotNow(900)}
    assert world.turn(500) == [0]
    assert world.turn(899) == []
    world.says = {}
    [first] = world.turn(900)
    assert sorted([first, *world.turn(900)]) == [0, 1, 2]
    assert safe_offset(world.queue) == 3
    assert world.service.next_due_ms() is None


def test_a_message_that_never_gets_through_does_not_keep_those_behind_it_from_their_turn() -> None:
    world = Concurrent(says={0: NotNow(10)})
    world.read(0, 1)
    world.run()
    world.says = {0: NotNow(20)}
    assert world.turn(10) == [0]
    assert world.turn(20) == [1]
    assert world.turn(20) == [0]


def test_messages_that_never_get_through_do_not_keep_others_from_being_read() -> None:
    world = Concurrent(says={0: NotNow(10), 1: NotNow(10)})
    world.read(0, 1)
    world.run()
    assert not world.service.is_suspended(world.queue)
    world.read(2)
    assert world.run() == []
    assert [world.turn(10) for _ in range(3)] == [[0], [1], [2]]


def test_a_held_message_that_fails_then_lets_the_others_go_on_too() -> None:
    world = Concurrent(says={0: NotNow(10)})
    world.read(0, 1)
    world.run()
    world.says = {0: SendBack(WHY, level=4)}
    assert world.turn(10) == [0]
    assert world.turn(10) == [1]
    [request] = world.writer.requests
    assert (request.delay_level, request.cause, request.stored.reconsume_times) == (4, WHY, 0)


def test_what_was_under_way_when_the_partition_was_held_joins_it() -> None:
    world = Concurrent()
    world.read(0, 1, 2)
    first, second, third = world.chunks
    world.says = {0: NotNow(10), 1: NotNow(20)}
    context = world.service._begin(second)
    assert context is not None
    world.service.consume(first)
    world.service._settle(second, context, world_called(world.says[1]))
    world.service.consume(third)
    world.chunks.clear()
    world.says = {}
    assert world.turn(19) == [], "the latest moment holds"
    tried, rest = world.turn(20), world.turn(20)
    assert sorted(tried + rest) == [0, 1, 2]
    assert len(tried) == 1


def world_called(outcome: Exception) -> Called:
    assert isinstance(outcome, NotNow | SendBack)
    return Called(None, None, None, outcome)


def test_held_messages_are_forgotten_when_the_partition_goes_to_another_member() -> None:
    world = Concurrent(says={0: NotNow(10)})
    world.read(0, 1)
    world.run()
    world.queue.drop()
    assert world.service.leave([world.queue], lambda: 1)
    assert (world.turn(10), safe_offset(world.queue)) == ([], 0)
    assert world.service.next_due_ms() is None


def test_not_now_after_the_partition_was_lost_holds_nothing() -> None:
    world = Concurrent(says={0: NotNow(10)})
    world.read(0)
    context = world.service._begin(world.chunks[0])
    assert context is not None
    world.queue.drop()
    world.service._settle(world.chunks.popleft(), context, world_called(world.says[0]))
    assert world.service.next_due_ms() is None


def test_no_consume_timeout_runs_for_what_is_held() -> None:
    world = Concurrent(says={0: NotNow(10_000)})
    world.read(0)
    world.run()
    world.clock.now = 5_000
    world.service.expire(world.queue, 100)
    assert world.writer.requests == []


@pytest.mark.parametrize("outcome", [NotNow(10, acknowledged=2), SendBack(WHY, acknowledged=2)])
def test_the_front_of_a_batch_may_succeed_all_the_same(outcome: Exception) -> None:
    world = Concurrent(batch_size=4, says={3: outcome})
    world.read(0, 1, 2, 3)
    world.run()
    world.says = {}
    assert safe_offset(world.queue) == 2
    held = world.turn(10)
    assert (held, world.writer.origins) in [([2, 3], []), ([], ["flights/0/2", "flights/0/3"])]


def test_hooks_see_a_send_back_as_a_failure_not_as_an_exception() -> None:
    world = Concurrent(says={0: SendBack(WHY)})
    world.read(0)
    world.run()
    assert world.told.types == [ConsumeReturnType.FAILED]


def in_order(
    says: dict[int, Exception], *, per_key: bool = False, batch_size: int = 1, maximum: int | None = None
) -> World:
    def answer(offsets: list[int], _context: ConsumeOrderlyContext) -> ConsumeOrderlyStatus:
        for offset in offsets:
            if offset in says:
                raise says[offset]
        return IN_ORDER

    return World(answer, maximum, batch_size, per_key)


def test_in_order_not_now_suspends_the_lane_and_counts_nothing() -> None:
    says: dict[int, Exception] = {0: NotNow(60_000)}
    world = in_order(says).read(message_at(0), message_at(1)).run()
    assert (world.calls, world.service.is_suspended(world.queue)) == ([[0]], True)
    says.clear()
    assert world.after(59_999).calls == [[0]], "no limit of 30 s as for the users' suspensions"
    assert world.after(1).calls == [[0], [0], [1]]
    assert world.counts == [[0], [0], [0]]
    assert safe_offset(world.queue) == 2


def test_in_order_of_keys_not_now_holds_its_key_alone() -> None:
    world = in_order({0: NotNow(100)}, per_key=True)
    world.read(message_at(0, key=b"a"), message_at(1, key=b"b"), message_at(2, key=b"a")).run()
    assert world.calls == [[0], [1]]


def test_in_order_a_send_back_is_acknowledged_before_those_behind_it_go_on() -> None:
    world = in_order({0: SendBack(WHY, level=5)})
    world.read(message_at(0), message_at(1)).run()
    assert (world.calls, safe_offset(world.queue)) == ([[0]], 0)
    [request] = world.writer.requests
    assert (request.delay_level, request.max_reconsume_times, request.cause) == (5, None, WHY)
    world.writer.waiting.pop()(None)
    assert world.run().calls == [[0], [1]]
    assert safe_offset(world.queue) == 2


def test_in_order_a_send_back_that_failed_is_given_again_before_those_behind_it() -> None:
    says: dict[int, Exception] = {0: SendBack(WHY)}
    world = in_order(says)
    world.writer.answers = [SendBackFailed("no answer")]
    world.read(message_at(0), message_at(1)).run()
    says.clear()
    assert world.after(4_999).calls == [[0]]
    assert world.after(1).calls == [[0], [0], [1]]
    assert world.counts == [[0], [1], [0]]


def test_in_order_the_rest_of_a_batch_may_be_suspended_and_an_exhausted_message_tells_why(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO, send_back_log.__name__)
    says: dict[int, Exception] = {1: SendBack(WHY, acknowledged=1, suspend_ms=50)}
    world = in_order(says, batch_size=2, maximum=1)
    world.read(message_at(0), message_at(1)).run()
    assert (safe_offset(world.queue), world.writer.requests) == (1, [])
    says[1] = SendBack(WHY, suspend_ms=50)
    assert world.after(49).calls == [[0, 1]]
    assert world.after(1).calls == [[0, 1], [1]]
    assert world.counts == [[0, 0], [1]]
    [dead] = world.writer.requests
    assert (dead.delay_level, dead.cause) == (-1, WHY)
    [told] = caplog.records
    assert (told.levelname, told.getMessage().partition(": ")[2]) == (
        "INFO",
        "given again in its place, attempt 1 of 1, in 50 ms",
    )


def test_in_order_nothing_is_sent_back_from_a_partition_that_was_dropped() -> None:
    world = in_order({})
    world.answer = lambda _offsets, _context: (world.queue.drop(), raise_it(SendBack(WHY)))  # type: ignore[func-returns-value]
    world.read(message_at(0)).run()
    assert world.writer.requests == []
    assert safe_offset(world.queue) == 0


def raise_it(error: Exception) -> None:
    raise error


def test_an_async_listener_is_closed_in_its_own_loop_after_its_last_call() -> None:
    ended: list[str] = []

    async def consume(_chunk: str) -> None:
        ended.append("called")

    async def at_end() -> None:
        ended.append("closed")

    pool = AsyncListenerPool(2, consume, at_end)
    pool.submit("a")
    wait_until(lambda: ended, "it was called")
    assert pool.close(5)
    assert ended == ["called", "closed"]
