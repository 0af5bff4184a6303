"""`reconsume`: the command line. A command imports what it needs when it runs, so that `--help` is quick."""

from __future__ import annotations

import sys
import traceback
from pathlib import Path
from typing import Annotated, Final

import typer

from reconsume.bridge.process.ports import (
    CONSOLE_MANAGEMENT,
    CONSOLE_PAGES,
    SCHEDULER_MANAGEMENT,
    SIDECAR_API,
    SIDECAR_MANAGEMENT,
)
from reconsume.cli.common import (
    BootstrapServers,
    ConfigFile,
    KafkaSettings,
    Output,
    SparkMaster,
    SparkOptions,
    SparkRemote,
    Yes,
    check_output,
    confirm,
    host_and_port,
    ignore_known_warnings,
    need_spark,
    read_settings,
)
from reconsume.cli.config_commands import config_app
from reconsume.cli.dlq_commands import dlq_app
from reconsume.cli.groups_commands import groups_app
from reconsume.cli.operations import add_operations
from reconsume.cli.output import counted, make_stray_lines_visible, print_error, print_line
from reconsume.cli.positions_commands import positions_app
from reconsume.cli.quarantine_commands import quarantine_app
from reconsume.delay_levels.errors import ReconsumeError

__all__ = ["app", "main"]

_ERROR: Final = 2
"""Exit code of a command that could not run, as of one with wrong options."""

app = typer.Typer(
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)
topics_app = typer.Typer(help="The topics of reconsume.", no_args_is_help=True)
app.add_typer(topics_app, name="topics")
app.add_typer(groups_app, name="groups")
add_operations(app, topics_app)
app.add_typer(dlq_app, name="dlq")
app.add_typer(quarantine_app, name="quarantine")
app.add_typer(positions_app, name="positions")
app.add_typer(config_app, name="config")


def _show_versions(asked: bool) -> None:
    if asked:
        from reconsume.cli.version import versions

        print_line(versions())
        raise typer.Exit


@app.callback()
def reconsume(
    version: Annotated[
        bool, typer.Option("--version", is_eager=True, callback=_show_versions, help="say what is installed")
    ] = False,
) -> None:
    """RocketMQ's retry semantics for consumers of Apache Kafka."""


@app.command()
def demo(
    input_file: Annotated[
        Path | None, typer.Option("--input", help="CSV or JSON lines, plain or .gz; default: 20,000 real flights")
    ] = None,
    key: Annotated[str | None, typer.Option(help="column that becomes the record's key")] = None,
    fail_if: Annotated[str, typer.Option(metavar="COLUMN=VALUE", help="rows that always fail")] = "dep_time=NA",
    limit: Annotated[int | None, typer.Option(min=1, help="produce only so many rows")] = None,
    keep: Annotated[bool, typer.Option("--keep", help="leave Kafka running and say how to look around")] = False,
    output: Output = "table",
) -> None:
    """Show the whole loop on this machine: a real Kafka, two schedulers, a consumer group that fails."""
    from reconsume.cli.demo.run import DemoOptions, run_demo

    as_json = check_output(output)
    if not run_demo(DemoOptions(input_file, key, fail_if, limit, keep, as_json)):
        raise typer.Exit(1)


@app.command()
def broker(
    port: Annotated[int, typer.Option(min=0, max=65_535, help="0 takes a free one")] = 9092,
    data: Annotated[Path | None, typer.Option(help="keep the data in this folder; default: none is kept")] = None,
    output: Output = "table",
) -> None:
    """Run a real Kafka on this machine, in the foreground, for development."""
    from reconsume.cli.broker.command import run_broker

    run_broker(port, data, as_json=check_output(output))


@app.command()
def chaos(
    seed: Annotated[int | None, typer.Option(help="of the schedule; default: any, and it is printed")] = None,
    minutes: Annotated[float, typer.Option(min=0.1, help="how long things go wrong")] = 3,
    brokers: Annotated[int, typer.Option(help="1 or 3; three lose one at a time")] = 1,
    rate: Annotated[float, typer.Option(min=1, help="messages per second")] = 200,
    sidecar: Annotated[bool, typer.Option("--sidecar", help="a sidecar and its app take part, and fail too")] = False,
    output: Output = "table",
) -> None:
    """Make things go wrong on a throw-away Kafka while messages flow; exit code 1 if a promise is broken."""
    from reconsume.cli.chaos.command import chaos as run

    if not run(seed, minutes, brokers, rate, sidecar=sidecar, as_json=check_output(output)):
        raise typer.Exit(1)


