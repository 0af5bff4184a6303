"""What was answered a while ago, by this process and by those before it, for calls that come again."""

from __future__ import annotations

import logging
from collections import Counter, OrderedDict
from collections.abc import Hashable
from typing import Final, Generic, TypeVar

from reconsume.bridge.reading.recent_send_backs import Attempt, RecentSendBack

__all__ = ["EarlierSendBacks", "Remembered"]

logger = logging.getLogger(__name__)

T = TypeVar("T")

_MOST: Final = 200_000
"""90 MB of them."""
_MOST_OF_A_GROUP: Final = 50_000
"""So that one group's flood leaves room for the others."""


class Remembered(Generic[T]):
    """Keeps each value for a while, and at most so many; the oldest goes first. Pure; times in milliseconds.

    Args:
        keep_ms: how long after it was put.
        most: how many at most.
    """

    def __init__(self, keep_ms: float, most: int) -> None:
        self._keep_ms = keep_ms
        self._most = most
        self._kept: OrderedDict[Hashable, tuple[T, float]] = OrderedDict()

    def get(self, key: Hashable, now_ms: float) -> T | None:
        """The value that was put under this key, unless that is too long ago."""
        value, until_ms = self._kept.get(key, (None, now_ms))
        return value if now_ms < until_ms else None

    def put(self, key: Hashable, value: T, now_ms: float) -> None:
        """Remember it from now on, as the newest."""
        self._kept.pop(key, None)
        self._kept[key] = value, now_ms + self._keep_ms
        while self._kept and (len(self._kept) > self._most or next(iter(self._kept.values()))[1] <= now_ms):
            self._kept.popitem(last=False)

    def __len__(self) -> int:
        return len(self._kept)


class EarlierSendBacks:
    """The send-backs that processes before this one have written; filled at the start, the newest first.

    Args:
        keep_ms: how long one is remembered.
        has_one_group: whether one group may have all places.
        most: how many of all groups.
        most_of_a_group: how many of each, where there are several.
    """

    def __init__(
        self, keep_ms: float, *, has_one_group: bool, most: int = _MOST, most_of_a_group: int = _MOST_OF_A_GROUP
    ) -> None:
        self._kept: Remembered[RecentSendBack] = Remembered(keep_ms, most)
        self._most = most
        self._most_of_a_group = most if has_one_group else most_of_a_group
        self._of: Counter[str] = Counter()
        self._left_out = 0

    def get(self, attempt: Attempt, now_ms: float) -> RecentSendBack | None:
        """What was written for an attempt, unless that is too long ago."""
        return self._kept.get(attempt, now_ms)

    def add(self, attempt: Attempt, written: RecentSendBack, now_ms: float) -> None:
        """Keep one more if there is room; a copy on a delay topic tells more than one in the inbox."""
        known = self._kept.get(attempt, now_ms)
        if known is not None:
            if not written.in_inbox:
                self._kept.put(attempt, written, now_ms)
        elif len(self._kept) < self._most and self._of[attempt.group] < self._most_of_a_group:
            self._of[attempt.group] += 1
            self._kept.put(attempt, written, now_ms)
        else:
            self._left_out += 1

    def log(self, minutes: float) -> None:
        """Say how many are known, and whether some are not."""
        if self._left_out:
            logger.warning(
                "%d send-backs of the last %g minutes are not kept: memory is for %d of a group and %d in all; calls "
                "that come again for them make a second copy",
                *(self._left_out, minutes, self._most_of_a_group, self._most),
            )
        logger.info("%d send-backs of the last %g minutes are known", len(self._kept), minutes)
