"""Due times: one clock, never early."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reconsume.delay_levels.rules.due import due_ms
from reconsume.delay_levels.rules.levels import DelayLevels
from reconsume.delay_levels.wire.names import TopicNames

NOW = 1_700_000_000_000


@pytest.mark.rule("DP-05", "T-21")
@pytest.mark.parametrize(("append_ms", "delay_ms", "due"), [(NOW, 10_000, NOW + 10_000), (NOW, 0, NOW), (0, 1, 1)])
def test_due_is_append_time_plus_delay(append_ms: int, delay_ms: int, due: int) -> None:
    assert due_ms(append_ms, delay_ms) == due


@pytest.mark.rule("LV-06", "LV-07", "LV-08", "SC-10", "T-19")
def test_a_changed_table_neither_strands_nor_hurries_what_already_waits() -> None:
    names = TopicNames()
    before, after = DelayLevels.parse("10s 1m 2h"), DelayLevels.parse("1s 5s")
    waiting_on = [names.delay(delay_ms) for delay_ms in before.delays_ms]
    assert not set(before.delays_ms) & set(after.delays_ms)
    assert all(names.is_scheduled(topic) for topic in waiting_on)
    assert [due_ms(NOW, names.delay_ms(topic)) for topic in waiting_on] == [NOW + ms for ms in before.delays_ms]


@pytest.mark.rule("T-22")
@given(st.lists(st.integers(0, NOW), min_size=2).map(sorted), st.integers(0, 10**9))
def test_a_fixed_delay_keeps_the_order_of_the_append_times(appended: list[int], delay_ms: int) -> None:
    due = [due_ms(append_ms, delay_ms) for append_ms in appended]
    assert due == sorted(due)
