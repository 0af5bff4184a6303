"""Calls a listener and judges its outcome. Only this module reads what user code returns, raises and sets.

Guarantees: no exception of a listener leaves this module, except the cancellation of an `async def` listener by its
consumer. `isinstance`, `==`, `str` and attributes of a foreign value may run user code and are guarded too.
Tests: tests/unit/consumers/test_slips.py, tests/contract/test_slips.py.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from typing import Any, NamedTuple, TypeVar, cast

from reconsume.consumers.listener import (
    ALL,
    ConsumeConcurrentlyContext,
    ConsumeConcurrentlyStatus,
    ConsumeOrderlyContext,
    ConsumeOrderlyStatus,
    NotNow,
    SendBack,
    acknowledged_count,
    suspend_ms,
)
from reconsume.consumers.listeners.dead_letter_on import DEAD_LETTER_LEVEL, ExceptionClasses, is_listed
from reconsume.consumers.listeners.listener_pool import is_cut_off
from reconsume.consumers.message import Message
from reconsume.consumers.observing.hooks import ConsumeCall, ConsumeHooks
from reconsume.delay_levels.errors import IllegalSetting
from reconsume.delay_levels.foreign_values import shown, type_name, whole_number
from reconsume.delay_levels.wire.send_back_copy import Cause

C = TypeVar("C", ConsumeConcurrentlyContext, ConsumeOrderlyContext)


class Called(NamedTuple):
    """The result of a call.

    Attributes:
        status: the return value; None if the listener raised.
        cause: the exception as a cause.
        call: the call whose end the hooks must still be told.
        outcome: the exception of an internal listener that says more than a status.
        error: the exception itself, for the log and `dead_letter_on`.
    """

    status: object
    cause: Cause | None
    call: ConsumeCall | None
    outcome: NotNow | SendBack | None = None
    error: BaseException | None = None


class Judged(NamedTuple):
    """The verdict on a batch of a concurrent listener.

    Attributes:
        acknowledged: the number of messages at the front that succeeded; the others are sent back.
        level: the requested level of the others.
        cause: why they failed.
        one_by_one: repeat the others, each alone: only one that fails alone is a dead letter.
        slips: invalid values that the listener returned or set.
    """

    acknowledged: int
    level: int
    cause: Cause | None
    one_by_one: bool = False
    slips: Sequence[str] = ()


class JudgedInOrder(NamedTuple):
    """The verdict on a batch of an orderly listener.

    Attributes:
        status: SUSPEND_CURRENT_QUEUE_A_MOMENT for every failure.
        auto_commit: the value of the context.
        wait_ms: the wait before the next try.
        cause: why it failed.
        is_dead: send the batch to the dead-letter topic instead of trying again.
        slips: invalid values that the listener returned or set.
    """

    status: ConsumeOrderlyStatus
    auto_commit: bool
    wait_ms: int
    cause: Cause | None
    is_dead: bool = False
    slips: Sequence[str] = ()

    def acknowledged(self, size: int) -> int:
        """Return how many messages of a batch of this size succeeded."""
        again = self.status is ConsumeOrderlyStatus.SUSPEND_CURRENT_QUEUE_A_MOMENT
        return 0 if again or (self.status is ConsumeOrderlyStatus.ROLLBACK and not self.auto_commit) else size


def call_listener(
    listener: Callable[[Sequence[Message], C], object],
    messages: Sequence[Message],
    context: C,
    hooks: ConsumeHooks | None,
) -> Called:
    """Call a plain listener; every exception is a failure, as any Throwable is (RocketMQ: CC-01, OR-01)."""
    call = None if hooks is None else hooks.before(context.message_queue, messages)
    try:
        return Called(listener(messages, context), None, call)
    except BaseException as error:  # noqa: BLE001 - see above
        return called_with(error, call)


async def call_listener_async(
    listener: Callable[[Sequence[Message], C], object],
    messages: Sequence[Message],
    context: C,
    hooks: ConsumeHooks | None,
) -> Called:
    """Call an `async def` listener.

    Raises:
        asyncio.CancelledError: the consumer has cancelled the call, which is not an outcome. Any other cancellation
            is a failure, and so is SystemExit, which would end the event loop.
    """
    call = None if hooks is None else hooks.before(context.message_queue, messages)
    try:
        return Called(await cast("Awaitable[object]", listener(messages, context)), None, call)
    except asyncio.CancelledError as error:
        if is_cut_off(asyncio.current_task()):
            if call is not None:
                call.cut_off()
            raise
        return called_with(error, call)
    except BaseException as error:  # noqa: BLE001 - see above
        return called_with(error, call)


def called_with(error: BaseException, call: ConsumeCall | None) -> Called:
    """Return the verdict for an exception of a listener."""
    # isinstance would read the error's `__class__`.
    if issubclass(type(error), NotNow):
        return Called(None, None, call, cast("NotNow", error))
    if issubclass(type(error), SendBack):
        return Called(None, cast("SendBack", error).cause, call, cast("SendBack", error))
    return Called(None, Cause.of(error), call, error=error)


def judged(
    context: ConsumeConcurrentlyContext, called: Called, size: int, dead_letter_on: ExceptionClasses = ()
) -> Judged:
    """Return the verdict of a concurrent listener; an invalid one sends its messages back (RocketMQ: CC-06 to CC-10).

    Unneeded values are ignored: `ack_index` after a failure, the level after a success. A level that the listener sets
    wins over `dead_letter_on`.
    """
    if isinstance(said := called.outcome, SendBack):
        return Judged(min(said.acknowledged, size), said.level, said.cause, said.one_by_one)
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
    cause = _with_slips(called.cause, slips)
    if level != 0 or not is_listed(called.error, dead_letter_on):
        return Judged(acknowledged, level, cause, slips=slips)
    if size > 1:
        return Judged(0, 0, cause, one_by_one=True, slips=slips)
    return Judged(0, DEAD_LETTER_LEVEL, cause, slips=slips)


def judged_in_order(
    context: ConsumeOrderlyContext, called: Called, dead_letter_on: ExceptionClasses = ()
) -> JudgedInOrder:
    """Return the verdict of an orderly listener; an invalid one is a failure of its batch (RocketMQ: OR-01, OR-02).

    Unneeded values are ignored: the wait after a success. A wait that the listener sets wins over `dead_letter_on`.
    """
    again, slips, status = ConsumeOrderlyStatus.SUSPEND_CURRENT_QUEUE_A_MOMENT, [], called.status
    auto_commit, wait_ms, asked = True, suspend_ms(), -1
    try:
        told = again if status is None else _orderly_status(status)
        auto_commit = _flag_in(context, "auto_commit")
        if told is again or (told is ConsumeOrderlyStatus.ROLLBACK and not auto_commit):
            asked = _set_in(context, "suspend_current_queue_time_millis")
            wait_ms = suspend_ms(asked)
    except IllegalSetting as error:
        told, auto_commit, slips = again, True, [f"{error}; the batch is given again"]
    is_dead = not slips and asked == -1 and is_listed(called.error, dead_letter_on)
    return JudgedInOrder(told, auto_commit, wait_ms, _with_slips(called.cause, slips), is_dead, slips)


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
        raise IllegalSetting(f"reading {name} from the context raised {type_name(type(error))}") from error


def _with_slips(cause: Cause | None, slips: Sequence[str]) -> Cause | None:
    """Return the cause with the listener's further mistakes appended; its exception stays."""
    if not slips:
        return cause
    said = "; ".join(slips)
    return Cause(said) if cause is None else replace(cause, message=f"{cause.message}; {said}")
