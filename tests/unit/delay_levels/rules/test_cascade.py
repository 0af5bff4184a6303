"""The cascade of lanes: never early, ends, and takes no more lanes than it must."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reconsume.delay_levels.rules.cascade import SLACK_MS, next_delay_ms
from reconsume.delay_levels.rules.levels import DEFAULT_LEVEL_TABLE, DelayLevels
from reconsume.delay_levels.wire.timer import LONGEST_DELAY_MS

SECOND = 1_000
TABLE = DelayLevels.parse(DEFAULT_LEVEL_TABLE).distinct_delays_ms()
tables = st.sets(st.integers(100, 86_400_000), min_size=1, max_size=10)


@pytest.mark.parametrize(
    ("left_ms", "delay_ms"),
    [
        (-5, None),
        (0, None),
        (1_499, None),
        (1_500, 1 * SECOND),
        (5_499, 1 * SECOND),
        (5_500, 5 * SECOND),
        (3_600_000 + 499, 1_800 * SECOND),
        (LONGEST_DELAY_MS, 7_200 * SECOND),
    ],
)
def test_the_largest_lane_that_ends_in_time_is_next(left_ms: int, delay_ms: int | None) -> None:
    assert next_delay_ms(10_000, 10_000 + left_ms, TABLE) == delay_ms


def test_without_lanes_or_with_lanes_of_no_length_it_is_held() -> None:
    assert next_delay_ms(0, LONGEST_DELAY_MS, ()) is None
    assert next_delay_ms(0, LONGEST_DELAY_MS, (0,)) is None


def cascade(deliver_ms: int, delays_ms: set[int], late_ms: list[int]) -> tuple[int, list[int]]:
    """When the last stretch begins, and the lanes before it; lanes are late in turn by `late_ms`."""
    now, lanes = 0, list[int]()
    while (delay := next_delay_ms(now, deliver_ms, delays_ms)) is not None:
        now += delay + late_ms[len(lanes) % len(late_ms)]
        lanes.append(delay)
    return now, lanes


@pytest.mark.rule("TM-08")
@given(
    st.integers(0, LONGEST_DELAY_MS),
    tables,
    st.lists(st.integers(0, SLACK_MS), min_size=1, max_size=5),
)
def test_it_ends_before_the_moment_with_a_short_last_stretch_and_few_lanes(
    deliver_ms: int, delays_ms: set[int], late_ms: list[int]
) -> None:
    # Lanes so short that a day of them would take long to play.
    deliver_ms = min(deliver_ms, 500 * max(delays_ms))
    begins, lanes = cascade(deliver_ms, delays_ms, late_ms)
    assert begins <= deliver_ms
    assert deliver_ms - begins < min(delays_ms) + SLACK_MS
    assert lanes == sorted(lanes, reverse=True)
    table = sorted(delays_ms)
    of_the_largest = deliver_ms // table[-1]
    of_the_others = sum((larger + SLACK_MS) // smaller + 1 for smaller, larger in pairwise(table))
    assert len(lanes) <= of_the_largest + of_the_others


def test_forty_days_take_480_lanes_of_the_default_table_and_some() -> None:
    _, lanes = cascade(LONGEST_DELAY_MS, set(TABLE), [5])
    assert 480 <= len(lanes) <= 500