@app.command()
def scheduler(
    instance_id: Annotated[
        str | None, typer.Option(help="stable over restarts, one for each worker; default: one that is both")
    ] = None,
    management: Annotated[
        str | None,
        typer.Option(metavar="HOST:PORT", help=f"/metrics, /livez, /readyz [127.0.0.1:{SCHEDULER_MANAGEMENT}]"),
    ] = None,
    log_level: Annotated[str | None, typer.Option(help="DEBUG, INFO (default), WARNING or ERROR")] = None,
    log_format: Annotated[str | None, typer.Option(help="console (default) or json")] = None,
    config: ConfigFile = None,
    bootstrap_servers: BootstrapServers = None,
    kafka: KafkaSettings = None,
) -> None:
    """Run a scheduler worker: it moves due records to %RETRY% and exhausted ones to %DLQ%."""
    from reconsume.cli.scheduler import run_scheduler

    settings = read_settings(
        config,
        bootstrap_servers,
        kafka,
        scheduler={"instance_id": instance_id},
        management=host_and_port(management, "--management", SCHEDULER_MANAGEMENT),
        logging={"level": log_level and log_level.upper(), "format": log_format},
    )
    run_scheduler(settings)


@app.command()
def sidecar(
    listen: Annotated[str | None, typer.Option(metavar="HOST:PORT", help=f"the API [127.0.0.1:{SIDECAR_API}]")] = None,
    management: Annotated[
        str | None,
        typer.Option(metavar="HOST:PORT", help=f"probes, /metrics, /quiesce, /drain [127.0.0.1:{SIDECAR_MANAGEMENT}]"),
    ] = None,
    group: Annotated[
        list[str] | None, typer.Option(help="serve this group alone, and make its retry topic; several times for more")
    ] = None,
    token_file: Annotated[
        Path | None, typer.Option(metavar="FILE", help="holds what callers must show; needed beyond this machine")
    ] = None,
    log_level: Annotated[str | None, typer.Option(help="DEBUG, INFO (default), WARNING or ERROR")] = None,
    log_format: Annotated[str | None, typer.Option(help="console (default) or json")] = None,
    config: ConfigFile = None,
    bootstrap_servers: BootstrapServers = None,
    kafka: KafkaSettings = None,
) -> None:
    """Serve send-backs and delayed messages over HTTP, for a consumer in any language beside it, and push to apps."""
    from reconsume.cli.sidecar import read_sidecar_settings, run_sidecar

    overrides = {
        "logging": {"level": log_level and log_level.upper(), "format": log_format},
        "management": host_and_port(management, "--management", SIDECAR_MANAGEMENT),
        "sidecar": {
            "listen": host_and_port(listen, "--listen", SIDECAR_API),
            "groups": group or None,
            "token_file": token_file,
        },
    }
    run_sidecar(read_sidecar_settings(config, bootstrap_servers, kafka, overrides))


@app.command()
def console(
    listen: Annotated[
        str | None, typer.Option(metavar="HOST:PORT", help=f"the pages [127.0.0.1:{CONSOLE_PAGES}]")
    ] = None,
    management: Annotated[
        str | None,
        typer.Option(metavar="HOST:PORT", help=f"/metrics, /livez, /readyz [127.0.0.1:{CONSOLE_MANAGEMENT}]"),
    ] = None,
    token_file: Annotated[
        Path | None, typer.Option(metavar="FILE", help="holds what browsers must show; needed beyond this machine")
    ] = None,
    read_only: Annotated[bool, typer.Option("--read-only", help="nothing can be sent again from the pages")] = False,
    hide_values: Annotated[
        bool, typer.Option("--hide-values", help="of keys, values and users' headers only the sizes are shown")
    ] = False,
    log_level: Annotated[str | None, typer.Option(help="DEBUG, INFO (default), WARNING or ERROR")] = None,
    log_format: Annotated[str | None, typer.Option(help="console (default) or json")] = None,
    config: ConfigFile = None,
    bootstrap_servers: BootstrapServers = None,
    kafka: KafkaSettings = None,
) -> None:
    """Serve pages for a browser: what waits, what is dead and why; dead letters are sent again from there."""
    from reconsume.cli.console import read_console_settings, run_console

    overrides = {
        "logging": {"level": log_level and log_level.upper(), "format": log_format},
        "management": host_and_port(management, "--management", CONSOLE_MANAGEMENT),
        "console": {
            "listen": host_and_port(listen, "--listen", CONSOLE_PAGES),
            "token_file": token_file,
            "read_only": read_only or None,
            "hide_values": hide_values or None,
        },
    }
    run_console(read_console_settings(config, bootstrap_servers, kafka, overrides))


