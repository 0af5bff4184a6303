"""Repeated calls: each is carried out once, and recent answers are remembered."""

from __future__ import annotations

import asyncio
from collections import Counter, OrderedDict
from collections.abc import Callable, Hashable
from typing import Final, Generic, NamedTuple, TypeVar

from reconsume.bridge.process.clock import Clock
from reconsume.bridge.process.safe_logger import SafeLogger
from reconsume.bridge.reading.recent_send_backs import Attempt, RecentSendBack
from reconsume.delay_levels.wire.resend import is_same_message
from reconsume.sidecar.guarding.shares import Shares, too_many_waiting
from reconsume.sidecar.problems import Problem

logger = SafeLogger(__name__)

T = TypeVar("T")

_MOST_ANSWERS: Final = 50_000
"""They take 95 MB."""
_MOST_EARLIER: Final = 200_000
"""They take 90 MB."""
_MOST_OF_A_GROUP: Final = 50_000
"""Limits one group's flood, which leaves room for the others."""


class Remembered(Generic[T]):
    """A bounded map whose values expire; the oldest goes first. Times in milliseconds.

    Args:
        keep_ms: how long a value is kept.
        most: the maximum of values.
    """

    def __init__(self, keep_ms: float, most: int) -> None:
        self._keep_ms = keep_ms
        self._most = most
        self._kept: OrderedDict[Hashable, tuple[T, float]] = OrderedDict()

    def get(self, key: Hashable, now_ms: float) -> T | None:
        """Return the value of a key; None if it is missing or expired."""
        value, until_ms = self._kept.get(key, (None, now_ms))
        return value if now_ms < until_ms else None

    def put(self, key: Hashable, value: T, now_ms: float) -> None:
        """Store a value as the newest."""
        self._kept.pop(key, None)
        self._kept[key] = value, now_ms + self._keep_ms
        while self._kept and (len(self._kept) > self._most or next(iter(self._kept.values()))[1] <= now_ms):
            self._kept.popitem(last=False)

    def __len__(self) -> int:
        return len(self._kept)


class EarlierSendBacks:
    """The send-backs of earlier processes; filled at the start, the newest first.

    Args:
        keep_ms: how long they are kept after the last one.
        has_one_group: whether one group may fill it.
        most: the maximum for all groups.
        most_of_a_group: the maximum for each of several groups.
    """

    def __init__(
        self, keep_ms: float, *, has_one_group: bool, most: int = _MOST_EARLIER, most_of_a_group: int = _MOST_OF_A_GROUP
    ) -> None:
        self._kept: dict[Attempt, RecentSendBack] = {}
        self._keep_ms = keep_ms
        self._until_ms = 0.0
        self._most = most
        self._most_of_a_group = most if has_one_group else most_of_a_group
        self._of: Counter[str] = Counter()
        self._left_out = 0

    def get(self, attempt: Attempt, now_ms: float) -> RecentSendBack | None:
        """Return the record of an attempt; None if it is too old or unknown."""
        if now_ms >= self._until_ms:
            self._kept.clear()
        return self._kept.get(attempt)

    def add(self, attempt: Attempt, written: RecentSendBack, now_ms: float) -> None:
        """Add an attempt if there is room; a copy on a delay topic has more information than one in the inbox.

        The attempt of a recreated topic's record has the identity of an old one; the later-born record counts.
        """
        self._until_ms = now_ms + self._keep_ms
        if (known := self._kept.get(attempt)) is not None:
            self._kept[attempt] = max(written, known, key=lambda one: (one.born_ms or 0, not one.in_inbox))
        elif len(self._kept) < self._most and self._of[attempt.group] < self._most_of_a_group:
            self._of[attempt.group] += 1
            self._kept[attempt] = written
        else:
            self._left_out += 1

    def log(self, minutes: float) -> None:
        """Log how many are known, and whether some are not."""
        if self._left_out:
            logger.warning(
                "%d send-backs of the last %g minutes are not remembered: memory holds %d of a group and %d in all; a "
                "repeated call for one of them makes a second copy",
                *(self._left_out, minutes, self._most_of_a_group, self._most),
            )
        logger.info("%d send-backs of the last %g minutes are known", len(self._kept), minutes)


