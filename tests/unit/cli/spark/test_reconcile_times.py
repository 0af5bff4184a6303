"""What `--since` and `--until` of `reconsume reconcile` mean."""

from __future__ import annotations

import datetime as dt
import time
from collections.abc import Iterator

import pytest

from reconsume.cli.spark.reconcile import _moment

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
    [("2026-11-22 19:00", 1), ("2026-11-22T19:00Z", 1), ("2026-11-22T20:00+01:00", 1), ("24h", 24)],
)
def test_a_time_is_utc_unless_it_has_an_offset(text: str, ago: int) -> None:
    assert _moment("--since", text, NOW) == NOW - dt.timedelta(hours=ago)
