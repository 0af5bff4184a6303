"""Hooks of a program: every call of its listener and every send-back is one frozen value."""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Final, cast

from reconsume.bridge.process.brokers_clock import monotonic_ms
from reconsume.bridge.process.clock import Clock
from reconsume.bridge.process.user_callbacks import UserCallbacks
from reconsume.consumers.listener import ConsumeConcurrentlyStatus, ConsumeOrderlyStatus, is_async
from reconsume.consumers.message import Message, MessageQueue
from reconsume.delay_levels.errors import IllegalSetting, SendBackFailed
from reconsume.delay_levels.foreign_values import type_name
from reconsume.delay_levels.wire.send_back_copy import Cause

_SUCCESSES: Final = (
    ConsumeConcurrentlyStatus.CONSUME_SUCCESS,
    ConsumeOrderlyStatus.SUCCESS,
    ConsumeOrderlyStatus.COMMIT,
)
ConsumeStatus = ConsumeConcurrentlyStatus | ConsumeOrderlyStatus


class ConsumeReturnType(enum.Enum):
    """How a listener came back (RocketMQ: ST-08)."""

    SUCCESS = "SUCCESS"
    TIME_OUT = "TIME_OUT"
    EXCEPTION = "EXCEPTION"
    RETURNNULL = "RETURNNULL"
    FAILED = "FAILED"


class SendBackTarget(enum.Enum):
    """Where the send-back rule takes a failed message."""

    RETRY = "RETRY"
    DEAD_LETTER = "DEAD_LETTER"
    DROPPED = "DROPPED"
    """The group has no retry queues (RocketMQ: BR-04), or it broadcasts (RocketMQ: BP-01)."""
    UNDECIDED = "UNDECIDED"
    """The group is not known here: the scheduler decides."""


@dataclass(frozen=True, slots=True)
class ConsumeMessageContext:
    """One call of the listener (RocketMQ: ST-08). All below `messages` is for after the call.

    Attributes:
        message_queue: where the batch was read; a retry shows its `%RETRY%` topic here, its messages the origin topic.
        success: the status was CONSUME_SUCCESS, or SUCCESS or COMMIT of an orderly listener, whatever `ack_index`
            says (RocketMQ: ST-09).
        status: what the listener returned; after an exception or None what that means.
        return_type: None if the consumer was shut down before an `async def` listener came back: no outcome.
        acknowledged: so many messages from the front succeeded.
        elapsed_ms: how long the listener took.
        cause: why it failed, where there was an exception or an invalid result.
    """

    group: str
    message_queue: MessageQueue
    messages: tuple[Message, ...]
    success: bool = False
    status: ConsumeStatus | None = None
    return_type: ConsumeReturnType | None = None
    acknowledged: int = 0
    elapsed_ms: float = 0.0
    cause: Cause | None = None


@dataclass(frozen=True, slots=True)
class SendMessageBackContext:
    """One message on its way back, acknowledged or failed.

    Attributes:
        message: as its listener got it.
        target: as the group stood when the send-back began.
        delay_level: the level that it waits on, 0 for a dead letter; the wish where the target is not decided.
        reconsume_times: the count that the copy carries.
        elapsed_ms: until the acknowledgement or the failure.
        cause: why the message failed.
        error: None when the brokers have acknowledged it; else its listener is called again.
        waiting_share: gives what waits for the group as a share of its `maxWaiting`, now or later; 0 without one.
    """

    group: str
    message: Message
    target: SendBackTarget
    delay_level: int
    reconsume_times: int
    elapsed_ms: float
    cause: Cause | None = None
    error: SendBackFailed | None = None
    waiting_share: Callable[[], float] = float


class ConsumeMessageHook:
    """Override what you want to be told of. What a hook raises is logged and changes nothing."""

    def consume_message_before(self, context: ConsumeMessageContext) -> None:
        """The listener is about to be called, in this thread or task: context variables set here hold for it."""

    def consume_message_after(self, context: ConsumeMessageContext) -> None:
        """The listener has come back, in the same thread or task; nothing is acknowledged or sent back yet."""

    def send_message_back_after(self, context: SendMessageBackContext) -> None:
        """A send-back is acknowledged or has failed; any thread may tell it."""


