"""How current the knowledge of withdrawals is."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, cast

import pytest

from reconsume.bridge.scheduler.withdrawals import cancels as module
from reconsume.bridge.scheduler.withdrawals.cancels import CancelsFollower, CancelsNotRead
from reconsume.delay_levels.wire.names import TopicNames

HOUR_MS = 3_600_000.0


class Known:
    """A follower that has read CANCEL to its end at 0, by clocks that are set by hand."""

    def __init__(self) -> None:
        self.now, self.passed = 10 * HOUR_MS, 0.0
        self.cancels = CancelsFollower({}, TopicNames(), lambda: self.now, lambda: self.passed)
        self.cancels._complete_at = (self.passed, self.now)

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


def test_on_a_machine_that_was_suspended_old_knowledge_is_no_newer() -> None:
    """The brokers' clock goes on meanwhile; that of elapsed time may not, and does not where a whole VM is paused."""
    known = Known()
    known.now += 4_000
    with pytest.raises(CancelsNotRead):
        known.cancels.require(known.now)


class Steady:
    """A reader of CANCEL, whose end is always one request further; the reading ends after `reads` steps."""

    partitions: ClassVar = [("reconsume.CANCEL", 0)]

    def __init__(self, cancels: CancelsFollower, reads: int) -> None:
        self.cancels, self.left, self.at = cancels, reads, 0

    def start(self, *_: object) -> None: ...

    def close(self) -> None: ...

    def done(self, _withdrawals: object) -> None: ...

    def is_over(self, _admin: object) -> bool:
        return False

    def read(self) -> None:
        self.at += 1
        self.left -= 1
        if not self.left:
            self.cancels._stop.set()

    def has_reached(self, ends: Mapping[Any, int]) -> bool:
        return self.at >= ends["reconsume.CANCEL", 0]

    def end_offsets(self, _partitions: object, *, uncommitted: bool) -> dict[Any, int]:
        assert uncommitted
        return {("reconsume.CANCEL", 0): self.at + 1}


def test_while_requests_arrive_all_the_time_what_was_read_is_known(monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise all delayed messages, and the retries behind them, would wait until the requests pause."""
    known = Known()
    reader = Steady(known.cancels, 10)
    monkeypatch.setattr(module, "WithdrawalsReader", lambda *_: reader)
    monkeypatch.setattr(module, "_LOOK_EVERY_SECONDS", 0.0)
    monkeypatch.setattr(known.cancels, "_has_grown", lambda *_: False)
    known.go_on(60_000)
    known.cancels._follow(cast("Any", reader))
    known.cancels.require(known.now)


def test_before_the_first_look_nothing_is_known() -> None:
    known = CancelsFollower({}, TopicNames(), lambda: HOUR_MS, lambda: 0.0)
    with pytest.raises(CancelsNotRead):
        known.require(HOUR_MS)
