"""What `--since` and `--until` of `reconsume reconcile` mean."""

from __future__ import annotations

import datetime as dt
import time
from collections.abc import Iterator

import pytest

from reconsume.cli.spark.reconcile import _milliseconds, _moment
from reconsume.delay_levels.errors import IllegalSetting

NOW = dt.datetime(2026, 11, 22, 20, tzinfo=dt.UTC)


@pytest.fixture(autouse=True)
def elsewhere(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A machine whose own time is eight hours ahead of UTC."""
    with monkeypatch.context() as one:
        one.setenv("TZ", "Asia/Shanghai")
        time.tzset()
        yield
    time.tzset()


@pytest.mark.parametrize(
    ("text", "ago"),
    [("2026-11-22 19:00", 1), ("2026-11-22T19:00Z", 1), ("2026-11-22T20:00+01:00", 1), ("24h", 24), ("400d", 400 * 24)],
)
def test_a_time_is_utc_unless_it_has_an_offset(text: str, ago: int) -> None:
    assert _moment("--since", text, NOW) == NOW - dt.timedelta(hours=ago)


def test_a_ledger_may_be_kept_for_longer_than_any_delay() -> None:
    assert _milliseconds("--ledger-keep", "400d") == 400 * 86_400_000
    with pytest.raises(
        IllegalSetting, match="--ledger-keep '36501d': write a duration such as 30s or 5m, at most 36500d"
    ):
        _milliseconds("--ledger-keep", "36501d")
