"""A ledger of many runs: what a run reads of it is bounded, and one run at a time writes to it."""

from __future__ import annotations

import datetime as dt
import socket
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from reconsume.delay_levels.errors import IllegalSetting, ReconsumeError
from reconsume.spark_connectors.failures import explained
from reconsume.spark_connectors.reconcile import LedgerTaken, ledger_runs, read_ledger
from reconsume.spark_connectors.reconcile.records import ledger_log
from reconsume.spark_connectors.reconcile.records.grown import GrownLedger, append_run
from reconsume.spark_connectors.reconcile.records.ledger_log import DAY_MS, LedgerLog
from reconsume.spark_connectors.session import _with_setting, local_rows

pytestmark = pytest.mark.early(3)

PREFIX = "p."
START = int(dt.datetime(2026, 1, 1, 12, tzinfo=dt.UTC).timestamp() * 1_000)
ATTEMPTS = 3
DAY_OF_TWO_RUNS = [START, START + 60_000, START + DAY_MS]


def attempts(spark: SparkSession, run: int, outcome: str = "moved") -> DataFrame:
    """Of a run; of the columns of a ledger those that its files are made by."""
    rows = [{"group": "g", "origin_message_id": f"flights/{run}/{number}"} for number in range(ATTEMPTS)]
    frame = local_rows(spark, rows, "`group` STRING, origin_message_id STRING")
    moment = F.timestamp_millis(F.lit(run))
    more = dict.fromkeys(("asked", "appended", "delivered"), moment)
    more |= {"notes": F.array().cast("array<string>"), "released": F.lit(None).cast("string")}
    return frame.withColumns({"replay_times": F.lit(0), "attempt": F.lit(1), "outcome": F.lit(outcome), **more})


def add(spark: SparkSession, folder: str, run: int) -> None:
    log, _ = GrownLedger.open(spark, folder, PREFIX, run)
    append_run(attempts(spark, run), log, run, PREFIX, {})


def in_ms(runs: list[dt.datetime]) -> list[int]:
    return [round(one.timestamp() * 1_000) for one in runs]


