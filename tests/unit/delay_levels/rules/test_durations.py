"""Durations: RocketMQ's units, and one name only for equal durations."""

from __future__ import annotations

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from reconsume.delay_levels.errors import IllegalDelayLevels
from reconsume.delay_levels.rules.durations import LONGEST_MS, format_duration, parse_duration


@pytest.mark.rule("LV-02", "LV-04")
@pytest.mark.parametrize(
    ("text", "milliseconds"),
    [
        ("0s", 0),
        ("1s", 1_000),
        ("90s", 90_000),
        ("5m", 300_000),
        ("2h", 7_200_000),
        ("3d", 259_200_000),
    ],
)
def test_a_duration_is_a_whole_number_and_a_unit(text: str, milliseconds: int) -> None:
    assert parse_duration(text) == milliseconds


def test_milliseconds_exist_for_retry_policies() -> None:
    assert parse_duration("1500ms") == 1_500


@pytest.mark.rule("LV-02", "LV-03")
@pytest.mark.parametrize(
    "text",
    ["", "10", "s", "10S", "10M", "1H", "10w", "1.5h", "-1s", "+1s", "01s", " 1s", "1s ", "1 s", "1s\n", "1s1s", "١s"],
)
def test_anything_else_is_refused_with_an_example(text: str) -> None:
    with pytest.raises(IllegalDelayLevels, match="write a whole number and one of the units") as refusal:
        parse_duration(text)
    assert repr(text) in str(refusal.value)


@pytest.mark.parametrize(
    ("milliseconds", "text"),
    [
        (0, "0s"),
        (1, "1ms"),
        (999, "999ms"),
        (1_000, "1s"),
        (1_500, "1500ms"),
        (60_000, "1m"),
        (90_000, "90s"),
        (3_600_000, "1h"),
        (5_400_000, "90m"),
        (86_400_000, "1d"),
        (90_000_000, "25h"),
    ],
)
def test_the_largest_unit_that_fits_exactly_is_written(milliseconds: int, text: str) -> None:
    assert format_duration(milliseconds) == text


def test_a_negative_delay_has_no_name() -> None:
    with pytest.raises(IllegalDelayLevels, match=r"-1 ms is out of range; use 0 to 366 days"):
        format_duration(-1)


@given(st.integers(0, LONGEST_MS))
def test_what_is_written_is_read_back(milliseconds: int) -> None:
    assert parse_duration(format_duration(milliseconds)) == milliseconds


@given(st.integers(0, 999_999_999_999), st.sampled_from(["ms", "s", "m", "h", "d"]))
def test_equal_durations_have_one_name(number: int, unit: str) -> None:
    spelled = f"{number}{unit}"
    try:
        parse_duration(spelled)
    except IllegalDelayLevels:
        assume(False)
    name = format_duration(parse_duration(spelled))
    assert parse_duration(name) == parse_duration(spelled)
    assert format_duration(parse_duration(name)) == name
    assert len(name) <= len(spelled)
