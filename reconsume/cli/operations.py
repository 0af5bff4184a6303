"""Commands for those who run it: rights and doctor. Each imports what it needs when it runs."""

from __future__ import annotations

from pathlib import Path
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

_File = Annotated[Path, typer.Option("--file", "-f", help="YAML: system, defaults, groups")]
_Delete = Annotated[bool, typer.Option("--delete", help="unregister groups that the file does not name; topics stay")]

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


def groups_plan(
    file: _File,
    delete: _Delete = False,
    config: ConfigFile = None,
    bootstrap_servers: BootstrapServers = None,
    kafka: KafkaSettings = None,
    output: Output = "table",
) -> None:
    """Show what a file of groups would change, topics too; exit code 1 if it would change anything."""
    from reconsume.cli.groups_file import show_groups_plan

    settings, as_json = read_settings(config, bootstrap_servers, kafka), check_output(output)
    if show_groups_plan(settings, file, delete=delete, as_json=as_json):
        raise typer.Exit(1)


def groups_apply(
    file: _File,
    delete: _Delete = False,
    yes: Yes = False,
    config: ConfigFile = None,
    bootstrap_servers: BootstrapServers = None,
    kafka: KafkaSettings = None,
    output: Output = "table",
) -> None:
    """Make it so: the topics first, then the groups. A group that the file does not name stays without --delete."""
    from reconsume.cli.groups_file import apply_groups

    settings, as_json = read_settings(config, bootstrap_servers, kafka), check_output(output)
    apply_groups(settings, file, delete=delete, yes=yes, as_json=as_json)
