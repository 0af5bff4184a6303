"""The commands `reconsume positions …`; what they do is imported when they run."""

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

__all__ = ["positions_app"]

positions_app = typer.Typer(help="Where the scheduler workers stand.", no_args_is_help=True)


@positions_app.command("list")
def positions_list(
    config: ConfigFile = None,
    bootstrap_servers: BootstrapServers = None,
    kafka: KafkaSettings = None,
    output: Output = "table",
) -> None:
    """List the position of each partition beside its committed offset; workers begin at the larger one."""
    from reconsume.cli.actions.positions import show

    show(read_settings(config, bootstrap_servers, kafka), as_json=check_output(output))


@positions_app.command("reset")
def positions_reset(
    partitions: Annotated[list[str] | None, typer.Argument(metavar="TOPIC-PARTITION...")] = None,
    all_of_them: Annotated[bool, typer.Option("--all", help="all positions")] = False,
    yes: Yes = False,
    config: ConfigFile = None,
    bootstrap_servers: BootstrapServers = None,
    kafka: KafkaSettings = None,
    output: Output = "table",
) -> None:
    """Remove positions, so that workers begin at committed offsets that were reset; stop all workers first."""
    from reconsume.cli.actions.positions import reset

    settings, as_json = read_settings(config, bootstrap_servers, kafka), check_output(output)
    reset(settings, partitions or (), all_of_them=all_of_them, yes=yes, as_json=as_json)
