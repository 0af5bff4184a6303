"""The commands `reconsume quarantine …`; what they do is imported when they run."""

from __future__ import annotations

from typing import Annotated

import typer

from reconsume.cli.common import (
    BootstrapServers,
    ConfigFile,
    KafkaSettings,
    Output,
    Yes,
    check_output,
    read_settings,
)

__all__ = ["quarantine_app"]

quarantine_app = typer.Typer(help="Records that could not be delivered.", no_args_is_help=True)


@quarantine_app.command("list")
def quarantine_list(
    config: ConfigFile = None,
    bootstrap_servers: BootstrapServers = None,
    kafka: KafkaSettings = None,
    output: Output = "table",
) -> None:
    """List what could not be delivered, and why."""
    from reconsume.cli.actions.quarantine import list_quarantine

    list_quarantine(read_settings(config, bootstrap_servers, kafka), as_json=check_output(output))


@quarantine_app.command("show")
def quarantine_show(
    record: Annotated[str, typer.Argument(metavar="PARTITION/OFFSET")],
    config: ConfigFile = None,
    bootstrap_servers: BootstrapServers = None,
    kafka: KafkaSettings = None,
    output: Output = "table",
) -> None:
    """Show one record with its headers and its value."""
    from reconsume.cli.actions.quarantine import show_record

    show_record(read_settings(config, bootstrap_servers, kafka), record, as_json=check_output(output))


@quarantine_app.command("release")
def quarantine_release(
    records: Annotated[list[str] | None, typer.Argument(metavar="PARTITION/OFFSET...")] = None,
    all_of_them: Annotated[bool, typer.Option("--all", help="all that were not released")] = False,
    header: Annotated[
        list[str] | None, typer.Option(metavar="NAME=VALUE", help="set this header on each; may be given several times")
    ] = None,
    yes: Yes = False,
    config: ConfigFile = None,
    bootstrap_servers: BootstrapServers = None,
    kafka: KafkaSettings = None,
    output: Output = "table",
) -> None:
    """Give records back to the schedulers, each once; first mend what was wrong."""
    from reconsume.cli.actions.quarantine import release_records

    settings = read_settings(config, bootstrap_servers, kafka)
    as_json = check_output(output)
    release_records(settings, records or (), header or (), all_of_them=all_of_them, yes=yes, as_json=as_json)
