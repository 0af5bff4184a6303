"""Call a listener and take what comes of it, whichever way it wants its messages."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from typing import NamedTuple, TypeVar, cast

from reconsume.consumers.hooks import ConsumeCall, ConsumeHooks
from reconsume.consumers.listener import ConsumeConcurrentlyContext, ConsumeOrderlyContext
from reconsume.consumers.message import Message
from reconsume.consumers.outcomes import NotNow, SendBack
from reconsume.delay_levels.send_back import Cause

__all__ = ["Called", "call_listener", "call_listener_async", "called_with"]

logger = logging.getLogger(__name__)

C = TypeVar("C", ConsumeConcurrentlyContext, ConsumeOrderlyContext)


class Called(NamedTuple):
    """A listener has come back.

    Attributes:
        status: what it returned; None if it raised.
        cause: what it raised.
        call: what hooks must still be told the end of.
        outcome: what a listener of ours said instead of a status.
    """

    status: object
    cause: Cause | None
    call: ConsumeCall | None
    outcome: NotNow | SendBack | None = None


def call_listener(
    listener: Callable[[Sequence[Message], C], object],
    messages: Sequence[Message],
    context: C,
    hooks: ConsumeHooks | None,
) -> Called:
    """Call a plain listener; whatever it raises is a failure, as any Throwable is (RocketMQ: CC-01, OR-01)."""
    call = None if hooks is None else hooks.before(context.message_queue, messages)
    try:
        return Called(listener(messages, context), None, call)
    except BaseException as error:  # noqa: BLE001 - see above
        return called_with(error, messages, call)


async def call_listener_async(
    listener: Callable[[Sequence[Message], C], object],
    messages: Sequence[Message],
    context: C,
    hooks: ConsumeHooks | None,
) -> Called:
    """Call an `async def` listener.

    Raises:
        asyncio.CancelledError: the consumer is shut down, which is no outcome; anything else that was cancelled is a
            failure. SystemExit is one too, because it would end the event loop.
    """
    call = None if hooks is None else hooks.before(context.message_queue, messages)
    try:
        return Called(await cast("Awaitable[object]", listener(messages, context)), None, call)
    except BaseException as error:
        task = asyncio.current_task()
        if isinstance(error, asyncio.CancelledError) and task is not None and task.cancelling():
            if call is not None:
                call.cut_off()
            raise
        return called_with(error, messages, call)


def called_with(error: BaseException, messages: Sequence[Message], call: ConsumeCall | None) -> Called:
    """What it means that a listener raised this."""
    if isinstance(error, NotNow):
        return Called(None, None, call, error)
    if isinstance(error, SendBack):
        return Called(None, error.cause, call, error)
    logger.warning("the listener failed for %r", messages, exc_info=error)
    return Called(None, Cause.of(error), call)
