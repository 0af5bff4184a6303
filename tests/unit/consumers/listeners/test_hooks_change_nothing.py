"""Hooks change nothing, whatever they do, and run where the listener runs."""

from __future__ import annotations

import asyncio
import contextvars
import logging
from collections.abc import Sequence
from typing import Any

import pytest

from reconsume.consumers import (
    ConsumeConcurrentlyContext,
    ConsumeConcurrentlyStatus,
    ConsumeMessageContext,
    ConsumeMessageHook,
    ConsumeOrderlyStatus,
    Message,
    PushConsumer,
    SendMessageBackContext,
)
from reconsume.consumers.listeners.listener_pool import cut_off
from reconsume.consumers.partitions.process_queue import ProcessQueue
from reconsume.delay_levels.errors import IllegalSetting
from tests.unit.consumers.doubles import RecordingWriter, chunk_of, message_at, safe_offset
from tests.unit.consumers.hooked import Pool, Recording, World, answering, consumed_in_order

SUCCESS = ConsumeConcurrentlyStatus.CONSUME_SUCCESS


class Raising(ConsumeMessageHook):
    def __init__(self, error: type[BaseException]) -> None:
        self.error = error

    def consume_message_before(self, context: ConsumeMessageContext) -> None:
        raise self.error(context)

    def consume_message_after(self, context: ConsumeMessageContext) -> None:
        raise self.error(context)

    def send_message_back_after(self, context: SendMessageBackContext) -> None:
        raise self.error(context)


@pytest.mark.rule("ST-08")
@pytest.mark.parametrize("error", [ValueError, SystemExit, KeyboardInterrupt, asyncio.CancelledError])
def test_a_hook_that_raises_changes_nothing_and_the_next_one_is_told(
    error: type[BaseException], caplog: pytest.LogCaptureFixture
) -> None:
    hook, chunk = Recording(), chunk_of(2)
    world = World([Raising(error), hook], writer=RecordingWriter(answers=[None]))
    seen: list[Message] = []

    def listener(messages: Sequence[Message], context: ConsumeConcurrentlyContext) -> ConsumeConcurrentlyStatus:
        seen.extend(messages)
        context.ack_index = 0
        return SUCCESS

    world.concurrently(listener).consume(chunk)
    assert (len(seen), world.writer.origins, safe_offset(chunk.queue)) == (2, ["flights/0/1"], 2)
    assert (len(hook.before), len(hook.after), len(hook.sent_back)) == (1, 1, 1)
    assert "hook Raising.consume_message_before raised, which changes nothing" in caplog.text


def test_a_hook_that_raises_changes_nothing_in_order() -> None:
    hook = Recording()
    consumed_in_order(World([Raising(SystemExit), hook]), ConsumeOrderlyStatus.SUCCESS)
    assert hook.after[0].acknowledged == 2


def test_what_a_hook_raises_is_logged_once_a_minute_with_how_often_it_was(caplog: pytest.LogCaptureFixture) -> None:
    world = World([Raising(ValueError)])
    service = world.concurrently(answering(SUCCESS))
    with caplog.at_level(logging.ERROR):
        service.consume(chunk_of(1))
        service.consume(chunk_of(1))
        text = "hook Raising.consume_message_before raised, which changes nothing"
        assert caplog.messages == [text]
        world.clock.now = 60_000
        service.consume(chunk_of(1))
    assert caplog.messages[1:] == [f"{text}; 3 more such lines were left out"]


VARIABLE: contextvars.ContextVar[str] = contextvars.ContextVar("VARIABLE", default="unset")


class Setting(ConsumeMessageHook):
    def __init__(self) -> None:
        self.found = ""

    def consume_message_before(self, context: ConsumeMessageContext) -> None:
        VARIABLE.set(f"offset {context.messages[0].kafka.offset}")

    def consume_message_after(self, context: ConsumeMessageContext) -> None:
        del context
        self.found = VARIABLE.get()


def test_a_context_variable_set_before_holds_in_the_listener_and_after_it() -> None:
    seen: list[str] = []
    hook = Setting()

    def listener(_messages: Sequence[Message], _context: ConsumeConcurrentlyContext) -> ConsumeConcurrentlyStatus:
        seen.append(VARIABLE.get())
        return SUCCESS

    contextvars.copy_context().run(World([hook]).concurrently(listener).consume, chunk_of(1))
    assert (seen, hook.found) == (["offset 0"], "offset 0")


def test_so_too_for_coroutines_that_run_at_once() -> None:
    seen: dict[int, str] = {}
    both = asyncio.Barrier(2)

    async def listener(messages: Sequence[Message], _context: ConsumeConcurrentlyContext) -> ConsumeConcurrentlyStatus:
        await both.wait()
        seen[messages[0].kafka.offset] = VARIABLE.get()
        return SUCCESS

    async def run_two() -> None:
        service = World([Setting()]).concurrently(listener)
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(service.consume_async(chunk_of(1)))
            tasks.create_task(service.consume_async(chunk_of(1, start=1)))

    asyncio.run(run_two())
    assert seen == {0: "offset 0", 1: "offset 1"}


@pytest.mark.parametrize("orderly", [False, True])
def test_a_listener_that_shutdown_cancels_is_told_without_an_outcome(orderly: bool) -> None:
    hook = Recording()
    world = World([hook])
    began = asyncio.Event()

    async def waits(_messages: Sequence[Message], _context: object) -> Any:
        began.set()
        await asyncio.Event().wait()

    async def cancel_it() -> None:
        if orderly:
            service, pool, queue = world.orderly(waits), Pool(), ProcessQueue("flights", 0)
            service.pool = pool
            service.accept(queue, queue.begin([message_at(0)]))
            task = asyncio.ensure_future(service.consume_async(pool.lanes.pop()))
        else:
            task = asyncio.ensure_future(world.concurrently(waits).consume_async(chunk_of(1)))
        await began.wait()
        cut_off(task)
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(cancel_it())
    [context] = hook.after
    assert (context.return_type, context.status, context.success) == (None, None, False)


class Coroutine(ConsumeMessageHook):
    async def consume_message_after(self, context: ConsumeMessageContext) -> None:  # type: ignore[override]
        """Nobody would await it."""


@pytest.mark.parametrize(
    ("hook", "what"), [(print, "must be a ConsumeMessageHook"), (Coroutine(), "must be a plain function")]
)
def test_what_is_no_hook_is_refused(hook: Any, what: str) -> None:
    with pytest.raises(IllegalSetting, match=what):
        PushConsumer("departures").register_consume_message_hook(hook)
