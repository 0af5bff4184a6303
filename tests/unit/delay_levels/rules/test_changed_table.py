"""What waits keeps the delay of its topic."""

from __future__ import annotations

import pytest

from reconsume.delay_levels.rules.levels import DelayLevels
from reconsume.delay_levels.wire.names import TopicNames


@pytest.mark.rule("LV-06", "LV-07", "LV-08", "SC-10", "T-19")
def test_a_changed_table_neither_strands_nor_hurries_what_already_waits() -> None:
    names = TopicNames()
    before, after = DelayLevels.parse("10s 1m 2h"), DelayLevels.parse("1s 5s")
    waiting_on = [names.delay(delay_ms) for delay_ms in before.delays_ms]
    assert not set(before.delays_ms) & set(after.delays_ms)
    assert all(names.is_scheduled(topic) for topic in waiting_on)
    assert [names.delay_ms(topic) for topic in waiting_on] == list(before.delays_ms)