@topics_app.command("plan")
def topics_plan(
    config: ConfigFile = None,
    bootstrap_servers: BootstrapServers = None,
    kafka: KafkaSettings = None,
    output: Output = "table",
) -> None:
    """Show which topics are missing, which are not as they should be, and which settings `apply` publishes."""
    from reconsume.cli.topics import make_plan, show_plan

    as_json = check_output(output)
    show_plan(make_plan(read_settings(config, bootstrap_servers, kafka)), as_json=as_json)


@topics_app.command("apply")
def topics_apply(
    yes: Yes = False,
    config: ConfigFile = None,
    bootstrap_servers: BootstrapServers = None,
    kafka: KafkaSettings = None,
    output: Output = "table",
) -> None:
    """Make the missing topics and publish [topics]. What exists is never changed; commands that mend it are shown."""
    from reconsume.cli.topics import apply_plan, make_plan, show_plan

    as_json = check_output(output)
    settings = read_settings(config, bootstrap_servers, kafka)
    plan = make_plan(settings)
    if not as_json or plan.is_empty:
        show_plan(plan, as_json=as_json)
    settings_too = " and publish the topic settings" if plan.publishes else ""
    if not plan.is_empty and confirm(f"Make {counted(len(plan.topics.missing), 'topic')}{settings_too}?", yes=yes):
        apply_plan(settings, plan, as_json=as_json)


@app.command("send-back")
def send_back(
    group: Annotated[str, typer.Option(help="consumer group")],
    message: Annotated[str, typer.Option(metavar="TOPIC/PARTITION/OFFSET", help="the record to send back")],
    delay_level: Annotated[int, typer.Option(help="0: the group's next level; negative: dead letter now")] = 0,
    cause: Annotated[str | None, typer.Option(help="why, kept on a dead letter")] = None,
    config: ConfigFile = None,
    bootstrap_servers: BootstrapServers = None,
    kafka: KafkaSettings = None,
    output: Output = "table",
) -> None:
    """Send one record back by hand, as a consumer of the group would."""
    from reconsume.cli.send_back import send_back_record

    settings = read_settings(config, bootstrap_servers, kafka)
    send_back_record(settings, group, message, delay_level, cause, as_json=check_output(output))


@app.command()
def status(
    watch: Annotated[bool, typer.Option("--watch", "-w", help="show it again every 2 s, until Ctrl-C")] = False,
    config: ConfigFile = None,
    bootstrap_servers: BootstrapServers = None,
    kafka: KafkaSettings = None,
    output: Output = "table",
) -> None:
    """Show what waits on each level, what is overdue, and what each group has in its retry and dead-letter topics."""
    from reconsume.cli.status import run_status

    run_status(read_settings(config, bootstrap_servers, kafka), as_json=check_output(output), watch=watch)


