"""`reconsume reconcile --follow`: run after run into the ledger, each one told, until somebody stops it."""

from __future__ import annotations

import datetime as dt
import time
from typing import Any

from reconsume.bridge.process.settings import Settings
from reconsume.cli.common import stop_at_signals
from reconsume.cli.output import counted, print_json_line, print_line
from reconsume.cli.progress import working
from reconsume.cli.spark.reconcile import (
    ReconcileOptions,
    found_in,
    milliseconds,
    print_findings,
    read_committed,
    reconciled,
)
from reconsume.cli.spark.session import open_session
from reconsume.delay_levels.errors import IllegalSetting
from reconsume.spark_connectors.reconcile import Reconciliation

__all__ = ["follow_topics", "run_line"]


def follow_topics(settings: Settings, options: ReconcileOptions, *, as_json: bool) -> bool:
    """Carry the command out until SIGINT or SIGTERM; whether nothing was wrong in any of its runs.

    Raises:
        IllegalSetting: options that cannot be, or do not go together.
        TopicNotReady: there is nothing to reconcile.
    """
    others = {"--since": options.since, "--until": options.until, "--report": options.report, "--out": options.out}
    for name, value in {**others, "--origins": options.origins or None}.items():
        if value is not None:
            raise IllegalSetting(f"{name} and --follow: a stream only writes its ledger; leave one of them out")
    every, late = milliseconds("--follow", options.follow or ""), milliseconds("--late", options.late)
    if every == 0:
        raise IllegalSetting("--follow 0s: write how long it is from run to run, such as 5m")
    if options.ledger is None:
        raise IllegalSetting("--follow needs --ledger: the folder that it goes on with after a restart")
    # Before Spark starts, which takes a minute to say that no broker answers.
    read_committed(settings)
    with working("starting", quiet=as_json) as say:
        spark = open_session(say, options.spark)
    fine = True
    try:
        # Pyspark's own handler would cancel the jobs of a run in its middle; this ends after the run.
        stopped = stop_at_signals()
        while not stopped.is_set():
            begun = time.monotonic()
            with reconciled(spark, settings, options, read_committed(settings), late) as found:
                fine &= _tell(found, as_json=as_json)
            stopped.wait(max(0.0, begun + every / 1_000 - time.monotonic()))
    finally:
        spark.stop()
    return fine


def _tell(found: Reconciliation, *, as_json: bool) -> bool:
    summary, shown = found_in(found)
    if as_json:
        print_json_line(summary)
    else:
        print_line(run_line(summary, found.now))
        print_findings(one for one in shown if one["kind"] in summary["findings"])
    return not summary["findings"]


def run_line(summary: dict[str, Any], run: dt.datetime) -> str:
    """What is told of a run."""
    kinds = ", ".join(f"{kind} {count:,}" for kind, count in summary["findings"].items())
    return (
        f"{run:%Y-%m-%d %H:%M:%S}Z {counted(summary['attempts'], 'send-back')}: {summary['moved']:,} delivered again, "
        f"{counted(summary['dead'], 'dead letter')}, {summary['waiting']:,} waiting; {kinds or 'nothing is wrong'}"
    )
