"""Log lines about failed messages, with a limit of their rate."""

from __future__ import annotations

import logging
import re
import threading
from functools import lru_cache
from typing import Final, NamedTuple

from reconsume.bridge.groups.groups import Groups
from reconsume.bridge.process.brokers_clock import monotonic_ms
from reconsume.bridge.process.clock import Clock
from reconsume.bridge.process.safe_logger import SafeLogger
from reconsume.consumers.message import Message
from reconsume.consumers.observing.hooks import SendBackTarget
from reconsume.delay_levels.errors import SubscriptionGroupNotExist
from reconsume.delay_levels.rules.durations import format_duration
from reconsume.delay_levels.rules.retry_policies import RetryPolicy
from reconsume.delay_levels.rules.send_back import Delayed, decide_send_back
from reconsume.delay_levels.wire.send_back_copy import SendBackRequest

logger = SafeLogger(__name__)

UNLIMITED: Final = 2**31 - 1
"""The maximum of an orderly listener without one (RocketMQ: OR-03)."""
_LINES_A_SECOND: Final = 10


class Way(NamedTuple):
    """The destination of a failed message by the send-back rule and the current groups.

    Attributes:
        target: the destination.
        delay_level: the level that the copy waits on.
        reconsume_times: the count that the copy carries.
        delay_ms: the wait in milliseconds.
        maximum: how often it may be sent back.
    """

    target: SendBackTarget
    delay_level: int
    reconsume_times: int
    delay_ms: int = 0
    maximum: int = UNLIMITED


def way_of(request: SendBackRequest, groups: Groups) -> Way:
    """Return the destination of a request by the send-back rule."""
    times = request.stored.reconsume_times
    try:
        config = groups.find(request.group)
    except SubscriptionGroupNotExist:
        return Way(SendBackTarget.UNDECIDED, request.delay_level, times + 1)
    if config.retry_queue_nums <= 0:
        return dropped_way(request)
    maximum = config.retry_max_times if request.max_reconsume_times is None else request.max_reconsume_times
    return _way(times, request.delay_level, maximum, config.policy(groups.table))


@lru_cache(maxsize=1_024)
def _way(times: int, delay_level: int, maximum: int, policy: RetryPolicy) -> Way:
    outcome = decide_send_back(times, delay_level, maximum, policy)
    if isinstance(outcome, Delayed):
        return Way(SendBackTarget.RETRY, outcome.level, outcome.reconsume_times, outcome.delay_ms, maximum)
    return Way(SendBackTarget.DEAD_LETTER, 0, outcome.reconsume_times, maximum=maximum)


def dropped_way(request: SendBackRequest) -> Way:
    """Return the fate of a request that is not written."""
    return Way(SendBackTarget.DROPPED, 0, request.stored.reconsume_times)


class Fate(NamedTuple):
    """The text that the log shows about a failed message.

    Attributes:
        text: the text.
        is_final: whether the message never returns.
    """

    text: str
    is_final: bool = False


@lru_cache(maxsize=256)
def fate_of(way: Way) -> Fate:
    """Return the text for a message with this destination."""
    if way.target is SendBackTarget.UNDECIDED:
        return Fate("sent back, a scheduler decides when it is due")
    if way.target is SendBackTarget.DROPPED:
        return Fate("dropped, retryQueueNums of its group is 0 or less", is_final=True)
    if way.target is SendBackTarget.DEAD_LETTER:
        return Fate(f"dead letter after {_of(way.reconsume_times - 1, way.maximum)} retries", is_final=True)
    return Fate(f"sent back, attempt {_of(way.reconsume_times, way.maximum)}, due in {_spaced(way.delay_ms)}")


def given_again(message: Message, maximum: int, wait_ms: int) -> Fate:
    """Return the text for a message that failed in order and is repeated in place."""
    return Fate(f"given again in its place, attempt {_of(message.reconsume_times, maximum)}, in {_spaced(wait_ms)}")


def _of(count: int, maximum: int) -> str:
    return str(count) if maximum >= UNLIMITED else f"{count} of {maximum}"


def _spaced(milliseconds: int) -> str:
    return re.sub(r"(\d+)", r"\1 ", format_duration(milliseconds))


class SendBackLog:
    """Logs the outcome of each failed message of a group. Safe to use from several threads.

    It logs at most 10 lines a second, and another 10 about messages that never return; further lines are DEBUG.

    Args:
        group: the consumer group.
        clock: returns milliseconds.
    """

    def __init__(self, group: str, clock: Clock = monotonic_ms) -> None:
        self.group = group
        self._limits = {is_final: _Limit(clock) for is_final in (False, True)}

    def tell(self, message: Message, fate: Fate, *, is_failure: bool) -> None:
        """Log a fate, as a warning if it is final or follows an error, else at INFO."""
        level = logging.WARNING if fate.is_final or is_failure else logging.INFO
        if not logger.isEnabledFor(level):
            return
        unsaid = self._limits[fate.is_final].admit()
        more = f"; {unsaid} more such lines were left out" if unsaid else ""
        admitted = logging.DEBUG if unsaid is None else level
        logger.log(admitted, "%r of group %s: %s%s", message, self.group, fate.text, more)


class _Limit:
    """Admits a limited number of lines each second."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._second, self._said, self._unsaid = -1, 0, 0

    def admit(self) -> int | None:
        """Return None if the line exceeds the limit, else the number of suppressed lines before it."""
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
