"""Call a listener and judge what comes of it: the one place that reads what user code returns, raises and sets.

Nothing here raises what a listener does, but for the end of an `async def` one that the consumer cuts off.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any, NamedTuple, TypeVar, cast

from reconsume.consumers.hooks import ConsumeCall, ConsumeHooks
from reconsume.consumers.listener import (
    ALL,
    ConsumeConcurrentlyContext,
    ConsumeConcurrentlyStatus,
    ConsumeOrderlyContext,
    ConsumeOrderlyStatus,
    acknowledged_count,
    suspend_ms,
)
from reconsume.consumers.listener_pool import is_cut_off
from reconsume.consumers.message import Message
from reconsume.consumers.outcomes import NotNow, SendBack
from reconsume.delay_levels.errors import IllegalSetting
from reconsume.delay_levels.foreign_values import shown, type_name, whole_number
from reconsume.delay_levels.send_back import Cause

__all__ = ["Called", "call_listener", "call_listener_async", "called_with", "judged", "judged_in_order"]

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


class Judged(NamedTuple):
    """What becomes of a batch that was consumed concurrently.

    Attributes:
        acknowledged: so many messages from the front succeeded; the others are sent back.
        level: for the others.
        cause: why they failed.
    """

    acknowledged: int
    level: int
    cause: Cause | None


class JudgedInOrder(NamedTuple):
    """What becomes of a batch that was consumed in order.

    Attributes:
        status: SUSPEND_CURRENT_QUEUE_A_MOMENT for every failure.
        auto_commit: as the context says.
        wait_ms: before the batch is given again.
        cause: why it failed.
    """

    status: ConsumeOrderlyStatus
    auto_commit: bool
    wait_ms: int
    cause: Cause | None

    def acknowledged(self, size: int) -> int:
        """How many messages of a batch of this size succeeded."""
        again = self.status is ConsumeOrderlyStatus.SUSPEND_CURRENT_QUEUE_A_MOMENT
        return 0 if again or (self.status is ConsumeOrderlyStatus.ROLLBACK and not self.auto_commit) else size


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
        asyncio.CancelledError: the consumer has cut it off, which is no outcome; anything else that was cancelled is a
            failure. SystemExit is one too, because it would end the event loop.
    """
    call = None if hooks is None else hooks.before(context.message_queue, messages)
    try:
        return Called(await cast("Awaitable[object]", listener(messages, context)), None, call)
    except asyncio.CancelledError as error:
        if is_cut_off(asyncio.current_task()):
            if call is not None:
                call.cut_off()
            raise
        return called_with(error, messages, call)
    except BaseException as error:  # noqa: BLE001 - see above
        return called_with(error, messages, call)


def called_with(error: BaseException, messages: Sequence[Message], call: ConsumeCall | None) -> Called:
    """What it means that a listener raised this."""
    # isinstance would ask the error for its `__class__`.
    if issubclass(type(error), NotNow):
        return Called(None, None, call, cast("NotNow", error))
    if issubclass(type(error), SendBack):
        return Called(None, cast("SendBack", error).cause, call, cast("SendBack", error))
    with suppress(BaseException):  # the log shows the error, which may raise another one
        logger.warning("the listener failed for %r", messages, exc_info=error)
    return Called(None, Cause.of(error), call)


def judged(context: ConsumeConcurrentlyContext, called: Called, size: int) -> Judged:
    """What a concurrent listener said; what it said wrongly sends its messages back (RocketMQ: CC-06 to CC-10).

    What is not needed is not looked at: no `ack_index` of a failure, no level where all succeeded.
    """
    if isinstance(called.outcome, SendBack):
        return Judged(min(called.outcome.acknowledged, size), called.outcome.level, called.outcome.cause)
    acknowledged, level, slips = 0, 0, []
    try:
        succeeded = called.status is ConsumeConcurrentlyStatus.CONSUME_SUCCESS
        ack_index = _set_in(context, "ack_index") if succeeded else ALL
        acknowledged = acknowledged_count(called.status, ack_index, size)
    except IllegalSetting as error:
        slips.append(f"{error}; the whole batch is sent back")
    if acknowledged < size:
        try:
            level = whole_number(_set_in(context, "delay_level_when_next_consume"), "delay_level_when_next_consume")
        except IllegalSetting as error:
            slips.append(str(error))
    return Judged(acknowledged, level, _with_slips(called.cause, slips))


def judged_in_order(context: ConsumeOrderlyContext, called: Called) -> JudgedInOrder:
    """What an orderly listener said; what it said wrongly is a failure of its batch (RocketMQ: OR-01, OR-02).

    What is not needed is not looked at: no time to wait where nothing waits.
    """
    again, slips, status = ConsumeOrderlyStatus.SUSPEND_CURRENT_QUEUE_A_MOMENT, [], called.status
    auto_commit, wait_ms = True, suspend_ms()
    try:
        told = again if status is None else _orderly_status(status)
        auto_commit = _flag_in(context, "auto_commit")
        if told is again or (told is ConsumeOrderlyStatus.ROLLBACK and not auto_commit):
            wait_ms = suspend_ms(_set_in(context, "suspend_current_queue_time_millis"))
    except IllegalSetting as error:
        told, auto_commit, slips = again, True, [f"{error}; the batch is given again"]
    return JudgedInOrder(told, auto_commit, wait_ms, _with_slips(called.cause, slips))


def _orderly_status(status: object) -> ConsumeOrderlyStatus:
    if type(status) is not ConsumeOrderlyStatus:
        raise IllegalSetting(f"the listener returned {shown(status)}; return one of ConsumeOrderlyStatus")
    return status


def _flag_in(context: object, name: str) -> bool:
    flag = _set_in(context, name)
    if type(flag) is not bool:
        raise IllegalSetting(f"{name} must be a bool, got {type_name(type(flag))}")
    return flag


def _set_in(context: object, name: str) -> Any:
    try:
        return getattr(context, name)
    except BaseException as error:
        raise IllegalSetting(f"{name} cannot be read from the context: {type_name(type(error))}") from error


def _with_slips(cause: Cause | None, slips: Sequence[str]) -> Cause | None:
    """What the listener raised stays the cause; what else was wrong is told with it."""
    if not slips:
        return cause
    for slip in slips:
        with suppress(BaseException):  # a thread of the pool must not end in somebody's log handler
            logger.error("%s", slip)
    said = "; ".join(slips)
    return Cause(said) if cause is None else replace(cause, message=f"{cause.message}; {said}")
