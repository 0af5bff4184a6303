"""Log what becomes of failed messages, without a flood of lines."""

from __future__ import annotations

import logging
import re
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Final, NamedTuple

from reconsume.bridge.groups.groups import Groups
from reconsume.bridge.process.brokers_clock import monotonic_ms
from reconsume.bridge.process.clock import Clock
from reconsume.bridge.writing.send_back import OnDone
from reconsume.consumers.message import Message
from reconsume.consumers.partitions.process_queue import ProcessQueue
from reconsume.consumers.sending.hooked_sender import decided
from reconsume.consumers.sending.senders import SendsBack
from reconsume.delay_levels.errors import SendBackFailed, SubscriptionGroupNotExist
from reconsume.delay_levels.rules.durations import format_duration
from reconsume.delay_levels.rules.send_back import DeadLetter
from reconsume.delay_levels.wire.send_back_copy import SendBackRequest

__all__ = ["UNLIMITED", "Fate", "LoggedSender", "SendBackLog", "fate_of", "given_again"]

logger = logging.getLogger(__name__)

UNLIMITED: Final = 2**31 - 1
"""The maximum of an orderly listener without one (RocketMQ: OR-03)."""
_LINES_A_SECOND: Final = 10


class Fate(NamedTuple):
    """What becomes of a failed message.

    Attributes:
        text: for people.
        is_final: the message does not come again.
    """

    text: str
    is_final: bool = False


def fate_of(request: SendBackRequest, groups: Groups) -> Fate:
    """Return what the send-back rule says of a request, with the groups as they are."""
    try:
        outcome, maximum = decided(request, groups)
    except SubscriptionGroupNotExist:
        return Fate("sent back, a scheduler decides when it is due")
    if outcome is None:
        return Fate("dropped, retryQueueNums of its group is 0 or less", is_final=True)
    if isinstance(outcome, DeadLetter):
        return Fate(f"dead letter after {_of(request.stored.reconsume_times, maximum)} retries", is_final=True)
    due = _spaced(outcome.delay_ms)
    return Fate(f"sent back, attempt {_of(outcome.reconsume_times, maximum)}, due in {due}")


def given_again(message: Message, maximum: int, wait_ms: int) -> Fate:
    """Return what becomes of a message that failed in order, and is to be tried again in its place."""
    return Fate(f"given again in its place, attempt {_of(message.reconsume_times, maximum)}, in {_spaced(wait_ms)}")


def _of(count: int, maximum: int) -> str:
    return str(count) if maximum >= UNLIMITED else f"{count} of {maximum}"


def _spaced(milliseconds: int) -> str:
    return re.sub(r"(\d+)", r"\1 ", format_duration(milliseconds))


class SendBackLog:
    """Logs what becomes of the failed messages of one group. Safe to use from several threads.

    At most 10 lines a second, and as many of messages that do not come again; the others are logged at DEBUG.

    Args:
        group: the consumer group.
        clock: gives milliseconds.
    """

    def __init__(self, group: str, clock: Clock = monotonic_ms) -> None:
        self._group = group
        self._limits = {is_final: _Limit(clock) for is_final in (False, True)}

    def tell(self, message: Message, fate: Fate, *, is_failure: bool) -> None:
        """Log one fate: as a warning if it is final or follows an error, else at INFO."""
        level = logging.WARNING if fate.is_final or is_failure else logging.INFO
        if not logger.isEnabledFor(level):
            return
        unsaid = self._limits[fate.is_final].admit()
        more = f"; {unsaid} more such lines were left out" if unsaid else ""
        admitted = logging.DEBUG if unsaid is None else level
        with suppress(BaseException):  # a log handler may raise, and the thread is the writer's or the listeners'
            logger.log(admitted, "%r of group %s: %s%s", message, self._group, fate.text, more)


class _Limit:
    """Admits so many lines in each second."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._second, self._said, self._unsaid = -1, 0, 0

    def admit(self) -> int | None:
        """Return None if a line is one too many, else how many were since the last one that was not."""
        second = int(self._clock() // 1_000)
        with self._lock:
            if second != self._second:
                self._second, self._said = second, 0
            self._said += 1
            if self._said > _LINES_A_SECOND:
                self._unsaid += 1
                return None
            unsaid, self._unsaid = self._unsaid, 0
            return unsaid


class LoggedSender:
    """Sends back through another sender, and logs what becomes of each message when that is certain.

    Args:
        sender: does it.
        log: is told.
        groups: the groups as known now.
    """

    def __init__(self, sender: SendsBack, log: SendBackLog, groups: Callable[[], Groups]) -> None:
        self._sender = sender
        self._log = log
        self._groups = groups

    def send_back(self, queue: ProcessQueue, message: Message, request: SendBackRequest, on_done: OnDone) -> None:
        """Write the send-back."""
        fate = fate_of(request, self._groups())

        def done(error: SendBackFailed | None) -> None:
            on_done(error)
            if error is None:
                self._log.tell(message, fate, is_failure=request.cause is not None)

        self._sender.send_back(queue, message, request, done)
