"""Whatever a listener does, its messages are sent back with that as their cause, and its thread goes on."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest

from reconsume.consumers import (
    ConsumeConcurrentlyContext,
    ConsumeConcurrentlyStatus,
    ConsumeMessageHook,
    ConsumeOrderlyStatus,
    Message,
)
from reconsume.consumers.listener import Listener
from reconsume.consumers.listeners.concurrently import ConcurrentlyService
from reconsume.consumers.listeners.listener_pool import AsyncListenerPool, ThreadListenerPool
from reconsume.consumers.listeners.orderly import OrderlyService
from reconsume.consumers.listeners.waiting_room import WaitingRoom
from reconsume.consumers.partitions.batch import PolledBatch, Reading
from reconsume.consumers.partitions.process_queue import Chunk, ProcessQueue
from tests.support.slips import IN_ANY_WAY, IN_BOTH_WAYS, IN_ORDER, RAISED, Mute, Slip, setting
from tests.support.waiting import PATIENCE, wait_until
from tests.unit.consumers import doubles
from tests.unit.consumers.doubles import RETRY_TOPIC, Clock, RecordingWriter, chunk_of, message_at, safe_offset
from tests.unit.consumers.hooked import Pool, Recording, World

SUCCESS = ConsumeConcurrentlyStatus.CONSUME_SUCCESS
CONCURRENT = IN_ANY_WAY | IN_BOTH_WAYS
SIZE = 3

each = pytest.mark.parametrize("slip", CONCURRENT.values(), ids=CONCURRENT)
each_in_order = pytest.mark.parametrize("slip", IN_ORDER.values(), ids=IN_ORDER)


def service_of(listener: Listener, writer: Any, **more: Any) -> ConcurrentlyService:
    return doubles.service_of(listener, writer, Clock(), **more)


def part_of(size: int) -> Chunk:
    """Messages as the loop hands them out that no listener had before."""
    queue = ProcessQueue("flights", 0)
    batch = PolledBatch([message_at(offset)._polled for offset in range(size)], Reading(RETRY_TOPIC, ""))
    queue.begin(batch)
    return Chunk(queue, batch)


def awaiting(slip: Slip) -> Any:
    async def listener(messages: Sequence[Message], context: Any) -> Any:
        return slip.act(messages, context)

    return listener


def all_sent_back(writer: RecordingWriter, queue: ProcessQueue, slip: Slip) -> None:
    assert writer.origins == [f"flights/0/{offset}" for offset in range(SIZE)]
    for request in writer.requests:
        assert request.cause is not None
        assert slip.cause in request.cause.message
        assert len(request.cause.message) < 20_000
        assert type(request.delay_level) is int
        assert request.delay_level == 0
    assert safe_offset(queue) == SIZE


@each
@pytest.mark.parametrize("make", [part_of, chunk_of])
def test_a_slip_sends_the_whole_batch_back(slip: Slip, make: Callable[[int], Any]) -> None:
    writer, work = RecordingWriter(answers=[None] * SIZE), make(SIZE)
    service_of(slip.act, writer).consume(work)
    all_sent_back(writer, work.queue, slip)


@each
def test_a_slip_of_an_async_listener_too(slip: Slip) -> None:
    if slip is RAISED["StopIteration"]:
        slip = Slip(slip.act, "coroutine raised StopIteration")
    writer, chunk = RecordingWriter(answers=[None] * SIZE), chunk_of(SIZE)
    asyncio.run(service_of(awaiting(slip), writer).consume_async(chunk))
    all_sent_back(writer, chunk.queue, slip)


@each
def test_hooks_are_told_of_it_as_a_failure(slip: Slip) -> None:
    hook, chunk = Recording(), chunk_of(SIZE)
    world = World([hook], writer=RecordingWriter(answers=[None] * SIZE))
    world.concurrently(slip.act).consume(chunk)
    [told] = hook.after
    assert not told.success
    assert told.acknowledged == 0
    assert told.cause is not None
    assert slip.cause in told.cause.message
    assert len(hook.sent_back) == SIZE


@each_in_order
@pytest.mark.parametrize("is_async", [False, True])
def test_a_slip_in_order_is_tried_again_in_its_place_and_is_dead_in_the_end(slip: Slip, is_async: bool) -> None:
    if is_async and slip is RAISED["StopIteration"]:
        slip = Slip(slip.act, "coroutine raised StopIteration")
    hook, clock = Recording(), Clock()
    world = World([hook], clock, RecordingWriter(answers=[None] * SIZE))
    service, pool, queue = world.orderly(awaiting(slip) if is_async else slip.act, 1), Pool(), ProcessQueue("a", 0)
    service.pool = pool
    service.accept(queue, queue.begin([message_at(offset, topic="a") for offset in range(SIZE)]))
    for suspended_ms in (1_000, None):
        run(service, pool, is_async=is_async)
        assert not hook.after[-1].success
        assert service.next_due_ms() == (None if suspended_ms is None else clock.now + suspended_ms)
        clock.now += suspended_ms or 0
        service.tick()
    assert [(request.delay_level, request.stored.reconsume_times) for request in world.writer.requests] == [(-1, 1)] * 3
    assert all(request.cause is not None and slip.cause in request.cause.message for request in world.writer.requests)
    assert safe_offset(queue) == SIZE


def run(service: OrderlyService, pool: Pool, *, is_async: bool) -> None:
    lane = pool.lanes.pop()
    if is_async:
        asyncio.run(service.consume_async(lane))
    else:
        service.consume(lane)


def test_what_is_not_needed_is_not_looked_at() -> None:
    def level_of_a_success(_messages: Sequence[Message], context: Any) -> Any:
        context.delay_level_when_next_consume = None
        return SUCCESS

    def index_of_a_failure(_messages: Sequence[Message], context: Any) -> Any:
        context.ack_index = "1"

    def wait_of_a_success(_messages: Sequence[Message], context: Any) -> Any:
        context.suspend_current_queue_time_millis = None
        return ConsumeOrderlyStatus.SUCCESS

    for work in (part_of(SIZE), chunk_of(SIZE)):
        writer = RecordingWriter(answers=[None] * SIZE)
        service_of(level_of_a_success, writer).consume(work)
        assert (writer.requests, safe_offset(work.queue)) == ([], SIZE)
    writer = RecordingWriter(answers=[None] * SIZE)
    service_of(index_of_a_failure, writer).consume(chunk_of(SIZE))
    assert [request.cause for request in writer.requests] == [None] * SIZE
    service, pool, queue = World([]).orderly(wait_of_a_success), Pool(), ProcessQueue("flights", 0)
    service.pool = pool
    service.accept(queue, queue.begin([message_at(0)]))
    service.consume(pool.lanes.pop())
    assert safe_offset(queue) == 1


def test_a_wrong_level_is_told_with_the_error_that_was_raised_and_what_succeeded_stays_done() -> None:
    def raises(_messages: Sequence[Message], context: Any) -> Any:
        context.delay_level_when_next_consume = "5"
        raise ValueError("no dep_time")

    def succeeds_in_part(_messages: Sequence[Message], context: Any) -> Any:
        context.ack_index, context.delay_level_when_next_consume = 1, 2.5
        return SUCCESS

    writer = RecordingWriter(answers=[None])
    service_of(raises, writer).consume(chunk_of(1))
    cause = writer.requests[0].cause
    assert cause is not None
    assert cause.message == "no dep_time; delay_level_when_next_consume must be an int, got str"
    assert cause.exception_class == "builtins.ValueError"
    writer, chunk = RecordingWriter(answers=[None]), chunk_of(SIZE)
    service_of(succeeds_in_part, writer).consume(chunk)
    assert (writer.origins, safe_offset(chunk.queue)) == (["flights/0/2"], SIZE)


def test_a_level_is_one_of_rocketmqs_ints() -> None:
    for level, sent in ((10**5_000, 2**31 - 1), (-(10**5_000), -(2**31)), (-1, -1), (7, 7)):
        writer, act = RecordingWriter(answers=[None]), setting("delay_level_when_next_consume", level, None)
        service_of(act, writer).consume(chunk_of(1))
        assert writer.requests[0].delay_level == sent


def test_what_a_listener_does_to_a_messages_headers_does_not_go_with_its_send_back() -> None:
    def listener(messages: Sequence[Message], _context: ConsumeConcurrentlyContext) -> None:
        messages[0].all_headers.clear()
        messages[0].headers.append(("trace", 5))  # type: ignore[arg-type]

    queue, writer = ProcessQueue("flights", 0), RecordingWriter(answers=[None])
    messages = queue.begin([message_at(0, headers=[("trace", b"1")])])
    service_of(listener, writer).consume(Chunk(queue, messages))
    assert writer.requests[0].headers == [("trace", b"1")]


class Broken(RecordingWriter):
    def write(self, *_: object) -> None:
        raise RuntimeError("a planted error")


def test_a_sender_that_raises_has_failed_and_the_listener_is_called_again() -> None:
    clock, chunk = Clock(), chunk_of(1)
    service = doubles.service_of(RAISED["no text"].act, Broken(), clock)
    service.consume(chunk)
    clock.now = 5_000
    assert [message.offset for again in doubles.given_again(service) for message in again] == [0]


class BrokenRoom(WaitingRoom):
    def settle(self, *_: object, **__: object) -> bool:
        raise RuntimeError("a planted error")


def test_after_an_error_of_ours_the_messages_are_sent_back() -> None:
    writer, chunk = RecordingWriter(answers=[None] * SIZE), chunk_of(SIZE)
    service = service_of(lambda _messages, _context: None, writer)
    service._room = BrokenRoom(Clock())
    service.consume(chunk)
    all_sent_back(writer, chunk.queue, Slip(lambda *_: None, "a planted error"))


class Careless(ConsumeMessageHook):
    """A hook that cannot even be asked for its methods."""

    def __getattribute__(self, name: str) -> Any:
        raise Mute


def test_a_hook_that_cannot_be_asked_changes_nothing() -> None:
    chunk = chunk_of(1)
    World([Careless()]).concurrently(lambda _messages, _context: SUCCESS).consume(chunk)
    assert safe_offset(chunk.queue) == 1


@pytest.fixture
def log_handlers_raise(monkeypatch: pytest.MonkeyPatch) -> None:
    def cannot(*_: object, **__: object) -> None:
        raise SystemExit(6)

    monkeypatch.setattr(logging.getLogger("reconsume.consumers.sending.send_back_log"), "handle", cannot)


@pytest.mark.usefixtures("log_handlers_raise")
def test_a_log_handler_that_raises_changes_nothing() -> None:
    for slip in (RAISED["no text"], IN_BOTH_WAYS["ack_index is -2"]):
        writer, chunk = RecordingWriter(answers=[None] * SIZE), chunk_of(SIZE)
        service_of(slip.act, writer).consume(chunk)
        all_sent_back(writer, chunk.queue, slip)


@pytest.fixture
def closing() -> Iterator[list[Any]]:
    pools: list[Any] = []
    yield pools
    for pool in pools:
        pool.close(5)


def test_no_thread_of_a_pool_dies_whatever_it_runs(closing: list[Any], caplog: pytest.LogCaptureFixture) -> None:
    done = threading.Event()

    def consume(works: Iterator[BaseException | None]) -> None:
        for work in works:
            if work is not None:
                raise work
            done.set()

    pool = ThreadListenerPool(2, consume)
    closing.append(pool)
    pool.submit_all(iter([SystemExit(1), KeyboardInterrupt(), ValueError("x"), Mute(), MemoryError()]))
    wait_until(lambda: caplog.text.count("error in a listener thread") == 5, "all have raised")
    pool.submit(None)
    assert done.wait(PATIENCE)
    assert all(thread.is_alive() for thread in pool._threads)


async def exits_in_a_task(_messages: Sequence[Message], _context: ConsumeConcurrentlyContext) -> Any:
    async def exit_it() -> None:
        raise SystemExit(7)

    await asyncio.create_task(exit_it())


async def stops_the_loop(_messages: Sequence[Message], _context: ConsumeConcurrentlyContext) -> Any:
    asyncio.get_running_loop().stop()
    await asyncio.sleep(0)
    raise ValueError("stopped")


async def cancels_itself(_messages: Sequence[Message], _context: ConsumeConcurrentlyContext) -> Any:
    task = asyncio.current_task()
    assert task is not None
    task.cancel()
    await asyncio.Event().wait()


@pytest.mark.parametrize("slip", [exits_in_a_task, stops_the_loop, cancels_itself])
def test_an_event_loop_goes_on_and_the_message_is_sent_back(slip: Any, closing: list[Any]) -> None:
    healthy = threading.Event()

    async def listener(messages: Sequence[Message], context: ConsumeConcurrentlyContext) -> Any:
        if messages[0].offset:
            healthy.set()
            return SUCCESS
        return await slip(messages, context)

    writer, queue = RecordingWriter(answers=[None]), ProcessQueue("flights", 0)
    pool = AsyncListenerPool(2, service_of(listener, writer).consume_async)
    closing.append(pool)
    for message in queue.begin([message_at(0), message_at(1)]):
        pool.submit(Chunk(queue, (message,)))
    assert healthy.wait(PATIENCE)
    wait_until(lambda: safe_offset(queue) == 2, "both are done")
    assert writer.origins == ["flights/0/0"]
    assert pool._thread.is_alive()
