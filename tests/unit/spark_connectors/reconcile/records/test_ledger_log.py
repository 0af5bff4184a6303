"""Which runs of a ledger are read."""

from __future__ import annotations

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
