"""How current the knowledge of withdrawals is."""

from __future__ import annotations

import pytest

from reconsume.bridge.scheduler.withdrawals.cancels import CancelsFollower, CancelsNotRead
from reconsume.delay_levels.wire.names import TopicNames

HOUR_MS = 3_600_000.0


class Known:
    """A follower that has read CANCEL to its end at 0, by clocks that are set by hand."""

    def __init__(self) -> None:
        self.now, self.passed = 10 * HOUR_MS, 0.0
        self.cancels = CancelsFollower({}, TopicNames(), lambda: self.now, lambda: self.passed)
        self.cancels._complete_at = 0.0

    def go_on(self, ms: float) -> None:
        self.now += ms
        self.passed += ms


def test_a_message_is_held_if_withdrawals_were_not_read_in_the_last_second_before_it() -> None:
    known = Known()
    known.go_on(1_000)
    known.cancels.require(known.now)
    known.go_on(1)
    with pytest.raises(CancelsNotRead):
        known.cancels.require(known.now)


def test_a_clock_that_is_set_back_makes_old_knowledge_no_newer() -> None:
    known = Known()
    known.now -= HOUR_MS
    known.go_on(60_000)
    with pytest.raises(CancelsNotRead):
        known.cancels.require(known.now)


def test_before_the_first_look_nothing_is_known() -> None:
    known = CancelsFollower({}, TopicNames(), lambda: HOUR_MS, lambda: 0.0)
    with pytest.raises(CancelsNotRead):
        known.require(HOUR_MS)
