"""Runs of reconcile that are refused with a ledger."""

from __future__ import annotations

import datetime as dt
from contextlib import ExitStack
from typing import Any, cast

import pytest
from pyspark.errors import PySparkException

from reconsume.delay_levels.errors import IllegalSetting
from reconsume.spark_connectors.reconcile.run import _Run, _window

LEDGER = "/data/ledger"


class ServerlessTable:
    """A table of a Spark that keeps none."""

    def persist(self) -> None:
        raise PySparkException(errorClass="NOT_IMPLEMENTED", messageParameters={"feature": "persist"})


def run_with(ledger: str | None) -> _Run:
    nothing = cast("Any", None)
    return _Run(nothing, 0, None, nothing, {}, None, ledger, None, ExitStack(), lambda _step: None)


def test_a_ledger_is_refused_where_spark_keeps_no_tables() -> None:
    """Its two tables would come from two reads of Kafka; an attempt delivered between them is in neither."""
    table = cast("Any", ServerlessTable())
    assert run_with(None).keep(table) is table
    with pytest.raises(IllegalSetting, match=rf"{LEDGER}.*persist.*NOT_IMPLEMENTED.*leave `ledger` out"):
        run_with(LEDGER).keep(table)


def test_a_run_of_a_ledger_judges_until_a_recent_time() -> None:
    """It reads deliveries to the end; the next runs know them only from runs that are named up to a day before."""
    here = dt.datetime.now(dt.UTC)
    recent, old = (here - dt.timedelta(hours=hours) for hours in (11, 13))
    assert _window(None, recent, LEDGER) == (recent, None)
    assert _window(None, old, None) == (old, None)
    with pytest.raises(IllegalSetting, match=r"more than 12 hours in the past.*leave `until` out"):
        _window(None, old, LEDGER)
