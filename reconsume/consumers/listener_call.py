"""Call a listener and take what comes of it, whichever way it wants its messages."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from typing import Final, NamedTuple, TypeVar, cast

from reconsume.consumers.hooks import ConsumeCall, ConsumeHooks
from reconsume.consumers.listener import ConsumeConcurrentlyContext, ConsumeConcurrentlyStatus, ConsumeOrderlyContext
from reconsume.consumers.message import Message
from reconsume.consumers.outcomes import NotNow, SendBack
from reconsume.delay_levels.send_back import Cause

__all__ = ["SUCCEEDED", "Called", "call_listener", "call_listener_async"]

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


_SUCCESS: Final = ConsumeConcurrentlyStatus.CONSUME_SUCCESS
SUCCEEDED: Final = Called(_SUCCESS, None, None)
"""The one that is by far the most frequent, made once."""


def call_listener(
    listener: Callable[[Sequence[Message], C], object],
    messages: Sequence[Message],
    context: C,
    hooks: ConsumeHooks | None,
) -> Called:
    """Call a plain listener; whatever it raises is a failure, as any Throwable is (RocketMQ: CC-01, OR-01)."""
    call = None if hooks is None else hooks.before(context.message_queue, messages)
    try:
        status = listener(messages, context)
        return SUCCEEDED if status is _SUCCESS and call is None else Called(status, None, call)
    except (NotNow, SendBack) as outcome:
        return _with_outcome(outcome, call)
    except BaseException as error:  # noqa: BLE001 - see above
        return Called(None, _report(messages, error), call)


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
    except (NotNow, SendBack) as outcome:
        return _with_outcome(outcome, call)
    except BaseException as error:
        task = asyncio.current_task()
        if isinstance(error, asyncio.CancelledError) and task is not None and task.cancelling():
            if call is not None:
                call.cut_off()
            raise
        return Called(None, _report(messages, error), call)


def _with_outcome(outcome: NotNow | SendBack, call: ConsumeCall | None) -> Called:
    return Called(None, outcome.cause if isinstance(outcome, SendBack) else None, call, outcome)


def _report(messages: Sequence[Message], error: BaseException) -> Cause:
    logger.warning("the listener failed for %r", messages, exc_info=error)
    return Cause.of(error)
