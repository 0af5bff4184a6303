"""Listeners that are `async def`."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest

from reconsume.consumers.listener import ConsumeConcurrentlyContext, ConsumeConcurrentlyStatus, Listener
from reconsume.consumers.listeners.listener_pool import cut_off
from reconsume.consumers.message import Message
from reconsume.consumers.partitions.process_queue import Chunk
from tests.unit.consumers.doubles import Clock, RecordingWriter, chunk_of, safe_offset, service_of

SUCCESS = ConsumeConcurrentlyStatus.CONSUME_SUCCESS


def awaited(listener: Listener) -> tuple[RecordingWriter, Chunk]:
    writer, chunk = RecordingWriter(), chunk_of(1)
    asyncio.run(service_of(listener, writer, Clock()).consume_async(chunk))
    return writer, chunk


async def fails(_messages: Sequence[Message], _context: ConsumeConcurrentlyContext) -> ConsumeConcurrentlyStatus:
    raise ValueError("no dep_time")


async def succeeds(_messages: Sequence[Message], _context: ConsumeConcurrentlyContext) -> ConsumeConcurrentlyStatus:
    return SUCCESS


async def awaits_what_was_cancelled(
    _messages: Sequence[Message], _context: ConsumeConcurrentlyContext
) -> ConsumeConcurrentlyStatus:
    inner = asyncio.ensure_future(asyncio.Event().wait())
    inner.cancel()
    await inner
    return SUCCESS


async def exits(_messages: Sequence[Message], _context: ConsumeConcurrentlyContext) -> ConsumeConcurrentlyStatus:
    raise SystemExit(1)


@pytest.mark.rule("CC-01")
@pytest.mark.parametrize("listener", [fails, awaits_what_was_cancelled, exits])
def test_what_an_async_listener_raises_means_reconsume_later(listener: Listener) -> None:
    writer, _ = awaited(listener)
    assert len(writer.requests) == 1
    assert writer.requests[0].cause is not None


def test_an_async_listener_acknowledges() -> None:
    writer, chunk = awaited(succeeds)
    assert writer.requests == []
    assert safe_offset(chunk.queue) == 1


def test_an_async_listener_that_shutdown_cancels_has_no_result() -> None:
    writer, chunk = RecordingWriter(), chunk_of(1)
    began = asyncio.Event()

    async def waits(_messages: Sequence[Message], _context: ConsumeConcurrentlyContext) -> ConsumeConcurrentlyStatus:
        began.set()
        await asyncio.Event().wait()
        return SUCCESS

    async def cancel_it() -> None:
        task = asyncio.ensure_future(service_of(waits, writer, Clock()).consume_async(chunk))
        await began.wait()
        cut_off(task)
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(cancel_it())
    assert writer.requests == []
    assert safe_offset(chunk.queue) == 0
