"""The interface of listeners: RocketMQ's statuses and context."""

from __future__ import annotations

import enum
import inspect
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Final

from reconsume.consumers.message import Message, MessageQueue
from reconsume.delay_levels.errors import IllegalSetting
from reconsume.delay_levels.foreign_values import shown, whole_number
from reconsume.delay_levels.wire.send_back_copy import Cause

ALL: Final = 2**31 - 1
"""RocketMQ's default `ackIndex`: the whole batch (RocketMQ: CC-05)."""


class ConsumeConcurrentlyStatus(enum.Enum):
    """The outcome of a batch; an exception or `None` means RECONSUME_LATER (RocketMQ: CC-01, CC-02)."""

    CONSUME_SUCCESS = "CONSUME_SUCCESS"
    RECONSUME_LATER = "RECONSUME_LATER"


@dataclass(slots=True)
class ConsumeConcurrentlyContext:
    """A new one for every call of the listener (RocketMQ: CC-05).

    Attributes:
        message_queue: where the batch was read; a retry shows its `%RETRY%` topic here (RocketMQ: TN-04).
        delay_level_when_next_consume: 0 lets the group's levels decide, a higher one is taken as it is, a negative
            one asks for the dead-letter topic; for all failed messages of this batch (RocketMQ: CC-22).
        ack_index: with CONSUME_SUCCESS, the last message that succeeded; those after it are sent back. -1 sends
            all back. Ignored with RECONSUME_LATER (RocketMQ: CC-06, CC-07, CC-08, CC-10).
    """

    message_queue: MessageQueue
    delay_level_when_next_consume: int = 0
    ack_index: int = ALL


Listener = Callable[
    [Sequence[Message], ConsumeConcurrentlyContext],
    ConsumeConcurrentlyStatus | Awaitable[ConsumeConcurrentlyStatus | None] | None,
]
"""A function or an `async def`."""


class ConsumeOrderlyStatus(enum.Enum):
    """The outcome of a batch that is consumed in order; an exception or `None` means SUSPEND (RocketMQ: OR-01).

    COMMIT and ROLLBACK are for contexts with `auto_commit` off; with it on they acknowledge (RocketMQ: OR-08, OR-09).
    """

    SUCCESS = "SUCCESS"
    COMMIT = "COMMIT"
    ROLLBACK = "ROLLBACK"
    SUSPEND_CURRENT_QUEUE_A_MOMENT = "SUSPEND_CURRENT_QUEUE_A_MOMENT"


@dataclass(slots=True)
class ConsumeOrderlyContext:
    """A new one for every call of the listener.

    Attributes:
        message_queue: where the batch was read.
        auto_commit: False keeps what succeeded uncommitted until COMMIT, or gives it back at ROLLBACK.
        suspend_current_queue_time_millis: how long to wait before the batch is given again; -1 takes 1,000, anything
            else is cut to 10 to 30,000 (RocketMQ: OR-02).
    """

    message_queue: MessageQueue
    auto_commit: bool = True
    suspend_current_queue_time_millis: int = -1


OrderlyListener = Callable[
    [Sequence[Message], ConsumeOrderlyContext],
    ConsumeOrderlyStatus | Awaitable[ConsumeOrderlyStatus | None] | None,
]
"""A function or an `async def` for messages in order."""

# Listeners of ours may raise these to say more than a status can. Users' listeners do not: they have the context.


class NotNow(Exception):
    """No outcome: the messages are given again later, which counts as no attempt.

    Until then nothing else of their partition, or of their key, is begun.

    Attributes:
        until_ms: no sooner than this moment.
        acknowledged: so many messages from the front of the batch succeeded all the same.
    """

    def __init__(self, until_ms: float, acknowledged: int = 0) -> None:
        super().__init__(until_ms)
        self.until_ms = until_ms
        self.acknowledged = acknowledged


class SendBack(Exception):
    """The messages are sent back, also by an orderly listener: those behind them go on.

    Attributes:
        cause: what a dead letter shows.
        level: 0 lets the group's levels decide, a higher one is taken as it is, a negative one asks for the
            dead-letter topic.
        acknowledged: so many messages from the front of the batch succeeded all the same.
        one_by_one: the others are not sent back but given again at once, each alone.
    """

    def __init__(self, cause: Cause, level: int = 0, acknowledged: int = 0, *, one_by_one: bool = False) -> None:
        super().__init__(cause.message)
        self.cause = cause
        self.level = level
        self.acknowledged = acknowledged
        self.one_by_one = one_by_one


_SUSPEND_DEFAULT_MS: Final = 1_000
_SUSPEND_SHORTEST_MS: Final = 10
_SUSPEND_LONGEST_MS: Final = 30_000


def suspend_ms(asked: object = -1) -> int:
    """How long a suspended queue waits (RocketMQ: OR-02).

    Raises:
        IllegalSetting: it is no int.
    """
    asked_ms = whole_number(asked, "suspend_current_queue_time_millis")
    if asked_ms == -1:
        return _SUSPEND_DEFAULT_MS
    return max(_SUSPEND_SHORTEST_MS, min(asked_ms, _SUSPEND_LONGEST_MS))


def acknowledged_count(status: object, ack_index: object, size: int) -> int:
    """How many messages from the front of a batch succeeded; the others are sent back.

    Raises:
        IllegalSetting: `ack_index` below -1 (RocketMQ loses the batch until a timeout: CC-09) or no int, or a status
            that is none.
    """
    if status is ConsumeConcurrentlyStatus.RECONSUME_LATER or status is None:
        return 0
    if status is not ConsumeConcurrentlyStatus.CONSUME_SUCCESS:
        raise IllegalSetting(
            f"the listener returned {shown(status)}; return ConsumeConcurrentlyStatus.CONSUME_SUCCESS or "
            "RECONSUME_LATER"
        )
    index = whole_number(ack_index, "ack_index")
    if index < -1:
        raise IllegalSetting(f"ack_index is {index}; -1 sends the whole batch back, {size - 1} or more acknowledges it")
    return min(index + 1, size)


def is_async(function: Callable[..., object]) -> bool:
    """Whether calling it gives a coroutine; also for objects with an `async def __call__`."""
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(
        getattr(function, "__call__", None)  # noqa: B004 - not asking whether it can be called
    )
