"""Which runs of a ledger are read."""

from __future__ import annotations

import datetime as dt
import json
import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from fnmatch import fnmatchcase
from itertools import count
from types import SimpleNamespace
from typing import Any
from unittest.mock import MagicMock

import pytest

from reconsume.spark_connectors.reconcile import run as reconcile_run
from reconsume.spark_connectors.reconcile.records import ledger_log
from reconsume.spark_connectors.reconcile.records.ledger_log import DAY_MS, LedgerLog, LedgerTaken


class Tables:
    """The log and the compacted days of a ledger, in memory.

    Attributes:
        rows: the rows by table.
        meanwhile: by "read" or "write", what other processes do within the next such step, once.
    """

    def __init__(self) -> None:
        self.rows: dict[str, list[Any]] = {"log": [], "days": []}
        self.meanwhile: dict[str, Callable[[], None]] = {}

    def local_rows(self, _spark: object, rows: Sequence[Mapping[str, Any]], _schema: str) -> MagicMock:
        """Return a frame that adds these rows to a table when it is written."""

        def write(path: str) -> None:
            self.meanwhile.pop("write", lambda: None)()
            told = json.loads(json.dumps(rows), object_hook=lambda one: SimpleNamespace(**one))
            self.rows[path.split("/")[1]] += told

        frame = MagicMock()
        frame.write.mode.return_value.parquet = write
        return frame

    def read(self, _spark: object, _folder: str, table: str, days: list[str] | None, *_: str) -> list[Any]:
        rows = [one for one in self.rows[table] if days is None or any(fnmatchcase(_day_of(one), day) for day in days)]
        if table == "log":
            self.meanwhile.pop("read", lambda: None)()
        return rows

    def open(self) -> LedgerLog:
        return LedgerLog.open(MagicMock(), "folder", 0, None)

    def begin(self, run: int) -> LedgerLog:
        log = self.open()
        log.begin(run, "p.")
        return log

    def add(self, run: int, keep_ms: int = 0) -> None:
        self.begin(run).end(run, "p.", keep_ms)

    def runs(self) -> list[int]:
        return [one.run for one in self.open().runs]


def _day_of(row: Any) -> str:
    return ledger_log._day((row.log[0] if hasattr(row, "log") else row).run)


@pytest.fixture
def tables(monkeypatch: pytest.MonkeyPatch) -> Tables:
    stored = Tables()
    monkeypatch.setattr(ledger_log, "_rows", stored.read)
    monkeypatch.setattr(ledger_log, "local_rows", stored.local_rows)
    monkeypatch.setattr(ledger_log, "write_rows", lambda *_: None)
    monkeypatch.setattr(ledger_log, "_now_ms", count(1).__next__)
    return stored


def complete(run: int, kept_from: int = 0) -> SimpleNamespace:
    """The row of a complete run."""
    told = {"noted_ms": run, "topic_prefix": "p.", "kept_from": kept_from, "done": True, "host": "here", "pid": 1}
    return SimpleNamespace(run=run, name=str(run), continues=f"before {run}", **told)


@pytest.mark.parametrize("last", [0, 2, 4])
def test_a_run_that_keeps_more_brings_no_removed_run_back(tables: Tables, last: int) -> None:
    """Their files are gone, so that reading them would fail; 0 is a run without `ledger_keep`."""
    for day, kept in enumerate((0, 0, 0, 0, 2, 3, last)):
        tables.rows["log"].append(complete(day * DAY_MS, kept * DAY_MS))
    assert [run // DAY_MS for run in tables.runs()] == list(range(max(3, last), 7))


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


@pytest.mark.parametrize("others", [(20,), (20, 30)], ids=["another run", "two runs"])
@pytest.mark.parametrize("step", ["read", "write"])
@pytest.mark.parametrize("first", [True, False], ids=["first run", "later run"])
def test_of_two_runs_that_end_at_once_readers_take_one(
    tables: Tables, step: str, others: tuple[int, ...], first: bool
) -> None:
    """The other run, and one that continues it, end between the check of this run and its row in the log."""
    before = [] if first else [1]
    for run in before:
        tables.add(run)
    log, other = tables.begin(10), tables.begin(others[0])

    def meanwhile() -> None:
        other.end(others[0], "p.", 0)
        for run in others[1:]:
            tables.add(run)

    tables.meanwhile[step] = meanwhile
    if step == "read":
        with pytest.raises(LedgerTaken, match="so this run was not added"):
            log.end(10, "p.", 0)
        assert tables.runs() == [*before, *others]
    else:  # its row has the earlier time
        log.end(10, "p.", 0)
        assert tables.runs() == [*before, 10]
    tables.add(40)
    assert tables.runs()[-1] == 40


@pytest.mark.parametrize("step", ["read", "write"])
def test_a_run_that_readers_ignore_does_not_come_back_when_a_day_is_compacted(tables: Tables, step: str) -> None:
    """The two runs are of different days."""
    for run in range(8):
        tables.add(run)
    log, other = tables.begin(8), tables.begin(DAY_MS + 1)
    tables.meanwhile[step] = lambda: other.end(DAY_MS + 1, "p.", 0)
    with suppress(LedgerTaken):
        log.end(8, "p.", 0)
    tables.add(DAY_MS + 2)
    before = tables.runs()
    assert len(before) == 10
    assert tables.open().tidy()
    assert tables.runs() == before


@pytest.mark.parametrize("step", ["compacting", "reading the topics"])
def test_a_run_that_fails_in_a_process_that_lives_on_keeps_no_other_process_out(
    tables: Tables, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    """A notebook, or `--follow`, which waits for its next run."""
    now, levels = dt.datetime.now(dt.UTC), MagicMock()
    levels.with_topics.return_value.longest_ms = 0

    def fail(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(reconcile_run, "read_level_tables", lambda *_: levels)
    monkeypatch.setattr(*((LedgerLog, "tidy", fail) if step == "compacting" else (reconcile_run._Run, "pairs", fail)))
    with monkeypatch.context() as other:
        other.setattr("os.getpid", os.getppid)
        with pytest.raises(KeyboardInterrupt):
            reconcile_run.reconcile(MagicMock(), "localhost:9092", topic_prefix="p.", ledger="folder", until=now)
    assert tables.rows["log"][0].pid == os.getppid()
    tables.begin(int(now.timestamp() * 1_000))


HOUR_MS = DAY_MS // 24
NOW = 20_239 * DAY_MS + 23 * HOUR_MS
"""On 2025-05-31, before the end of a month."""


@pytest.mark.parametrize("ahead_hours", [0, 2, 30, 24 * 8, 24 * 900])
def test_the_last_run_is_seen_though_the_clock_went_back(tables: Tables, ahead_hours: int) -> None:
    """Else the next run would settle the same attempts once more."""
    last = NOW + ahead_hours * HOUR_MS
    tables.rows["log"] += [complete(run) for run in (NOW - 20 * DAY_MS, NOW - DAY_MS, last)]
    log = LedgerLog.open(MagicMock(), "folder", NOW, 8 * DAY_MS)
    assert [one.run for one in log.runs] == [NOW - DAY_MS, last]
