"""The level table: positions count from 1, the highest level serves all beyond it."""

from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from reconsume.delay_levels.errors import IllegalDelayLevels
from reconsume.delay_levels.rules.durations import LONGEST_MS
from reconsume.delay_levels.rules.levels import DEFAULT_LEVEL_TABLE, FIRST_RETRY_LEVEL, DelayLevels
from reconsume.delay_levels.wire.names import TopicNames

DEFAULT = DelayLevels.parse(DEFAULT_LEVEL_TABLE)
DEFAULT_SECONDS = [1, 5, 10, 30, 60, 120, 180, 240, 300, 360, 420, 480, 540, 600, 1200, 1800, 3600, 7200]


@pytest.mark.rule("LV-01", "LV-02", "LV-10")
@pytest.mark.parametrize(("level", "seconds"), list(enumerate(DEFAULT_SECONDS, start=1)))
def test_the_default_table_has_rocketmqs_18_levels(level: int, seconds: int) -> None:
    assert DEFAULT.delay_ms(level) == seconds * 1_000
    assert DEFAULT.max_level == 18


def test_the_default_table_is_written_as_it_is_read() -> None:
    assert str(DEFAULT) == DEFAULT_LEVEL_TABLE


@pytest.mark.rule("LV-10")
def test_level_l_is_entry_l_minus_1() -> None:
    table = DelayLevels.parse("7s 3s 9s")
    assert [table.delay_ms(level) for level in (1, 2, 3)] == list(table.delays_ms) == [7_000, 3_000, 9_000]


@pytest.mark.rule("LV-04")
def test_entries_need_not_be_sorted_or_distinct_and_0s_is_legal() -> None:
    table = DelayLevels.parse("2h 0s 10s 10s 1m 60s")
    assert table.delays_ms == (7_200_000, 0, 10_000, 10_000, 60_000, 60_000)


@pytest.mark.rule("LV-04")
def test_levels_of_equal_duration_share_a_delay_topic() -> None:
    table = DelayLevels.parse("1m 0s 60s 10s")
    assert table.distinct_delays_ms() == (0, 10_000, 60_000)
    names = TopicNames()
    assert names.delay(table.delay_ms(1)) == names.delay(table.delay_ms(3)) == "reconsume.DELAY.1m"


@pytest.mark.rule("LV-03")
@pytest.mark.parametrize(
    ("text", "level", "why"),
    [
        ("1s  5s", 2, "exactly one space"),
        (" 1s 5s", 1, "exactly one space"),
        ("1s 5s ", 3, "exactly one space"),
        ("", 1, "exactly one space"),
        ("1s 5", 2, "'5' is not a duration"),
        ("1s 5w", 2, "'5w' is not a duration"),
        ("1s\t5s", 1, "is not a duration"),
        ("1s,5s", 1, "is not a duration"),
        ("1s 5s\n", 2, "is not a duration"),
        ("1S 5s", 1, "'1S' is not a duration"),
        ("1s -5s", 2, "'-5s' is not a duration"),
        ("1s 1.5h", 2, "'1.5h' is not a duration"),
    ],
)
def test_a_malformed_table_is_refused_and_the_message_names_table_and_level(text: str, level: int, why: str) -> None:
    with pytest.raises(IllegalDelayLevels) as refusal:
        DelayLevels.parse(text)
    assert repr(text) in str(refusal.value)
    assert f"level {level}" in str(refusal.value)
    assert why in str(refusal.value)


@pytest.mark.rule("LV-02")
def test_a_table_knows_no_milliseconds() -> None:
    with pytest.raises(IllegalDelayLevels, match=r"level 2: '500ms' is in milliseconds; use the units s, m, h and d"):
        DelayLevels.parse("1s 500ms")


def test_a_table_cannot_be_empty() -> None:
    with pytest.raises(IllegalDelayLevels, match=f"the level table is empty.*{DEFAULT_LEVEL_TABLE}"):
        DelayLevels(())


@pytest.mark.parametrize("delay_ms", [-1, LONGEST_MS + 1])
def test_a_table_holds_delays_from_0_to_366_days(delay_ms: int) -> None:
    assert DelayLevels((0, LONGEST_MS)).delay_ms(2) == 366 * 86_400_000
    with pytest.raises(IllegalDelayLevels, match=f"a delay of {delay_ms} ms is out of range; use 0 to 366 days"):
        DelayLevels((1_000, delay_ms))


