"""The runs of a ledger, and the files with their rows; an old ledger does not make runs slower.

    log/day=…            a row for each started run, and one more when it is complete, or failed (`done` is null)
    days/day=…           for a day whose runs were compacted: its runs
    settled/day=…/run=…  attempts that a run settled, in the order of `bucket`; each run has a name of its own
    compacted/day=…/…    the same for a day with many runs; `days` has the folder
    open/day=…/run=…     attempts that were still open after it
    ends/day=…/run=…     the ends of the topics

Guarantees:
    1. A run is complete or absent: it counts once its second row is in the log, which is written last.
    2. If two runs continue the same one, readers take the one whose second row has the earlier time, so each attempt is
       there once. The other one is refused; if both write that row at the same moment, it may end without an error.
    3. Each run writes files of its own.
    Tests: tests/spark/reconcile/test_ledger.py, tests/unit/spark_connectors/reconcile/records/test_ledger_log.py.
"""

from __future__ import annotations

import datetime as dt
import os
import socket
import uuid
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from typing import Any, Final

from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from reconsume.delay_levels.errors import IllegalSetting, ReconsumeError
from reconsume.spark_connectors.failures import explained
from reconsume.spark_connectors.session import literal_path, local_rows, rows_if_there

DAY_MS: Final = 86_400_000
_RUN: Final = "run BIGINT, name STRING, continues STRING, noted_ms BIGINT, topic_prefix STRING, kept_from BIGINT"
_RUN_COLUMNS: Final = tuple(one.split()[0] for one in _RUN.split(", "))
_LOG: Final = f"{_RUN}, done BOOLEAN, host STRING, pid INT"
_DAYS: Final = f"log ARRAY<STRUCT<{_RUN}>>, place STRING"
_MANY_RUNS: Final = 8
"""From this number on, the runs of a day are compacted when it is over."""
_ROWS_OF_A_FILE: Final = 1_000_000
_ROW_GROUP_BYTES: Final = 16 * 1024 * 1024
"""Small, so that few row groups must be read for some buckets."""
_KEPT_MS: Final = 2 * DAY_MS
"""Runs this long before the last one are kept at any age, because the next run continues from them."""
_TABLES: Final = ("settled", "open", "ends", "compacted")


class LedgerTaken(ReconsumeError):
    """Another run writes to the ledger, or has written to it meanwhile."""


@dataclass(frozen=True, slots=True)
class LoggedRun:
    """A complete run.

    Attributes:
        run: its time (ms).
        name: its unique name.
        continues: the name of the run that it continues; empty for the first one.
        noted_ms: when it was complete.
        topic_prefix: the prefix of the installation's topics.
        kept_from: earlier runs are removed.
        compacted: the folder of its compacted day.
    """

    run: int
    name: str
    continues: str
    noted_ms: int
    topic_prefix: str
    kept_from: int
    compacted: str = ""

    @classmethod
    def of(cls, row: Any, compacted: str = "") -> LoggedRun:
        """Return the run of a row with its columns."""
        return cls(row.run, row.name, row.continues, row.noted_ms, row.topic_prefix, row.kept_from, compacted)


