"""Moments as people type them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reconsume.delay_levels.errors import IllegalSetting
from reconsume.operations.points_in_time import parse_point_in_time, point_in_time

NOW = 1_795_377_600_000.5
"""2026-11-22 20:00 UTC."""


@pytest.mark.parametrize(
    ("text", "before_now_ms"),
    [
        ("2h", 7_200_000),
        ("2026-11-22 19:59", 60_000),
        ("2026-11-22T20:59:00+01:00", 60_000),
        ("2026-11-22", 72_000_000),
    ],
)
def test_a_time_or_how_long_ago(text: str, before_now_ms: int) -> None:
    assert parse_point_in_time("--since", text, NOW) == int(NOW) - before_now_ms


@given(st.integers(0, 253_402_300_799_999))
def test_a_moment_is_read_as_it_is_written(milliseconds: int) -> None:
    assert parse_point_in_time("--since", point_in_time(milliseconds), NOW) == milliseconds


@pytest.mark.parametrize("text", ["1960-01-01", "1969-12-31 23:59:59.999"])
def test_before_1970_is_the_beginning(text: str) -> None:
    """Kafka takes a negative time for a mistake, and -1 for the end."""
    assert parse_point_in_time("--since", text, NOW) == 0


@pytest.mark.parametrize("text", ["", "yesterday", "2", "-2h", "9999-99-99"])
def test_anything_else_is_refused_with_the_way_out(text: str) -> None:
    with pytest.raises(IllegalSetting, match=r"--since .* such as 2h"):
        parse_point_in_time("--since", text, NOW)
