"""Which runs of a ledger are read."""

from __future__ import annotations

from fnmatch import fnmatchcase
from types import SimpleNamespace
from typing import Any

import pytest

from reconsume.spark_connectors.reconcile.records import ledger_log
from reconsume.spark_connectors.reconcile.records.ledger_log import DAY_MS, LedgerLog


def opened(monkeypatch: pytest.MonkeyPatch, *kept_from: int) -> LedgerLog:
    """A log with a complete run on each day, which noted from which day on runs are kept."""
    rows = [
        SimpleNamespace(run=day * DAY_MS, topic_prefix="p.", kept_from=kept * DAY_MS, done=True, host="here", pid=1)
        for day, kept in enumerate(kept_from)
    ]
    tables: dict[str, list[Any]] = {"log": rows, "days": []}
    monkeypatch.setattr(ledger_log, "_rows", lambda _spark, _folder, table, *_: tables[table])
    return LedgerLog.open(SimpleNamespace(), "folder", 0, None)  # type: ignore[arg-type]


@pytest.mark.parametrize("last", [0, 2, 4])
def test_a_run_that_keeps_more_brings_no_removed_run_back(monkeypatch: pytest.MonkeyPatch, last: int) -> None:
    """Their files are gone, so that reading them would fail; 0 is a run without `ledger_keep`."""
    log = opened(monkeypatch, 0, 0, 0, 0, 2, 3, last)
    assert [one.run // DAY_MS for one in log.runs] == list(range(max(3, last), 7))


HOUR_MS = DAY_MS // 24
NOW = 20_239 * DAY_MS + 23 * HOUR_MS
"""On 2025-05-31, before the end of a month."""


@pytest.mark.parametrize("ahead_hours", [0, 2, 30, 24 * 8, 24 * 900])
def test_the_last_run_is_seen_though_the_clock_went_back(monkeypatch: pytest.MonkeyPatch, ahead_hours: int) -> None:
    """Else the next run would settle the same attempts once more."""
    last = NOW + ahead_hours * HOUR_MS
    rows = [
        SimpleNamespace(run=run, topic_prefix="p.", kept_from=0, done=True, host="here", pid=1)
        for run in (NOW - 20 * DAY_MS, NOW - DAY_MS, last)
    ]

    def stored(_spark: object, _folder: str, table: str, days: list[str] | None, *_: str) -> list[Any]:
        found = [one for one in rows if days is None or any(fnmatchcase(ledger_log._day(one.run), day) for day in days)]
        return found if table == "log" else []

    monkeypatch.setattr(ledger_log, "_rows", stored)
    log = LedgerLog.open(SimpleNamespace(), "folder", NOW, 8 * DAY_MS)  # type: ignore[arg-type]
    assert [one.run for one in log.runs] == [NOW - DAY_MS, last]
