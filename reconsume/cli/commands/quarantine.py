"""The commands `reconsume quarantine …`; what they do is imported when they run."""

from __future__ import annotations

from typing import Annotated

import typer

from reconsume.cli.common import Here, Yes, on_kafka

__all__ = ["quarantine_app"]

quarantine_app = typer.Typer(help="Records that could not be delivered.", no_args_is_help=True)


@quarantine_app.command("list")
@on_kafka
def quarantine_list(
    here: Here,
) -> None:
    """List what could not be delivered, and why."""
    from reconsume.cli.actions.quarantine import list_quarantine

    list_quarantine(here.settings, as_json=here.as_json)


@quarantine_app.command("show")
@on_kafka
def quarantine_show(
    here: Here,
    record: Annotated[str, typer.Argument(metavar="PARTITION/OFFSET")],
) -> None:
    """Show one record with its headers and its value."""
    from reconsume.cli.actions.quarantine import show_record

    show_record(here.settings, record, as_json=here.as_json)


@quarantine_app.command("release")
@on_kafka
def quarantine_release(
    here: Here,
    records: Annotated[list[str] | None, typer.Argument(metavar="PARTITION/OFFSET...")] = None,
    all_of_them: Annotated[bool, typer.Option("--all", help="all that were not released")] = False,
    header: Annotated[
        list[str] | None, typer.Option(metavar="NAME=VALUE", help="set this header on each; may be given several times")
    ] = None,
    yes: Yes = False,
) -> None:
    """Give records back to the schedulers, each once; first mend what was wrong."""
    from reconsume.cli.actions.quarantine import release_records

    settings, as_json = here
    release_records(settings, records or (), header or (), all_of_them=all_of_them, yes=yes, as_json=as_json)