@dataclass(frozen=True, slots=True)
class LedgerLog:
    """The needed runs of a folder.

    Attributes:
        spark: the session.
        folder: the ledger's folder.
        runs: the complete runs by time; empty before the first one.
        others: times of runs that began and did not end, each with its process.
        name: the unique name of the run that continues them.
    """

    spark: SparkSession
    folder: str
    runs: tuple[LoggedRun, ...]
    others: tuple[tuple[int, str, int], ...] = ()
    name: str = field(default_factory=lambda: uuid.uuid4().hex)

    @classmethod
    def open(cls, spark: SparkSession, folder: str, now_ms: int, reach_ms: int | None) -> LedgerLog:
        """Read the log of a folder.

        Args:
            spark: the session.
            folder: the ledger's folder.
            now_ms: the current time.
            reach_ms: read runs of this time only, and later ones; None reads all. The last run is read in any case.

        Raises:
            IllegalSetting: the folder holds something else.
            ReconsumeError: the folder cannot be read; see `failures`.
        """
        with explained(f"the ledger in {folder} cannot be read; check that Spark reaches it and may read it"):
            days = None if reach_ms is None else [*_days_of(now_ms - reach_ms, now_ms), *_days_after(now_ms)]
            log = cls._read(spark, folder, days)
            return log if log.runs or days is None else cls._read(spark, folder, None)

    @classmethod
    def _read(cls, spark: SparkSession, folder: str, days: list[str] | None) -> LedgerLog:
        # Two runs that began at once may both have compacted a day, each into its own folder; either one is right.
        whole = _rows(spark, folder, "days", days, "log", "place") or []
        closed = {_day(row.log[0].run): row for row in whole if row.log}
        left = None if days is None else [day for day in days if day not in closed]
        log = _rows(spark, folder, "log", left, *_RUN_COLUMNS, "done", "host", "pid")
        if log is None and not whole and days is None:
            _check_version(spark, folder)
        done = [LoggedRun.of(row) for row in log or () if row.done]
        runs = [one for one in done if _day(one.run) not in closed]
        runs += [LoggedRun.of(one, row.place) for row in closed.values() for one in row.log]
        runs = _chain(runs)
        # A later run that keeps more brings no files back.
        kept_from = max((one.kept_from for one in runs), default=0)
        ended = {row.name for row in log or () if row.done is not False}
        others = tuple((row.run, row.host, row.pid) for row in log or () if row.name not in ended)
        return cls(spark, folder, tuple(one for one in runs if one.run >= kept_from), others)

    @property
    def last_ms(self) -> int:
        """Return the time up to which the newest run judged; 0 without runs."""
        return self.runs[-1].run if self.runs else 0

    def path(self, table: str, run: int, name: str) -> str:
        """Return the path of the rows of a run with this time and name."""
        return f"{self.folder}/{table}/day={_day(run)}/run={name}"

    def settled(self, runs: Iterable[LoggedRun]) -> DataFrame | None:
        """Return the settled attempts of these runs; None without runs."""
        wanted = list(runs)
        if not wanted:
            return None
        whole = {f"{self.folder}/{one.compacted}": None for one in wanted if one.compacted}
        own = [self.path("settled", one.run, one.name) for one in wanted if not one.compacted]
        rows = self.spark.read.parquet(*map(literal_path, [*whole, *own]))
        return rows.where(F.col("run").isin([one.run for one in wanted])) if whole else rows

    def left_open(self, one: LoggedRun) -> DataFrame:
        """Return the records that a run left open: waiting, lost or in the quarantine."""
        return self.spark.read.parquet(literal_path(self.path("open", one.run, one.name)))

    def begin(self, run: int, topic_prefix: str) -> None:
        """Log that a run begins.

        Raises:
            LedgerTaken: another process of this machine is still running one.
        """
        for other, host, pid in self.others:
            # The process id of a dead run may have been reused.
            young = other > run - DAY_MS
            if young and host == socket.gethostname() and pid != os.getpid() and _is_alive(pid):
                raise LedgerTaken(
                    f"process {pid} has been writing to the ledger in {self.folder} since {shown_moment(other)}: "
                    "only one run at a time may; wait for its end, then run again"
                )
        self._note(run, topic_prefix, done=False)

    def give_up(self, run: int, error: type[BaseException] | None, *_: object) -> None:
        """Log that a run failed, if there is an error: its process may live on, and no other one needs to wait for it.

        An `ExitStack` calls it.
        """
        if error is not None:
            # The storage may be why the run failed. The caller raises that error.
            with suppress(Exception):
                self._note(run, "", done=None)

    def end(self, run: int, topic_prefix: str, keep_ms: int) -> None:
        """Add a run whose rows are written; from then on it counts.

        Raises:
            LedgerTaken: another run was added since the log was read.
        """
        last = self.runs[-1].name if self.runs else ""
        self._check_newest(run, last)
        kept_from = min(run - keep_ms, self.last_ms - _KEPT_MS) // DAY_MS * DAY_MS if keep_ms else 0
        self._note(run, topic_prefix, max(0, kept_from), last, done=True)
        # Another run may have ended between the check and the row.
        self._check_newest(run, self.name)

    def _check_newest(self, run: int, name: str) -> None:
        newest = LedgerLog.open(self.spark, self.folder, run, 2 * DAY_MS).runs[-1:]
        if newest and newest[0].name != name:
            raise LedgerTaken(
                f"the ledger in {self.folder} got the run of {shown_moment(newest[0].run)} during this run, "
                "so this run was not added: only one at a time may write to it; run again"
            )

    def tidy(self) -> bool:
        """Compact the runs of past days, and remove runs that are too old; return whether there was anything to do."""
        today, changed = _day(self.last_ms), False
        by_day: dict[str, list[LoggedRun]] = {}
        for one in self.runs:
            if not one.compacted:
                by_day.setdefault(_day(one.run), []).append(one)
        for day, runs in by_day.items():
            if day != today and len(runs) >= _MANY_RUNS:
                self._compact(day, runs)
                changed = True
        for day in self._too_old():
            for table in _TABLES:
                self._empty(table, day)
        return changed

    def _too_old(self) -> set[str]:
        """Return the days that readers ignore since the last run ended."""
        kept = [one.kept_from for one in self.runs[-2:]]
        if not kept or kept[-1] == 0 or kept == [kept[-1]] * 2:
            return set()
        rows = _rows(self.spark, self.folder, "log", None, "run", "kept_from", "done") or []
        before = max((row.kept_from for row in rows if row.done and row.run < self.last_ms), default=0)
        return {_day(row.run) for row in rows if before <= row.run < kept[-1]}

    def _compact(self, day: str, runs: list[LoggedRun]) -> None:
        rows = self.settled(runs)
        if rows is None:
            return
        place = f"compacted/day={day}/{uuid.uuid4().hex}"
        write_rows(rows, f"{self.folder}/{place}")
        told = {"log": [asdict(one) for one in runs], "place": place}
        local_rows(self.spark, [told], _DAYS).write.mode("append").parquet(f"{self.folder}/days/day={day}")
        self._empty("settled", day)

    def _empty(self, table: str, day: str) -> None:
        """Remove the files of a day; Spark by itself removes a folder only to overwrite it."""
        self.spark.range(0).coalesce(1).write.mode("overwrite").parquet(f"{self.folder}/{table}/day={day}")

    def _note(self, run: int, topic_prefix: str, kept_from: int = 0, continues: str = "", *, done: bool | None) -> None:
        one = LoggedRun(run, self.name, continues, _now_ms(), topic_prefix, kept_from)
        row = asdict(one) | {"done": done, "host": socket.gethostname(), "pid": os.getpid()}
        path = f"{self.folder}/log/day={_day(run)}"
        local_rows(self.spark, [row], _LOG).write.mode("append").parquet(path)


