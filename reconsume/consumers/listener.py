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
    """The context of one call of the listener; each call gets a new one (RocketMQ: CC-05).

    Attributes:
        message_queue: the partition of the batch; for retries that of the `%RETRY%` topic (RocketMQ: TN-04).
        delay_level_when_next_consume: the level for all failed messages of this batch: 0 for the group's next level,
            above 0 exactly this level, below 0 the dead-letter topic (RocketMQ: CC-22).
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
"""A concurrent listener: a function or an `async def`."""


class ConsumeOrderlyStatus(enum.Enum):
    """The outcome of a batch that is consumed in order; an exception or `None` means SUSPEND (RocketMQ: OR-01).

    COMMIT and ROLLBACK are for `auto_commit=False`; with True both acknowledge the batch (RocketMQ: OR-08, OR-09).
    """

    SUCCESS = "SUCCESS"
    COMMIT = "COMMIT"
    ROLLBACK = "ROLLBACK"
    SUSPEND_CURRENT_QUEUE_A_MOMENT = "SUSPEND_CURRENT_QUEUE_A_MOMENT"


@dataclass(slots=True)
class ConsumeOrderlyContext:
    """The context of one call of an orderly listener; each call gets a new one.

    Attributes:
        message_queue: the partition of the batch.
        auto_commit: False keeps successful messages uncommitted until COMMIT; ROLLBACK repeats them. COMMIT
            before `pull_threshold_for_queue` messages are open: the consumer reads no more of the partition then.
        suspend_current_queue_time_millis: the wait before the next try of the batch, in milliseconds; -1 means 1,000,
            other values are limited to 10 … 30,000 (RocketMQ: OR-02).
    """

    message_queue: MessageQueue
    auto_commit: bool = True
    suspend_current_queue_time_millis: int = -1


OrderlyListener = Callable[
    [Sequence[Message], ConsumeOrderlyContext],
    ConsumeOrderlyStatus | Awaitable[ConsumeOrderlyStatus | None] | None,
]
"""An orderly listener: a function or an `async def`."""

# Internal listeners raise these to say more than a status can. Users' listeners use the context.


class NotNow(Exception):
    """No outcome: the messages are delivered again later, without counting an attempt.

    Until then no other message of their partition, or of their key, is started.

    Attributes:
        until_ms: the earliest moment of the next try.
        acknowledged: the number of messages at the front of the batch that succeeded.
    """

    def __init__(self, until_ms: float, acknowledged: int = 0) -> None:
        super().__init__(until_ms)
        self.until_ms = until_ms
        self.acknowledged = acknowledged


class SendBack(Exception):
    """Sends the messages back, also from an orderly listener; messages behind them are not held up.

    Attributes:
        cause: the cause that a dead letter shows.
        level: 0 for the group's next level, above 0 exactly this level, below 0 the dead-letter topic.
        acknowledged: the number of messages at the front of the batch that succeeded.
        one_by_one: repeat the others at once, each alone, instead of sending them back.
        suspend_ms: for orderly listeners: repeat the others in their place after this time, -1 for the default, instead
            of sending them back.
    """

    def __init__(
        self,
        cause: Cause,
        level: int = 0,
        acknowledged: int = 0,
        *,
        one_by_one: bool = False,
        suspend_ms: int | None = None,
    ) -> None:
        super().__init__(cause.message)
        self.cause = cause
        self.level = level
        self.acknowledged = acknowledged
        self.one_by_one = one_by_one
        self.suspend_ms = suspend_ms


_SUSPEND_DEFAULT_MS: Final = 1_000
_SUSPEND_SHORTEST_MS: Final = 10
_SUSPEND_LONGEST_MS: Final = 30_000


def suspend_ms(asked: object = -1) -> int:
    """Return how long a suspended queue waits, in milliseconds (RocketMQ: OR-02).

    Raises:
        IllegalSetting: not an int.
    """
    asked_ms = whole_number(asked, "suspend_current_queue_time_millis")
    if asked_ms == -1:
        return _SUSPEND_DEFAULT_MS
    return max(_SUSPEND_SHORTEST_MS, min(asked_ms, _SUSPEND_LONGEST_MS))


def acknowledged_count(status: object, ack_index: object, size: int) -> int:
    """Return how many messages at the front of a batch succeeded; the others are sent back.

    Raises:
        IllegalSetting: `ack_index` is below -1 (RocketMQ loses the batch until a timeout: CC-09) or not an int, or
            the status is unknown.
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
        raise IllegalSetting(
            f"ack_index is {index}; use -1 to send the whole batch back, {size - 1} or more to acknowledge it"
        )
    return min(index + 1, size)


def check_listener(listener: object) -> None:
    """Refuse objects whose calls can never succeed: each message would wait on all levels and become a dead letter.

    Raises:
        IllegalSetting: not a function, a generator function, or not a function of two arguments.
    """
    if not callable(listener) or isinstance(listener, type):
        raise IllegalSetting(f"the listener must be a function, not {shown(listener)}")
    if inspect.isgeneratorfunction(listener) or inspect.isasyncgenfunction(listener):
        raise IllegalSetting(f"the listener {shown(listener)} has a yield, so a call does not run it; return a status")
    try:
        # A decorator may change the arguments, whatever the wrapped function takes.
        signature = inspect.signature(listener, follow_wrapped=False)
    except (TypeError, ValueError):  # some functions of C have none
        return
    try:
        signature.bind(None, None)
    except TypeError as error:
        raise IllegalSetting(
            f"the listener {shown(listener)} must take two arguments, messages and context: {error}"
        ) from None


def check_order(*, orderly: bool, per_key: bool, has_breaker: bool) -> None:
    """Refuse options of a listener that exclude each other.

    Raises:
        IllegalSetting: `per_key` without `orderly`, or `orderly` with a circuit breaker.
    """
    if per_key and not orderly:
        raise IllegalSetting("per_key=True needs orderly=True")
    if orderly and has_breaker:
        raise IllegalSetting(
            "circuit_breaker is for concurrent listeners: an orderly listener already waits when it fails; "
            "leave out circuit_breaker or orderly=True"
        )


def is_async(function: Callable[..., object]) -> bool:
    """Return whether a call returns a coroutine; also for objects with an `async def __call__`."""
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(
        getattr(function, "__call__", None)  # noqa: B004 - not asking whether it can be called
    )
