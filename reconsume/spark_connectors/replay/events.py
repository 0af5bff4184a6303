"""When a plan was run, and by whom: lines that are only ever added to its folder."""

from __future__ import annotations

import time
from dataclasses import asdict, dataclass
from typing import Final

from pyspark.errors import AnalysisException
from pyspark.sql import SparkSession

from reconsume.spark_connectors.local_rows import local_rows

__all__ = ["RunEvent", "add_event", "is_overtaken", "read_events"]

_SCHEMA: Final = "at BIGINT, run STRING, what STRING, sent BIGINT"


@dataclass(frozen=True, slots=True, order=True)
class RunEvent:
    """A run `started` or `finished`; `at` in milliseconds by its driver's clock."""

    at: int
    run: str
    what: str
    sent: int


def add_event(spark: SparkSession, folder: str, run: str, what: str, sent: int = 0) -> None:
    """Write one line."""
    line = RunEvent(time.time_ns() // 1_000_000, run, what, sent)
    local_rows(spark, [asdict(line)], _SCHEMA).write.mode("append").json(f"{folder}/events")


def read_events(spark: SparkSession, folder: str) -> list[RunEvent]:
    """All lines in order."""
    try:
        rows = spark.read.schema(_SCHEMA).json(f"{folder}/events").collect()
    except AnalysisException as error:
        if error.getCondition() == "PATH_NOT_FOUND":
            return []
        raise
    return sorted(RunEvent(row["at"], row["run"], row["what"], row["sent"]) for row in rows)


def is_overtaken(events: list[RunEvent], run: str) -> bool:
    """Whether another run of the plan started after this one."""
    started = [event for event in events if event.what == "started"]
    return bool(started) and started[-1].run != run