class _Call(NamedTuple, Generic[T]):
    subject: Hashable
    born_ms: int | None
    answer: asyncio.Future[T]

    def is_replaced_by(self, subject: Hashable, born_ms: int | None) -> bool:
        """Return whether that is another record at the same place: the topic was recreated."""
        return self.subject == subject and not is_same_message(self.born_ms, born_ms)


class Once(Generic[T]):
    """Carries out each call once. All methods are for the thread of one event loop.

    Guarantees: unanswered calls of one owner leave room for the calls of others. If a caller gives up, its send-back
    still waits for Kafka, and the next call for the same attempt joins it: a 503 does not mean that the send-back was
    not stored. Test: tests/integration/sidecar/test_process.py.

    Args:
        keep_ms: how long an answer is remembered; errors are not.
        most_running: the maximum of waiting calls.
        clock: returns milliseconds.
        has_one_owner: whether one owner may use all calls, because it is the only one.
    """

    def __init__(self, keep_ms: float, most_running: int, clock: Clock, *, has_one_owner: bool = False) -> None:
        self._running: dict[Hashable, _Call[T]] = {}
        self._most_running = most_running
        self._places = Shares(most_running, has_one_owner=has_one_owner)
        self._done: Remembered[_Call[T]] = Remembered(keep_ms, _MOST_ANSWERS)
        self._clock = clock

    @property
    def running(self) -> int:
        """The number of unfinished calls, including those whose caller has given up."""
        return self._most_running - self._places.free

    async def run(
        self,
        owner: str,
        key: Hashable,
        subject: Hashable,
        begin: Callable[[], asyncio.Future[T]],
        *,
        born_ms: int | None = None,
    ) -> T:
        """Start a call, or join a running one with the same key; a caller that gives up ends nothing.

        Args:
            owner: the group or topic that the call counts for.
            key: equal in repeated calls.
            subject: the contents of the call; a key belongs to one subject.
            begin: starts the call and returns its pending future.
            born_ms: the timestamp of the record, None if unknown. Another one with the same subject is another call,
                which takes the place of the earlier one.

        Raises:
            Problem: 409, the key was used for another call; 503, too many calls wait.
            ReconsumeError: the error of the call.
        """
        call = self._running.get(key) or self._done.get(key, self._clock())
        if call is None or call.is_replaced_by(subject, born_ms):
            call = self._begin(owner, key, subject, born_ms, begin)
        if call.subject != subject:
            raise Problem(
                "idempotency-key-reused",
                "the header idempotency-key holds what an earlier call for another record or message had; take a new "
                "one",
            )
        return await asyncio.shield(call.answer)

    def _begin(
        self,
        owner: str,
        key: Hashable,
        subject: Hashable,
        born_ms: int | None,
        begin: Callable[[], asyncio.Future[T]],
    ) -> _Call[T]:
        self._take_place(owner)
        try:
            call = _Call(subject, born_ms, begin())
        except BaseException:
            self._places.give_back(owner)
            raise

        def ended(answer: asyncio.Future[T]) -> None:
            self._places.give_back(owner)
            if self._running.get(key) is not call:
                return  # another record has taken its place
            del self._running[key]
            if not answer.cancelled() and answer.exception() is None:
                self._done.put(key, call, self._clock())

        self._running[key] = call
        call.answer.add_done_callback(ended)
        return call

    def _take_place(self, owner: str) -> None:
        if self._places.take(owner):
            return
        if self._places.free:
            raise too_many_waiting(
                f"{self._places.taken_by(owner)} calls for {owner} wait for Kafka; the {self._places.free} others that "
                "sidecar.limits.records_in_flight allows are reserved for other groups and topics"
            )
        raise too_many_waiting(
            f"{self.running} calls wait for Kafka, the most that sidecar.limits.records_in_flight allows"
        )
