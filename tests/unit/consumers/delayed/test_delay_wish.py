"""When a message is to be delivered, as users say it; and the ids by which they withdraw it."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest

from reconsume.consumers.delayed.delay_wish import DelayWish
from reconsume.delay_levels.errors import IllegalSetting
from reconsume.delay_levels.wire.timer import LONGEST_DELAY_MS
from reconsume.delay_levels.wire.withdrawals import make_uniq_key, withdrawable_until_ms

NOW = 1_700_000_000_000
AT = datetime(2023, 11, 14, 22, 13, 20, tzinfo=UTC)


def wish(delay_level: int | None = None, deliver_at: Any = None, delay: timedelta | None = None) -> DelayWish:
    return DelayWish.of(delay_level, deliver_at, delay, NOW)


@pytest.mark.rule("DP-03")
@pytest.mark.parametrize("at_once", [{}, {"delay_level": 0}, {"delay_level": -1}, {"delay": timedelta(0)}])
def test_no_delay_means_at_once(at_once: dict[str, Any]) -> None:
    assert not wish(**at_once).waits


@pytest.mark.parametrize(
    ("deliver_at", "deliver_ms"),
    [
        (AT, NOW),
        (AT.astimezone(timezone(timedelta(hours=5))), NOW),
        (AT + timedelta(microseconds=1), NOW + 1),
        (AT - timedelta(days=9), NOW - 9 * 86_400_000),
        (NOW + 5, NOW + 5),
    ],
)
def test_a_moment_is_rounded_up_to_the_millisecond(deliver_at: Any, deliver_ms: int) -> None:
    assert wish(deliver_at=deliver_at) == DelayWish(deliver_ms=deliver_ms)


def test_a_delay_is_rounded_up_too() -> None:
    assert wish(delay=timedelta(microseconds=1_001)) == DelayWish(delay_ms=2)
    assert wish(delay_level=3) == DelayWish(level=3)


def test_forty_days_and_no_more() -> None:
    longest = timedelta(milliseconds=LONGEST_DELAY_MS)
    assert wish(delay=longest).delay_ms == LONGEST_DELAY_MS
    assert wish(deliver_at=AT + longest).waits
    for beyond in ({"delay": longest + timedelta(seconds=1)}, {"deliver_at": NOW + LONGEST_DELAY_MS + 1}):
        with pytest.raises(IllegalSetting, match="at most 40 days"):
            wish(**beyond)


@pytest.mark.parametrize("beyond", [{"delay": timedelta.max}, {"deliver_at": 10**400}])
def test_the_longest_values_are_refused_as_long_ones(beyond: dict[str, Any]) -> None:
    with pytest.raises(IllegalSetting, match="at most 40 days"):
        wish(**beyond)


@pytest.mark.parametrize("moment", [True, 1.5, "tomorrow"])
def test_a_moment_is_a_datetime_or_an_int(moment: Any) -> None:
    with pytest.raises(IllegalSetting, match="deliver_at must be a datetime or an int"):
        wish(deliver_at=moment)


def test_an_id_tells_until_when_it_can_be_withdrawn() -> None:
    uniq_key = make_uniq_key(NOW, bytes(range(10)))
    assert uniq_key == "018BCFE5680000010203040506070809"
    assert withdrawable_until_ms(uniq_key) == NOW


@pytest.mark.parametrize("other", ["", "7F00000100002A139A2B", "018bcfe5680000010203040506070809", "é" * 32])
def test_an_id_of_somebody_else_is_refused(other: str) -> None:
    with pytest.raises(IllegalSetting, match="is not one that send"):
        withdrawable_until_ms(other)
