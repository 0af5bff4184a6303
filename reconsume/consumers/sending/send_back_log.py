"""Log lines about failed messages, with a limit of their rate."""

from __future__ import annotations

import logging
import re
from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import Final, NamedTuple

from reconsume.bridge.groups.groups import Groups
from reconsume.bridge.process.brokers_clock import monotonic_ms
from reconsume.bridge.process.clock import Clock
from reconsume.bridge.process.safe_logger import LimitedLogger
from reconsume.consumers.message import Message
from reconsume.consumers.observing.hooks import SendBackTarget
from reconsume.delay_levels.errors import SendBackFailed, SubscriptionGroupNotExist
from reconsume.delay_levels.rules.durations import format_duration
from reconsume.delay_levels.rules.retry_policies import RetryPolicy
from reconsume.delay_levels.rules.send_back import Delayed, decide_send_back
from reconsume.delay_levels.wire.send_back_copy import SendBackRequest

UNLIMITED: Final = 2**31 - 1
"""The maximum of an orderly listener without one (RocketMQ: OR-03)."""


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
    """Logs what happens to the failed messages of a group. Safe to use from several threads.

    It logs at most 10 lines of each kind a second; further lines are DEBUG. Lines about messages that never return are
    a kind of their own.

    Args:
        group: the consumer group.
        clock: returns milliseconds.
    """

    def __init__(self, group: str, clock: Clock = monotonic_ms) -> None:
        self.group = group
        self._fates = {is_final: LimitedLogger(__name__, clock) for is_final in (False, True)}
        self._failures, self._slips, self._timeouts, self._refusals, self._drops = (
            LimitedLogger(__name__, clock) for _ in range(5)
        )

    def tell(self, message: Message, fate: Fate, *, is_failure: bool) -> None:
        """Log a fate, as a warning if it is final or follows an error, else at INFO."""
        level = logging.WARNING if fate.is_final or is_failure else logging.INFO
        self._fates[fate.is_final].log(level, "%r of group %s: %s", message, self.group, fate.text)

    def listener_failed(self, messages: Sequence[Message], error: BaseException) -> None:
        """Log the exception of a listener."""
        self._failures.warning("the listener failed for %r", messages, exc_info=error)

    def listener_slipped(self, slips: Iterable[str]) -> None:
        """Log invalid values that a listener returned or set."""
        for slip in slips:
            self._slips.error("%s", slip)

    def timed_out(self, message: Message, seconds: float) -> None:
        """Log that the listener has exceeded the consume timeout."""
        self._timeouts.warning("%r: its listener has run for over %.0f s; sending it back", message, seconds)

    def not_sent_back(self, message: Message, error: SendBackFailed) -> None:
        """Log a send-back that failed."""
        self._refusals.warning("%r was not sent back, its listener is called again in 5 s: %s", message, error)

    def dropped(self, message: Message, count: int) -> None:
        """Log a message that a broadcasting consumer drops."""
        self._drops.warning("broadcasting: %r failed and is dropped (%d so far)", message, count)
