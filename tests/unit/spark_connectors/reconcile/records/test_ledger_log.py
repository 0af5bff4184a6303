"""Which runs of a ledger are read."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase
from types import SimpleNamespace
from typing import Any
from unittest.mock import MagicMock

import pytest

from reconsume.spark_connectors.reconcile.records import ledger_log
from reconsume.spark_connectors.reconcile.records.ledger_log import DAY_MS, LedgerLog


class Tables:
    """The log and the compacted days of a ledger, in memory."""

    def __init__(self) -> None:
        self.rows: dict[str, list[Any]] = {"log": [], "days": []}

    def local_rows(self, _spark: object, rows: Sequence[Mapping[str, Any]], _schema: str) -> MagicMock:
        """Return a frame that adds these rows to a table when it is written."""

        def write(path: str) -> None:
            told = json.loads(json.dumps(rows), object_hook=lambda one: SimpleNamespace(**one))
            self.rows[path.split("/")[1]] += told

        frame = MagicMock()
        frame.write.mode.return_value.parquet = write
        return frame

    def read(self, _spark: object, _folder: str, table: str, days: list[str] | None, *_: str) -> list[Any]:
        return [one for one in self.rows[table] if days is None or any(fnmatchcase(_day_of(one), day) for day in days)]

    def open(self) -> LedgerLog:
        return LedgerLog.open(MagicMock(), "folder", 0, None)

    def add(self, run: int, keep_ms: int = 0) -> None:
        log = self.open()
        log.begin(run, "p.")
        log.end(run, "p.", keep_ms)

    def runs(self) -> list[int]:
        return [one.run for one in self.open().runs]


def _day_of(row: Any) -> str:
    first = row.runs[0] if hasattr(row, "runs") else row
    return ledger_log._day(getattr(first, "run", first))


@pytest.fixture
def tables(monkeypatch: pytest.MonkeyPatch) -> Tables:
    stored = Tables()
    monkeypatch.setattr(ledger_log, "_rows", stored.read)
    monkeypatch.setattr(ledger_log, "local_rows", stored.local_rows)
    monkeypatch.setattr(ledger_log, "write_rows", lambda *_: None)
    return stored


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


def test_a_compacted_day_brings_no_removed_run_back(tables: Tables) -> None:
    """Its last run kept all, the ones before it only two days."""
    day = 4 * DAY_MS
    for run in (0, DAY_MS, 2 * DAY_MS, 3 * DAY_MS, *range(day, day + 7)):
        tables.add(run, 2 * DAY_MS)
    for run in (day + 7, day + DAY_MS):
        tables.add(run)
    before = tables.runs()
    assert before[0] == 2 * DAY_MS
    assert tables.open().tidy()
    assert tables.runs() == before


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