def _chain(runs: list[LoggedRun]) -> list[LoggedRun]:
    """Return the runs by time; of those that continue the same one only the first, and no followers of the rest."""
    first: dict[str, LoggedRun] = {}
    for one in sorted(runs, key=lambda one: (one.noted_ms, one.name)):
        first.setdefault(one.continues, one)
    ignored: set[str] = set()
    in_order = sorted(runs, key=lambda one: one.run)
    for one in in_order:
        if one.continues in ignored or first[one.continues] != one:
            ignored.add(one.name)
    return [one for one in in_order if one.name not in ignored]


def write_rows(rows: DataFrame, path: str) -> None:
    """Write attempts in files of about a million rows, each ordered by `bucket`."""
    count = rows.count()
    files = max(1, -(-count // _ROWS_OF_A_FILE))
    in_order = rows.coalesce(files).sortWithinPartitions("bucket")
    in_order.write.mode("overwrite").option("parquet.block.size", _ROW_GROUP_BYTES).parquet(path)


def _rows(spark: SparkSession, folder: str, table: str, days: list[str] | None, *columns: str) -> list[Any] | None:
    if days is not None and not days:
        return []
    wanted = "*" if days is None else "{" + ",".join(days) + "}"
    path = f"{literal_path(f'{folder}/{table}')}/day={wanted}"
    try:
        return rows_if_there(lambda: spark.read.parquet(path).select(*columns))
    except AnalysisException as error:
        if error.getCondition() == "UNABLE_TO_INFER_SCHEMA" and _was_interrupted(spark, path):
            return None
        raise IllegalSetting(_no_ledger(f"{folder}/{table}", str(error.getCondition()))) from error


def _was_interrupted(spark: SparkSession, path: str) -> bool:
    """Return whether a process died in the first write there: only Spark's own folder for that is left."""
    return rows_if_there(lambda: spark.read.text(f"{path}/_temporary").limit(0)) is not None


def _check_version(spark: SparkSession, folder: str) -> None:
    """Refuse a ledger of an earlier version, which keeps its runs elsewhere."""
    if rows_if_there(lambda: spark.read.text(literal_path(f"{folder}/runs")).limit(0)) is not None:
        raise IllegalSetting(_no_ledger(f"{folder}/runs", "it is of an earlier version or of something else"))


def _no_ledger(path: str, why: str) -> str:
    return (
        f"{path} is no ledger of reconsume as this version writes it ({why}): choose another folder; if it was one, "
        "restore it, or begin a new one: it then holds what the topics still do"
    )


def _days_of(from_ms: int, to_ms: int) -> list[str]:
    return [_day(at) for at in _steps(from_ms, to_ms)]


def _days_after(at_ms: int) -> list[str]:
    """Return patterns for all later days: the clock may have been ahead in an earlier run."""
    day = _day(at_ms)
    return [f"{day[:at]}[{int(one) + 1}-9]*" for at, one in enumerate(day) if one in "012345678"]


def _steps(from_ms: int, to_ms: int) -> Iterator[int]:
    first, last = max(0, from_ms) // DAY_MS, to_ms // DAY_MS
    return (at * DAY_MS for at in range(first, last + 1))


def _day(at_ms: int) -> str:
    return dt.datetime.fromtimestamp(at_ms / 1_000, dt.UTC).strftime("%Y-%m-%d")


def shown_moment(at_ms: int) -> str:
    """Return a time in milliseconds as text for people."""
    return dt.datetime.fromtimestamp(at_ms / 1_000, dt.UTC).isoformat(timespec="seconds")


def _now_ms() -> int:
    return int(dt.datetime.now(dt.UTC).timestamp() * 1_000)


def _is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True
