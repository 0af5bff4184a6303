"""`reconsume reconcile --follow`: run after run into the ledger, each one told, until somebody stops it."""

from __future__ import annotations

import datetime as dt
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

from pyspark.sql import SparkSession

from reconsume.bridge.process.settings import Settings
from reconsume.cli.output import counted, print_json_line, print_line
from reconsume.cli.progress import working
from reconsume.cli.spark.options import absolute
from reconsume.cli.spark.reconcile import ReconcileOptions, milliseconds, print_findings, read_committed, read_extents
from reconsume.cli.spark.session import open_session
from reconsume.delay_levels.errors import IllegalSetting
from reconsume.spark_connectors.failures import explained
from reconsume.spark_connectors.reconcile import (
    Tolerances,
    first_findings,
    ledger_runs,
    read_ledger,
    reconcile_stream,
    summarise,
)
from reconsume.spark_connectors.reconcile.ledger import as_findings
from reconsume.spark_connectors.report import SHOWN_OF_A_KIND

__all__ = ["follow_topics", "run_line"]


def follow_topics(settings: Settings, options: ReconcileOptions, *, as_json: bool) -> bool:
    """Carry the command out until SIGINT or SIGTERM; whether nothing was wrong in any of its runs.

    Raises:
        IllegalSetting: options that cannot be, or do not go together.
        TopicNotReady: there is nothing to reconcile.
    """
    every, late = _durations(options)
    if options.ledger is None:
        raise IllegalSetting("--follow needs --ledger: the folder that it goes on with after a restart")
    folder = absolute(options.ledger)
    # Before Spark starts, which takes a minute to say that no broker answers.
    read_committed(settings)
    with working("starting", quiet=as_json) as say:
        spark = open_session(say, options.spark)
    fine = True
    try:
        remedy = f"remove {folder}/checkpoint: the ledger knows itself how far it is"
        with explained("following", remedy), _until_told() as stopped:
            # What is told to stop ends after the run that it is in.
            while not stopped.is_set():
                begun = time.monotonic()
                run = reconcile_stream(
                    spark,
                    settings.bootstrap_servers,
                    folder,
                    topic_prefix=settings.topic_prefix,
                    committed=partial(read_committed, settings),
                    extents=partial(read_extents, settings),
                    delay_levels=options.delay_levels,
                    tolerances=Tolerances(late=late),
                    options=options.spark.kafka,
                )
                run.awaitTermination()
                last = ledger_runs(spark, folder)[-1]
                fine &= _tell(spark, folder, settings.bootstrap_servers, last, as_json=as_json)
                stopped.wait(max(0.0, begun + every.total_seconds() - time.monotonic()))
    finally:
        spark.stop()
    return fine


def _durations(options: ReconcileOptions) -> tuple[dt.timedelta, dt.timedelta]:
    """From run to run, and how late a delivery may be."""
    others = {"--since": options.since, "--until": options.until, "--report": options.report, "--out": options.out}
    for name, value in {**others, "--origins": options.origins or None}.items():
        if value is not None:
            raise IllegalSetting(f"{name} and --follow: a stream only writes its ledger; leave one of them out")
    every = milliseconds("--follow", options.follow or "")
    if every == 0:
        raise IllegalSetting("--follow 0s: write how long it is from run to run, such as 5m")
    return dt.timedelta(milliseconds=every), dt.timedelta(milliseconds=milliseconds("--late", options.late))


def _tell(spark: SparkSession, folder: str, bootstrap_servers: str, run: dt.datetime, *, as_json: bool) -> bool:
    rows = read_ledger(spark, folder, run=run).persist()
    try:
        summary = summarise(rows, run, None)
        if as_json:
            print_json_line(summary)
        else:
            print_line(run_line(summary, run))
            if summary["findings"]:
                frames = [as_findings(rows, name, bootstrap_servers) for name in ("findings", "notes")]
                shown = first_findings(frames[0], frames[1], SHOWN_OF_A_KIND)
                print_findings(one for one in shown if one["kind"] in summary["findings"])
    finally:
        rows.unpersist()
    return not summary["findings"]


def run_line(summary: dict[str, Any], run: dt.datetime) -> str:
    """What is told of a run."""
    kinds = ", ".join(f"{kind} {count:,}" for kind, count in summary["findings"].items())
    return (
        f"{run:%Y-%m-%d %H:%M:%S}Z {counted(summary['attempts'], 'send-back')}: {summary['moved']:,} delivered again, "
        f"{counted(summary['dead'], 'dead letter')}, {summary['waiting']:,} waiting; {kinds or 'nothing is wrong'}"
    )


@contextmanager
def _until_told() -> Iterator[threading.Event]:
    """Set by SIGINT and SIGTERM; pyspark's own handler would cancel the jobs of a run in its middle."""
    stopped = threading.Event()
    before = {number: signal.signal(number, lambda *_: stopped.set()) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield stopped
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
