"""The commands `reconsume positions …`; what they do is imported when they run."""

from __future__ import annotations

from typing import Annotated

import typer

from reconsume.cli.common import Here, Yes, on_kafka

__all__ = ["positions_app"]

positions_app = typer.Typer(help="Where the scheduler workers stand.", no_args_is_help=True)


@positions_app.command("list")
@on_kafka
def positions_list(
    here: Here,
) -> None:
    """List the position of each partition beside its committed offset; workers begin at the larger one."""
    from reconsume.cli.actions.positions import show

    show(here.settings, as_json=here.as_json)


@positions_app.command("reset")
@on_kafka
def positions_reset(
    here: Here,
    partitions: Annotated[list[str] | None, typer.Argument(metavar="TOPIC-PARTITION...")] = None,
    all_of_them: Annotated[bool, typer.Option("--all", help="all positions")] = False,
    yes: Yes = False,
) -> None:
    """Remove positions, so that workers begin at committed offsets that were reset; stop all workers first."""
    from reconsume.cli.actions.positions import reset

    settings, as_json = here
    reset(settings, partitions or (), all_of_them=all_of_them, yes=yes, as_json=as_json)
