"""The commands that run on Spark. Each imports its modules when it runs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from reconsume.cli.common import Here, SparkMaster, SparkOptions, SparkRemote, Yes, need, on_kafka


def add_spark(app: typer.Typer) -> None:
    """Register the commands."""
    on_kafka(app, "replay")(replay)
    on_kafka(app, "reconcile")(reconcile)


def replay(
    here: Here,
    where: Annotated[
        str | None, typer.Option(metavar="SQL", help="SQL filter, such as \"cause LIKE '%timeout%'\"; default: all")
    ] = None,
    group: Annotated[list[str] | None, typer.Option(help="consumer group; may be given several times")] = None,
    topic: Annotated[
        list[str] | None, typer.Option(help="a dead-letter topic of any system, read instead of the groups' topics")
    ] = None,
    to: Annotated[str | None, typer.Option(help="target: retry (default), or origin, where all groups read it")] = None,
    for_group: Annotated[str | None, typer.Option(help="group of dead letters that do not name one")] = None,
    max_replays: Annotated[
        int | None, typer.Option(min=1, help="leave out messages that were replayed this often; default: 2")
    ] = None,
    plan: Annotated[
        str | None, typer.Option(metavar="FOLDER", help="folder of the plan; an existing plan is continued")
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="make and show the plan, and send nothing")] = False,
    rate: Annotated[float | None, typer.Option(help="maximum records per second")] = None,
    stream: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="replay dead letters since the last run of this name; needs --plan"),
    ] = None,
    at_least_once: Annotated[
        bool, typer.Option("--at-least-once", help="allow Spark to repeat failed tasks, which may send records twice")
    ] = False,
    yes: Yes = False,
    master: SparkMaster = "local[*]",
    remote: SparkRemote = None,
    spark_option: SparkOptions = None,
) -> None:
    """Resend dead letters chosen by SQL, with Spark: plan, confirm, send, report. A plan sends none twice."""
    need("spark")
    from reconsume.cli.spark.options import SparkChoice
    from reconsume.cli.spark.replay import ReplayOptions
    from reconsume.cli.spark.replay import replay as run

    which = {"where": where, "groups": group, "topics": topic, "target": to, "group": for_group}
    options = ReplayOptions(
        folder=plan,
        which={**which, "max_replays": max_replays},
        how={"rate": rate, "at_least_once": at_least_once},
        dry_run=dry_run,
        yes=yes,
        stream=stream,
        spark=SparkChoice.of(here.settings, master, remote, spark_option or ()),
    )
    run(here.settings, options, as_json=here.as_json)


def reconcile(
    here: Here,
    report: Annotated[Path | None, typer.Option(metavar="FILE", help="write a self-contained HTML page")] = None,
    lang: Annotated[str, typer.Option(help="language of the report: en or zh")] = "en",
    out: Annotated[str | None, typer.Option(metavar="FOLDER", help="write ledger and findings as Parquet")] = None,
    ledger: Annotated[str | None, typer.Option(metavar="FOLDER", help="ledger that grows with each run")] = None,
    ledger_keep: Annotated[
        str | None,
        typer.Option(metavar="DURATION", help="remove older runs of the ledger, such as 400d; default: none"),
    ] = None,
    follow: Annotated[
        str | None,
        typer.Option(metavar="DURATION", help="interval at which to repeat the run until stopped; needs --ledger"),
    ] = None,
    since: Annotated[
        str | None,
        typer.Option(metavar="TIME", help="start: 2026-11-22 10:00 (UTC), or an age: 24h; default: everything"),
    ] = None,
    until: Annotated[str | None, typer.Option(metavar="TIME", help="end, for send-backs; default: now")] = None,
    late: Annotated[str, typer.Option(metavar="DURATION", help="lateness from which a delivery is a finding")] = "1m",
    delay_levels: Annotated[
        str | None, typer.Option(metavar="TABLE", help="level table, instead of the one in the topics")
    ] = None,
    origins: Annotated[
        bool, typer.Option("--origins", help="read the origin topics too, and note missing first copies")
    ] = False,
    master: SparkMaster = "local[*]",
    remote: SparkRemote = None,
    spark_option: SparkOptions = None,
) -> None:
    """Account for every failed message, with Spark; exit code 1 if there is a finding."""
    need("spark")
    from reconsume.cli.spark.options import SparkChoice
    from reconsume.cli.spark.reconcile import ReconcileOptions, reconcile_topics

    options = ReconcileOptions(
        report=report,
        language=lang,
        out=out,
        ledger=ledger,
        ledger_keep=ledger_keep,
        follow=follow,
        since=since,
        until=until,
        late=late,
        delay_levels=delay_levels,
        origins=origins,
        spark=SparkChoice.of(here.settings, master, remote, spark_option or ()),
    )
    if not reconcile_topics(here.settings, options, as_json=here.as_json):
        raise typer.Exit(1)
