"""Commands for those who run it: rights and doctor. Each imports what it needs when it runs."""

from __future__ import annotations

from typing import Annotated

import typer

from reconsume.cli.common import (
    BootstrapServers,
    ConfigFile,
    KafkaSettings,
    Output,
    check_output,
    read_settings,
)

__all__ = ["add_operations"]


def add_operations(app: typer.Typer, topics: typer.Typer) -> None:
    """Register them."""
    topics.command("acls")(topics_acls)
    app.command()(doctor)


def topics_acls(
    role: Annotated[
        str,
        typer.Option(help="scheduler, consumer, sidecar, sender, producer, console, spark, replay or admin"),
    ] = "scheduler",
    group: Annotated[str | None, typer.Option(help="the consumer group of a consumer or sidecar")] = None,
    topic: Annotated[list[str] | None, typer.Option(help="an origin topic; may be given several times")] = None,
    exactly_once: Annotated[bool, typer.Option("--exactly-once", help="it sends back in transactions")] = False,
    principal: Annotated[str | None, typer.Option(help="default: User:<role>")] = None,
    config: ConfigFile = None,
    bootstrap_servers: BootstrapServers = None,
    kafka: KafkaSettings = None,
    output: Output = "table",
) -> None:
    """Print the rights that a role needs, no more and no less, as kafka-acls.sh commands. Asks no broker."""
    from reconsume.cli.acls import show_acls

    settings = read_settings(config, bootstrap_servers, kafka)
    show_acls(
        settings,
        role,
        group=group,
        topics=topic or (),
        exactly_once=exactly_once,
        principal=principal,
        as_json=check_output(output),
    )


def doctor(
    role: Annotated[str, typer.Option(help="whose rights to look for, as `topics acls` has them")] = "scheduler",
    group: Annotated[str | None, typer.Option(help="the consumer group of a consumer or sidecar")] = None,
    topic: Annotated[list[str] | None, typer.Option(help="an origin topic; may be given several times")] = None,
    send_record: Annotated[
        bool, typer.Option(help="put a record on the shortest level; it comes to %RETRY%reconsume-doctor")
    ] = True,
    config: ConfigFile = None,
    bootstrap_servers: BootstrapServers = None,
    kafka: KafkaSettings = None,
    output: Output = "table",
) -> None:
    """Examine the installation: what is wrong, and the command that mends it; exit code 1 if there is a problem."""
    from reconsume.cli.doctor import run_doctor

    settings, as_json = read_settings(config, bootstrap_servers, kafka), check_output(output)
    if not run_doctor(settings, role, group=group, topics=topic or (), send_record=send_record, as_json=as_json):
        raise typer.Exit(1)