@app.command()
def replay(
    where: Annotated[
        str | None,
        typer.Option(metavar="SQL", help="which ones, such as \"cause LIKE '%timeout%'\"; default: all"),
    ] = None,
    group: Annotated[list[str] | None, typer.Option(help="of this group; may be given several times")] = None,
    topic: Annotated[
        list[str] | None, typer.Option(help="a dead-letter topic to read in place of the groups', of any system")
    ] = None,
    to: Annotated[str | None, typer.Option(help="retry (default), or origin: all groups see it there")] = None,
    for_group: Annotated[str | None, typer.Option(help="for dead letters that do not tell their group")] = None,
    max_replays: Annotated[int, typer.Option(help="what was replayed so often is refused")] = 2,
    plan: Annotated[str | None, typer.Option(metavar="FOLDER", help="for the plan; one that is there goes on")] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="make the plan and show it, send nothing")] = False,
    rate: Annotated[float | None, typer.Option(help="records per second at most")] = None,
    stream: Annotated[
        str | None, typer.Option(metavar="NAME", help="replay what came since this name's last run; needs --plan")
    ] = None,
    at_least_once: Annotated[
        bool, typer.Option("--at-least-once", help="allow a Spark that runs failed tasks again: some may be sent twice")
    ] = False,
    yes: Yes = False,
    master: SparkMaster = "local[*]",
    remote: SparkRemote = None,
    spark_option: SparkOptions = None,
    config: ConfigFile = None,
    bootstrap_servers: BootstrapServers = None,
    kafka: KafkaSettings = None,
    output: Output = "table",
) -> None:
    """Replay dead letters with Spark: plan, show, ask, send, report. The same plan never sends one twice."""
    as_json = check_output(output)
    need_spark()
    from reconsume.cli.spark.replay import ReplayOptions
    from reconsume.cli.spark.replay import replay as run

    options = ReplayOptions(
        folder=plan,
        where=where,
        groups=group or (),
        topics=topic or (),
        target=to,
        for_group=for_group,
        max_replays=max_replays,
        rate=rate,
        dry_run=dry_run,
        yes=yes,
        at_least_once=at_least_once,
        stream=stream,
        master=master,
        remote=remote,
        spark_options=spark_option or (),
    )
    run(read_settings(config, bootstrap_servers, kafka), options, as_json=as_json)


@app.command()
def reconcile(
    report: Annotated[
        Path | None, typer.Option(metavar="FILE", help="write one HTML page that needs no network")
    ] = None,
    lang: Annotated[str, typer.Option(help="of the report: en or zh")] = "en",
    out: Annotated[str | None, typer.Option(metavar="FOLDER", help="write ledger and findings as Parquet")] = None,
    ledger: Annotated[str | None, typer.Option(metavar="FOLDER", help="keep a ledger that grows by run")] = None,
    follow: Annotated[
        str | None, typer.Option(metavar="DURATION", help="run again so often until stopped; needs --ledger")
    ] = None,
    since: Annotated[str | None, typer.Option(metavar="TIME", help="2026-11-21T08:00Z, or 24h; default: all")] = None,
    until: Annotated[str | None, typer.Option(metavar="TIME", help="send-backs before; default: now")] = None,
    late: Annotated[str, typer.Option(metavar="DURATION", help="later than this is a finding")] = "1m",
    delay_levels: Annotated[str | None, typer.Option(metavar="TABLE", help="in place of what the topics say")] = None,
    origins: Annotated[
        bool, typer.Option("--origins", help="read the origin topics too: are the first copies there?")
    ] = False,
    master: SparkMaster = "local[*]",
    remote: SparkRemote = None,
    spark_option: SparkOptions = None,
    config: ConfigFile = None,
    bootstrap_servers: BootstrapServers = None,
    kafka: KafkaSettings = None,
    output: Output = "table",
) -> None:
    """Prove with Spark that every failed message ended in exactly one state; exit code 1 if one did not."""
    as_json = check_output(output)
    need_spark()
    from reconsume.cli.spark.follow import follow_topics
    from reconsume.cli.spark.reconcile import ReconcileOptions, reconcile_topics

    options = ReconcileOptions(
        report=report,
        language=lang,
        out=out,
        ledger=ledger,
        follow=follow,
        since=since,
        until=until,
        late=late,
        delay_levels=delay_levels,
        origins=origins,
        master=master,
        remote=remote,
        spark_options=spark_option or (),
    )
    carry_out = reconcile_topics if follow is None else follow_topics
    if not carry_out(read_settings(config, bootstrap_servers, kafka), options, as_json=as_json):
        raise typer.Exit(1)


def main() -> None:
    """Run the command line. Exit code 1 is a command's answer, such as findings; 2 is an error.

    An error of ours is one message; any other one has a traceback.
    """
    make_stray_lines_visible()
    ignore_known_warnings()
    try:
        app(standalone_mode=True)
    except ReconsumeError as error:
        print_error(error)
        sys.exit(_ERROR)
    except Exception:  # noqa: BLE001 - Python's own exit code would be 1, which reads as findings
        traceback.print_exc()
        sys.exit(_ERROR)
