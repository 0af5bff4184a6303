"""Where a partition without an offset starts: what the arguments ask for."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone

import pytest

from reconsume.consumers import ConsumeFromWhere, PushConsumer
from reconsume.consumers.partitions.consume_from import ConsumeFrom
from reconsume.delay_levels.errors import IllegalSetting
from tests.unit.consumers.doubles import Clock

LAST = ConsumeFromWhere.CONSUME_FROM_LAST_OFFSET
FIRST = ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET
MOMENT = ConsumeFromWhere.CONSUME_FROM_TIMESTAMP


@pytest.mark.rule("TN-06", "TN-08")
@pytest.mark.parametrize(
    ("where", "from_beginning", "expected"),
    [
        (None, None, LAST),
        (None, True, FIRST),
        (None, False, LAST),
        (LAST, False, LAST),
        (FIRST, True, FIRST),
        (FIRST, None, FIRST),
    ],
)
def test_the_default_is_rocketmqs_and_conf_may_say_it_in_kafkas_words(
    where: ConsumeFromWhere | None, from_beginning: bool | None, expected: ConsumeFromWhere
) -> None:
    assert ConsumeFrom.of(where, None, from_beginning) == ConsumeFrom(expected)


@pytest.mark.parametrize(("where", "reset"), [(LAST, "earliest"), (FIRST, "latest"), (MOMENT, "earliest")])
def test_two_starts_that_contradict_each_other_are_refused(where: ConsumeFromWhere, reset: str) -> None:
    why = rf"consume_from_where {where.name} contradicts auto\.offset\.reset in conf"
    with pytest.raises(IllegalSetting, match=why):
        PushConsumer("departures", conf={"auto.offset.reset": reset}, consume_from_where=where)


@pytest.mark.rule("TN-07")
@pytest.mark.parametrize(
    "timestamp",
    [
        datetime(2026, 11, 21, 9, 30, tzinfo=UTC),
        datetime(2026, 11, 21, 10, 30, tzinfo=timezone(timedelta(hours=1))),
        datetime(2026, 11, 21, 9, 30, tzinfo=UTC).astimezone().replace(tzinfo=None),
        datetime(2026, 11, 21, 9, 30, tzinfo=UTC).astimezone().strftime("%Y%m%d%H%M%S"),
    ],
)
def test_a_timestamp_is_a_moment_or_rocketmqs_text_in_local_time(timestamp: str | datetime) -> None:
    assert ConsumeFrom.of(MOMENT, timestamp, None) == ConsumeFrom(MOMENT, 1_795_253_400_000)


def test_without_a_timestamp_it_is_half_an_hour_ago() -> None:
    assert ConsumeFrom.of(MOMENT, None, None, Clock(10_000_000)).timestamp_ms == 8_200_000


@pytest.mark.parametrize("text", ["", "2026", "2026-11-21 09:30", "20261321093000", "2026112109300", "202611210930000"])
def test_a_text_that_is_no_moment_is_refused_with_the_form(text: str) -> None:
    with pytest.raises(IllegalSetting, match=f"consume_timestamp '{text}' must be yyyyMMddHHmmss in local time"):
        ConsumeFrom.of(MOMENT, text, None)


@pytest.mark.parametrize("moment", ["00010101000000", "19691230000000", datetime(1969, 12, 31, tzinfo=UTC)])
def test_a_timestamp_before_kafkas_time_is_refused(moment: str | datetime) -> None:
    with pytest.raises(IllegalSetting, match="must be from 1970 or later"):
        ConsumeFrom.of(MOMENT, moment, None)


@pytest.mark.parametrize("where", [None, FIRST, LAST])
def test_a_timestamp_that_nothing_asks_for_is_refused(where: ConsumeFromWhere | None) -> None:
    with pytest.raises(IllegalSetting, match="consume_timestamp needs consume_from_where=CONSUME_FROM_TIMESTAMP"):
        ConsumeFrom.of(where, "20261121093000", None)
