"""The send-backs that processes before this one have written, so that a call that comes again is recognised."""

from __future__ import annotations

import logging
from collections import Counter
from typing import Final

from reconsume.bridge.reading.recent_send_backs import Attempt, RecentSendBack
from reconsume.sidecar.repeats.remembered import Remembered

__all__ = ["EarlierSendBacks"]

logger = logging.getLogger(__name__)

_MOST: Final = 200_000
"""90 MB of them."""
_MOST_OF_A_GROUP: Final = 50_000
"""So that one group's flood leaves room for the others."""


class EarlierSendBacks:
    """Filled at the start, the newest first.

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
