"""The commands `reconsume dlq …`; what they do is imported when they run."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from reconsume.cli.common import Here, Yes, on_kafka
from reconsume.cli.output import counted, tell
from reconsume.delay_levels.human_text import json_text

__all__ = ["dlq_app"]

dlq_app = typer.Typer(help="Dead letters of a group: look, take away, send again.", no_args_is_help=True)

Group = Annotated[str, typer.Argument(metavar="GROUP", help="a consumer group")]
Text = Annotated[str | None, typer.Option(help="in the cause, the exception's class or the stack trace")]
Key = Annotated[str | None, typer.Option(help="the record's key")]
MessageId = Annotated[str | None, typer.Option(metavar="TOPIC/PARTITION/OFFSET", help="the first copy")]
Since = Annotated[
    str | None, typer.Option(metavar="TIME", help="dead since then: 2026-11-22 10:00 (UTC), or how long ago: 2h")
]
Until = Annotated[str | None, typer.Option(metavar="TIME", help="dead before then")]


@dlq_app.command("list")
@on_kafka
def dlq_list(
    here: Here,
    group: Group,
    text: Text = None,
    key: Key = None,
    message_id: MessageId = None,
    since: Since = None,
    until: Until = None,
    limit: Annotated[int, typer.Option(min=1, max=10_000, help="so many at most")] = 50,
    before: Annotated[str | None, typer.Option(metavar="WHERE", help="go on where a list ended")] = None,
) -> None:
    """List a group's dead letters, the newest first."""
    from reconsume.cli.actions.dlq import list_letters, make_filter

    settings, as_json = here
    wanted = make_filter(text, key, message_id, since, until)
    list_letters(settings, group, wanted, before=before, limit=limit, as_json=as_json)


@dlq_app.command("show")
@on_kafka
def dlq_show(
    here: Here,
    group: Group,
    record: Annotated[str, typer.Argument(metavar="PARTITION/OFFSET")],
) -> None:
    """Show one dead letter: why, since when, its headers and its value."""
    from reconsume.cli.actions.dlq import show_letter

    show_letter(here.settings, group, record, as_json=here.as_json)


@dlq_app.command("export")
@on_kafka
def dlq_export(
    here: Here,
    group: Group,
    text: Text = None,
    key: Key = None,
    message_id: MessageId = None,
    since: Since = None,
    until: Until = None,
    form: Annotated[str, typer.Option("--format", help="jsonl or csv")] = "jsonl",
    file: Annotated[Path | None, typer.Option(help="a new file; default: standard output")] = None,
) -> None:
    """Write a group's dead letters to a file, whole; they stay where they are. How many is said on standard error."""
    from reconsume.cli.actions.dlq import export_letters, make_filter

    settings, as_json = here
    count = export_letters(settings, group, make_filter(text, key, message_id, since, until), form=form, file=file)
    # Standard output may be the file.
    tell(json_text({"group": group, "exported": count}) if as_json else f"{counted(count, 'dead letter')} of {group}")


@dlq_app.command("resend")
@on_kafka
def dlq_resend(
    here: Here,
    group: Group,
    records: Annotated[list[str] | None, typer.Argument(metavar="PARTITION/OFFSET...")] = None,
    all_of_them: Annotated[bool, typer.Option("--all", help="all that the filter takes, 10,000 at most")] = False,
    text: Text = None,
    key: Key = None,
    message_id: MessageId = None,
    since: Since = None,
    until: Until = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="tell what would be sent, and send nothing")] = False,
    max_replays: Annotated[int, typer.Option(min=1, help="a message that was sent again so often is left out")] = 2,
    yes: Yes = False,
) -> None:
    """Send dead letters again to their group, each once; for more than 10,000 see `reconsume replay`."""
    from reconsume.cli.actions.dlq import make_filter, resend_letters

    resend_letters(
        here.settings,
        group,
        records or (),
        make_filter(text, key, message_id, since, until),
        all_of_them=all_of_them,
        dry_run=dry_run,
        max_replays=max_replays,
        yes=yes,
        as_json=here.as_json,
    )