@pytest.mark.parametrize("entry", ["367d", "8785h", "999999999999d"])
def test_an_over_long_level_is_refused_as_the_other_malformed_ones_are(entry: str) -> None:
    with pytest.raises(IllegalDelayLevels, match="use 0 to 366 days") as refusal:
        DelayLevels.parse(f"1s {entry} 5s")
    assert repr(f"1s {entry} 5s") in str(refusal.value)
    assert "level 2" in str(refusal.value)


@pytest.mark.rule("DP-06")
@pytest.mark.parametrize("level", [-1, 0, 19, 999])
def test_a_level_outside_the_table_is_an_error_where_rocketmq_waits_one_second(level: int) -> None:
    with pytest.raises(IllegalDelayLevels, match=rf"delay level {level}: the level table has levels 1 to 18 \(1s 5s"):
        DEFAULT.delay_ms(level)


@pytest.mark.rule("DP-01")
@pytest.mark.parametrize(("wished", "level"), [(1, 1), (2, 2), (18, 18), (19, 18), (10**9, 18)])
def test_a_wish_beyond_the_table_is_cut_to_the_highest_level(wished: int, level: int) -> None:
    assert DEFAULT.capped(wished) == level


@pytest.mark.rule("BR-15", "GP-03", "T-06")
@pytest.mark.parametrize(
    ("sent_back", "seconds"), [(-1, 10), (0, 10), (1, 30), (2, 60), (10, 540), (15, 7200), (16, 7200), (100, 7200)]
)
def test_the_automatic_level_is_3_plus_n(sent_back: int, seconds: int) -> None:
    level = DEFAULT.automatic_level(sent_back)
    assert level == min(FIRST_RETRY_LEVEL + max(sent_back, 0), 18)
    assert DEFAULT.delay_ms(level) == seconds * 1_000


@pytest.mark.rule("DP-01", "GP-03", "T-06")
@pytest.mark.parametrize(("text", "level"), [("7s", 1), ("7s 9s", 2), ("7s 9s 11s", 3)])
@pytest.mark.parametrize("sent_back", [0, 1, 50])
def test_a_table_of_three_levels_or_fewer_always_gives_its_last(text: str, level: int, sent_back: int) -> None:
    assert DelayLevels.parse(text).automatic_level(sent_back) == level


entries = st.builds(
    "{}{}".format,
    st.integers(0, 10**6) | st.sampled_from(["", "01", "1.5", "x"]),
    st.sampled_from([*"smhdSM", "ms", ""]),
)
almost_tables = st.lists(entries, max_size=6).map(" ".join)


@pytest.mark.rule("LV-03")
@given(st.text() | almost_tables | st.text(alphabet="0159smhd "))
@example("9" * 5_000 + "s")
@example("1s\x00")
def test_any_text_is_a_table_or_illegal_and_a_table_is_read_back_equal(text: str) -> None:
    try:
        table = DelayLevels.parse(text)
    except IllegalDelayLevels:
        return
    assert DelayLevels.parse(str(table)) == table
    assert table.max_level == len(text.split(" "))


@given(st.lists(st.integers(0, LONGEST_MS), min_size=1, max_size=40), st.integers(1, 100), st.integers(0, 100))
def test_every_level_that_a_rule_chooses_has_a_delay_topic_of_its_duration(
    delays_ms: list[int], wished: int, sent_back: int
) -> None:
    table = DelayLevels(tuple(delays_ms))
    names = TopicNames()
    for level in (table.capped(wished), table.automatic_level(sent_back)):
        assert 1 <= level <= table.max_level
        assert table.delay_ms(level) in table.distinct_delays_ms()
        assert names.delay_ms(names.delay(table.delay_ms(level))) == table.delay_ms(level)


@pytest.mark.parametrize(
    ("table", "level"),
    [(DEFAULT_LEVEL_TABLE, None), ("1s", None), ("1s 1s", None), ("5s 1s", 2), ("1s 30s 10s 5s", 3)],
)
def test_the_first_level_that_is_shorter_than_the_one_before_it(table: str, level: int | None) -> None:
    assert DelayLevels.parse(table).goes_down_at == level
