"""Hooks of a program: each call of its listener and each send-back is one frozen value."""

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
    """The way a listener returned (RocketMQ: ST-08)."""

    SUCCESS = "SUCCESS"
    TIME_OUT = "TIME_OUT"
    EXCEPTION = "EXCEPTION"
    RETURNNULL = "RETURNNULL"
    FAILED = "FAILED"


class SendBackTarget(enum.Enum):
    """The destination of a failed message by the send-back rule."""

    RETRY = "RETRY"
    DEAD_LETTER = "DEAD_LETTER"
    DROPPED = "DROPPED"
    """The group has no retry queues (RocketMQ: BR-04), or it broadcasts (RocketMQ: BP-01)."""
    UNDECIDED = "UNDECIDED"
    """The group is unknown in this process: the scheduler decides."""


@dataclass(frozen=True, slots=True)
class ConsumeMessageContext:
    """One call of the listener (RocketMQ: ST-08). All fields below `messages` are set after the call.

    Attributes:
        message_queue: the partition of the batch, for retries that of `%RETRY%`; the messages show the origin topic.
        success: the status was CONSUME_SUCCESS, or SUCCESS or COMMIT of an orderly listener, whatever `ack_index`
            says (RocketMQ: ST-09).
        status: the return value of the listener, or the meaning of its exception or None.
        return_type: None if the consumer was shut down before an `async def` listener returned: no outcome.
        acknowledged: the number of messages at the front that succeeded.
        elapsed_ms: the time that the listener took, in milliseconds.
        cause: the exception or invalid result; None otherwise.
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
    """One send-back, acknowledged or failed.

    Attributes:
        message: the message that the listener got.
        target: the destination by the group's settings when the send-back began.
        delay_level: the level that the copy waits on, 0 for a dead letter; the requested level if the target is open.
        reconsume_times: the count that the copy carries.
        elapsed_ms: the time until the acknowledgement or the failure, in milliseconds.
        cause: why the message failed.
        error: None after the acknowledgement; otherwise the listener gets the message again.
        waiting_share: returns the group's waiting messages as a fraction of its `maxWaiting`; 0 without a limit.
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
    """Base class for hooks: override the methods you need. Exceptions in hooks are logged and change nothing."""

    def consume_message_before(self, context: ConsumeMessageContext) -> None:
        """Before a call of the listener, in its thread or task: context variables set here hold for the call."""

    def consume_message_after(self, context: ConsumeMessageContext) -> None:
        """After a call of the listener, in its thread or task, before anything is acknowledged or sent back."""

    def send_message_back_after(self, context: SendMessageBackContext) -> None:
        """After a send-back was acknowledged or has failed; called in any thread."""


def check_hook(hook: object) -> ConsumeMessageHook:
    """Return the hook; raise `IllegalSetting` if it is not one."""
    if not isinstance(hook, ConsumeMessageHook):
        raise IllegalSetting(f"a hook must be a ConsumeMessageHook, not {hook!r}")
    for method in (hook.consume_message_before, hook.consume_message_after, hook.send_message_back_after):
        if is_async(method):
            raise IllegalSetting(f"{method.__qualname__} must be a plain function: hooks are not awaited")
    return hook


class ConsumeHooks:
    """Calls all hooks of a consumer in the order of their registration. Safe to use from several threads.

    Guarantees: no exception of a hook leaves this class, because librdkafka's callbacks and the pool's threads call it.
    Hooks hear of a send-back after the message was finished or kept.
    Test: tests/unit/consumers/listeners/test_hooks_change_nothing.py.

    Args:
        group: the consumer group.
        hooks: the hooks to call.
        timeout_ms: a longer call of the listener is a TIME_OUT.
        clock: returns milliseconds.
    """

    def __init__(
        self, group: str, hooks: Iterable[ConsumeMessageHook], timeout_ms: float, clock: Clock = monotonic_ms
    ) -> None:
        self.group = group
        self.timeout_ms = timeout_ms
        self.clock = clock
        self._hooks = [(hook, UserCallbacks("hook", clock)) for hook in hooks]

    def before(self, message_queue: MessageQueue, messages: Sequence[Message]) -> ConsumeCall:
        """Tell the hooks of a call that is about to begin; the caller must end the returned `ConsumeCall`."""
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
        """Tell the hooks that the listener returned this status, or raised; `otherwise` is the meaning of None."""
        elapsed_ms = self._hooks.clock() - self._begun
        # isinstance would read the `__class__` of an unknown value.
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
        """Tell the hooks that the consumer shut down: the call has no outcome."""
        self._end(self._hooks.clock() - self._begun)

    def _end(self, elapsed_ms: float, **outcome: Any) -> None:
        self._hooks.tell("consume_message_after", replace(self._context, elapsed_ms=elapsed_ms, **outcome))