def with_a_day_of_two_runs(spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A ledger whose first day the next run puts together."""
    monkeypatch.setattr(ledger_log, "_MANY_RUNS", 2)
    folder = str(tmp_path)
    for run in DAY_OF_TWO_RUNS:
        add(spark, folder, run)
    return folder


def test_many_runs_of_a_day_are_put_together_and_each_is_still_there(spark: SparkSession, tmp_path: Path) -> None:
    """A folder may have any name."""
    path, hour = tmp_path / "größe [a] {b,c} *?\\%20" / "ledger", 3_600_000
    folder = str(path)
    runs = [START - 10 * hour + number * 2 * hour for number in range(8)] + [START + DAY_MS, START + DAY_MS + hour]
    for run in runs:
        add(spark, folder, run)
    files = {one.parent.name for one in (path / "settled" / "day=2026-01-01").rglob("*.parquet")}
    assert files == {"day=2026-01-01"}  # an empty one
    assert len(list((path / "compacted").rglob("*.parquet"))) == 1
    assert list(tmp_path.iterdir()) == [path.parent]
    assert in_ms(ledger_runs(spark, folder)) == runs
    assert read_ledger(spark, folder).count() == len(runs) * ATTEMPTS
    one = read_ledger(spark, folder, run=ledger_runs(spark, folder)[4])
    assert {row.origin_message_id for row in one.collect()} == {f"flights/{runs[4]}/{at}" for at in range(ATTEMPTS)}


def test_what_a_run_reads_does_not_grow_and_what_is_too_old_is_removed(spark: SparkSession, tmp_path: Path) -> None:
    folder, read = str(tmp_path), []
    runs = [START + 3 * number * DAY_MS for number in range(9)]
    for run in runs:
        log, grown = GrownLedger.open(spark, folder, PREFIX, run)
        if grown is not None:
            settled = log.settled(one for one in log.runs if one.run >= log.last_ms - grown.reach_ms)
            assert settled is not None
            read.append(len(settled.inputFiles()))
        append_run(attempts(spark, run), log, run, PREFIX, {}, 15 * DAY_MS)
    assert read == [1, 2] + [3] * 6
    assert in_ms(ledger_runs(spark, folder)) == runs[-6:]
    assert read_ledger(spark, folder).count() == 6 * ATTEMPTS
    assert not list((tmp_path / "settled" / "day=2026-01-04").rglob("run=*"))


def test_of_two_runs_that_go_on_from_the_same_one_the_second_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    """Also where words that SQL reserves are no names."""
    folder, later = str(tmp_path), START + 60_000
    log, _ = GrownLedger.open(spark, folder, PREFIX, START)
    with _with_setting(spark, "spark.sql.ansi.enforceReservedKeywords", "true"):
        add(spark, folder, START)
    with pytest.raises(LedgerTaken, match=r"got the run of .* during this run"):
        append_run(attempts(spark, START, "waiting"), log, START, PREFIX)
    assert in_ms(ledger_runs(spark, folder)) == [START]
    assert [row.outcome for row in read_ledger(spark, folder).collect()] == ["moved"] * ATTEMPTS
    add(spark, folder, later)
    assert in_ms(ledger_runs(spark, folder)) == [START, later]


def test_while_a_process_writes_to_it_another_one_is_refused(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = str(tmp_path)
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as other:
        with monkeypatch.context() as patch:
            patch.setattr("os.getpid", lambda: other.pid)
            LedgerLog(spark, folder, ()).begin(START, PREFIX)
        with pytest.raises(LedgerTaken, match=f"process {other.pid} has been writing to the ledger"):
            GrownLedger.open(spark, folder, PREFIX, START + 1)
        other.communicate(b"\n")
    log, _ = GrownLedger.open(spark, folder, PREFIX, START + 1)  # it has died
    assert socket.gethostname() in {host for _, host, _ in log.others}


@pytest.mark.parametrize("found", ["nothing", "no run", "another table", "a file of another sort", "an old ledger"])
def test_only_a_folder_that_is_not_there_means_that_there_is_no_ledger_yet(
    spark: SparkSession, tmp_path: Path, found: str
) -> None:
    log = tmp_path / "log" / "day=2026-01-01"
    if found == "no run":
        log.mkdir(parents=True)
    elif found == "another table":
        spark.range(1).write.parquet(str(log))
    elif found == "a file of another sort":
        log.mkdir(parents=True)
        (log / "part-0.parquet").write_text("no parquet")
    elif found == "an old ledger":
        spark.range(1).write.parquet(str(tmp_path / "runs"))
    if found == "nothing":
        assert GrownLedger.open(spark, str(tmp_path), "p.", START)[1] is None
        return
    with pytest.raises(ReconsumeError, match=r"is no ledger of reconsume|cannot be read; check") as told:
        GrownLedger.open(spark, str(tmp_path), "p.", START)
    assert str(tmp_path) in str(told.value)


@pytest.mark.parametrize(
    "dies",
    [
        pytest.param("before the rows", marks=pytest.mark.long),
        "while it notes them",
        pytest.param("before it removes the old rows", marks=pytest.mark.long),
    ],
)
def test_a_run_that_dies_while_it_puts_a_day_together_does_not_stop_the_next(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, dies: str
) -> None:
    folder = with_a_day_of_two_runs(spark, tmp_path, monkeypatch)
    runs = [*DAY_OF_TWO_RUNS, START + DAY_MS + 60_000]

    def die(*_: object) -> None:
        raise KeyboardInterrupt

    step = {"before the rows": "write_rows", "while it notes them": "local_rows"}.get(dies)
    log = LedgerLog.open(spark, folder, START + DAY_MS, None)
    with monkeypatch.context() as patch:
        patch.setattr(*((LedgerLog, "_empty", die) if step is None else (ledger_log, step, die)))
        with pytest.raises(KeyboardInterrupt):
            log.tidy()
    if dies == "while it notes them":
        (tmp_path / "days" / "day=2026-01-01" / "_temporary" / "0").mkdir(parents=True)
    add(spark, folder, runs[-1])
    assert in_ms(ledger_runs(spark, folder)) == runs
    assert read_ledger(spark, folder).count() == len(runs) * ATTEMPTS


def test_a_first_run_that_died_at_its_beginning_does_not_stop_the_next(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "log" / "day=2026-01-01" / "_temporary" / "0").mkdir(parents=True)
    add(spark, str(tmp_path), START)
    assert in_ms(ledger_runs(spark, str(tmp_path))) == [START]


def test_what_a_run_goes_on_from_is_kept_though_it_is_too_old(spark: SparkSession, tmp_path: Path) -> None:
    """As after a holiday, or with `--ledger-keep` shorter than from run to run."""
    folder = str(tmp_path)
    runs = [START + day * DAY_MS for day in (0, 3, 6, 9)]
    for number, run in enumerate(runs):
        log, grown = GrownLedger.open(spark, folder, PREFIX, run)
        if grown is not None:
            assert log.left_open(log.runs[-1]).count() == ATTEMPTS
            assert grown.settled_releases() == set()
            # Of a run that was left open, read_ledger gives what the last one left.
            assert len(ledger_runs(spark, folder)) == min(number, 2)
        append_run(attempts(spark, run, "waiting"), log, run, PREFIX, {}, 3_600_000)
    assert in_ms(ledger_runs(spark, folder)) == runs[-2:]
    assert not list((tmp_path / "open" / "day=2026-01-01").rglob("run=*"))


def test_a_run_that_does_not_judge_further_than_the_last_one_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    """It would write over what the last one settled, or settle the same again."""
    folder = str(tmp_path)
    add(spark, folder, START)
    for ago in (0, 1, DAY_MS):
        with pytest.raises(IllegalSetting, match=r"the ledger in .* judged until 2026-01-01T12:00:00\+00:00"):
            add(spark, folder, START - ago)
    assert read_ledger(spark, folder).count() == ATTEMPTS


def test_a_run_is_refused_after_one_whose_clock_was_days_ahead(spark: SparkSession, tmp_path: Path) -> None:
    folder, now = str(tmp_path), round(dt.datetime.now(dt.UTC).timestamp() * 1_000)
    for run in (now - DAY_MS, now + 3 * DAY_MS):
        add(spark, folder, run)
    with pytest.raises(IllegalSetting, match="has nothing to add until"):
        add(spark, folder, now)
    assert in_ms(ledger_runs(spark, folder)) == [now - DAY_MS, now + 3 * DAY_MS]


def test_a_run_that_is_refused_moves_no_files(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Put together by two runs at once, the files of a day could be removed by one while the other writes them."""
    folder = with_a_day_of_two_runs(spark, tmp_path, monkeypatch)

    def files() -> set[Path]:
        return {one for one in tmp_path.rglob("*.parquet") if "log" not in one.parts[len(tmp_path.parts)]}

    before = files()
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as other:
        with monkeypatch.context() as patch:
            patch.setattr("os.getpid", lambda: other.pid)
            LedgerLog.open(spark, folder, START + DAY_MS, None).begin(START + DAY_MS + 1, PREFIX)
        with pytest.raises(LedgerTaken, match=f"process {other.pid} has been writing to the ledger"):
            add(spark, folder, START + DAY_MS + 2)
        other.communicate(b"\n")
    assert files() == before


def test_two_runs_that_put_a_day_together_at_once_lose_nothing(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As two machines may: each writes a folder of its own, and nobody removes what the other has written."""
    folder = with_a_day_of_two_runs(spark, tmp_path, monkeypatch)
    other = LedgerLog.open(spark, folder, START + DAY_MS, None)
    write = ledger_log.write_rows

    def meanwhile(rows: DataFrame, path: str) -> None:
        monkeypatch.setattr(ledger_log, "write_rows", write)
        assert LedgerLog.open(spark, folder, START + DAY_MS, None).tidy()
        write(rows, path)

    monkeypatch.setattr(ledger_log, "write_rows", meanwhile)
    with suppress(ReconsumeError), explained("tidying up"):  # the files that it reads are gone
        other.tidy()
    assert read_ledger(spark, folder).count() == 3 * ATTEMPTS