def check_hook(hook: object) -> ConsumeMessageHook:
    """The hook; raises `IllegalSetting` if it is none."""
    if not isinstance(hook, ConsumeMessageHook):
        raise IllegalSetting(f"a hook must be a ConsumeMessageHook, not {hook!r}")
    for method in (hook.consume_message_before, hook.consume_message_after, hook.send_message_back_after):
        if is_async(method):
            raise IllegalSetting(f"{method.__qualname__} must be a plain function: hooks are not awaited")
    return hook


class ConsumeHooks:
    """Tells all hooks of a consumer, in the order of their registration. Safe to use from several threads.

    Guarantees: nothing that a hook raises leaves it, for librdkafka's callbacks and the pool's threads call it. Of a
    send-back it is told after the message was finished or kept.
    Test: tests/unit/consumers/listeners/test_hooks_change_nothing.py.

    Args:
        group: the consumer group.
        hooks: what to tell.
        timeout_ms: a listener that takes as long is a TIME_OUT.
        clock: gives milliseconds.
    """

    def __init__(
        self, group: str, hooks: Iterable[ConsumeMessageHook], timeout_ms: float, clock: Clock = monotonic_ms
    ) -> None:
        self.group = group
        self.timeout_ms = timeout_ms
        self.clock = clock
        self._hooks = [(hook, UserCallbacks("hook", clock)) for hook in hooks]

    def before(self, message_queue: MessageQueue, messages: Sequence[Message]) -> ConsumeCall:
        """The listener is about to be called; its `ConsumeCall` must be ended."""
        context = ConsumeMessageContext(self.group, message_queue, tuple(messages))
        self.tell("consume_message_before", context)
        return ConsumeCall(self, context)

    def tell(self, method: str, context: ConsumeMessageContext | SendMessageBackContext) -> None:
        """Call a method of each hook."""
        for hook, calls in self._hooks:
            calls.tell(f"{type_name(type(hook))}.{method}", partial(_call, hook, method, context))


def _call(hook: ConsumeMessageHook, method: str, context: object) -> None:
    getattr(hook, method)(context)


class ConsumeCall:
    """A call of the listener that hooks were told of."""

    def __init__(self, hooks: ConsumeHooks, context: ConsumeMessageContext) -> None:
        self._hooks = hooks
        self._context = context
        self._begun = hooks.clock()

    def end(
        self, status: object, otherwise: ConsumeStatus, acknowledged: int, cause: Cause | None, *, raised: bool
    ) -> None:
        """The listener returned this status, or raised; `otherwise` is what None and no status mean."""
        elapsed_ms = self._hooks.clock() - self._begun
        # isinstance would ask a value that is no status for its `__class__`.
        is_status = type(status) in (ConsumeConcurrentlyStatus, ConsumeOrderlyStatus)
        meant = cast("ConsumeStatus", status) if is_status else otherwise
        success = cause is None and meant in _SUCCESSES
        if raised:
            return_type = ConsumeReturnType.EXCEPTION
        elif status is None:
            return_type = ConsumeReturnType.RETURNNULL
        elif elapsed_ms >= self._hooks.timeout_ms:
            return_type = ConsumeReturnType.TIME_OUT
        else:
            return_type = ConsumeReturnType.SUCCESS if success else ConsumeReturnType.FAILED
        self._end(
            elapsed_ms, success=success, status=meant, return_type=return_type, acknowledged=acknowledged, cause=cause
        )

    def cut_off(self) -> None:
        """The consumer is shut down: the listener has no outcome."""
        self._end(self._hooks.clock() - self._begun)

    def _end(self, elapsed_ms: float, **outcome: Any) -> None:
        self._hooks.tell("consume_message_after", replace(self._context, elapsed_ms=elapsed_ms, **outcome))
