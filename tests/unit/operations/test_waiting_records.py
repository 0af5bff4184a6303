"""Which waiting records may be withdrawn, and delivered early."""

from __future__ import annotations

from dataclasses import replace

import pytest

from reconsume.delay_levels.errors import IllegalSetting
from reconsume.delay_levels.wire.send_back_copy import Position
from reconsume.delay_levels.wire.timer import LONGEST_DELAY_MS
from reconsume.operations.waiting import WaitingRecord, check_withdrawable

NOW = 1_700_000_000_000
MESSAGE = WaitingRecord(
    Position("reconsume.DELAY.60d", 0, 1), "delayed message", "flights", "o/0/1", "key", None, 1, None, NOW
)


def test_a_message_that_is_due_after_its_withdrawal_is_forgotten_is_not_withdrawn() -> None:
    late = replace(MESSAGE, due_ms=NOW + LONGEST_DELAY_MS * 3 // 2)
    with pytest.raises(
        IllegalSetting, match=r"DELAY\.60d/0/1 is due in 60 days; a withdrawal is remembered for 40 only"
    ):
        check_withdrawable(late, NOW)
    for now, due_ms in ((NOW + LONGEST_DELAY_MS // 2, late.due_ms), (NOW, None)):
        check_withdrawable(replace(late, due_ms=due_ms), now)
