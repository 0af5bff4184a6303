"""`reconsume delay`: waiting records; withdrawal and early delivery of delayed messages."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any

import typer

from reconsume.bridge.kafka.cluster import Cluster
from reconsume.cli.commands.dead_letter_rows import cut
from reconsume.cli.common import Here, Yes, confirm, on_kafka
from reconsume.cli.output import print_json, print_line, print_table
from reconsume.delay_levels.human_text import counted
from reconsume.operations.jobs.letter_files import moment
from reconsume.operations.lives.delayed_messages import cancel_delayed, deliver_now
from reconsume.operations.waiting import WaitingRecord, list_waiting

app = typer.Typer()


@on_kafka(app, "list")
def list_records(
    here: Here,
    group: Annotated[str | None, typer.Option(help="only retries and dead letters of this group")] = None,
    topic: Annotated[str | None, typer.Option(help="only delayed messages for this topic")] = None,
    limit: Annotated[int, typer.Option(min=1, max=10_000, help="maximum number of rows")] = 50,
) -> None:
    """List waiting records, the earliest due first: retries, delayed messages, and records of paused groups."""
    found = list_waiting(here.cluster, group=group, topic=topic, limit=limit)
    if here.as_json:
        records = [_row(one) for one in found.records]
        print_json({"records": records, "looked_at": found.looked_at, "is_whole": found.is_whole})
        return
    rows = [
        (
            str(one.place),
            one.kind,
            cut(one.target),
            cut(one.uniq_key or one.message_id or ""),
            one.attempt,
            one.level,
            "paused" if one.due_ms is None else moment(one.due_ms),
        )
        for one in found.records
    ]
    columns = ("record", "what", "for", "message", "attempt", "level", "due")
    print_table("waiting records", columns, rows)
    print_line(
        f"{len(rows):,} of {found.looked_at:,} waiting records that were read{'' if found.is_whole else '; more wait'}"
    )


@on_kafka(app, "cancel")
def cancel_records(
    here: Here,
    records: Annotated[list[str], typer.Argument(metavar="TOPIC/PARTITION/OFFSET...")],
    yes: Yes = False,
) -> None:
    """Withdraw delayed messages that have a UNIQ_KEY; one that is due within a second may still be delivered."""
    told = "withdrawn; a scheduler drops it at the latest at"
    _act(here, records, f"Withdraw {counted(len(records), 'delayed message')}?", cancel_delayed, told, yes=yes)


@on_kafka(app, "deliver-now")
def deliver_records_now(
    here: Here,
    records: Annotated[list[str], typer.Argument(metavar="TOPIC/PARTITION/OFFSET...")],
    yes: Yes = False,
) -> None:
    """Deliver delayed messages now, each once: those that have a UNIQ_KEY and are due in more than 10 seconds."""
    told = "delivered now instead of at"
    _act(here, records, f"Deliver {counted(len(records), 'delayed message')} now?", deliver_now, told, yes=yes)


def _act(
    here: Here,
    records: list[str],
    question: str,
    act: Callable[[Cluster, list[str]], list[WaitingRecord]],
    told: str,
    *,
    yes: bool,
) -> None:
    confirm(question, yes=yes)
    done = act(here.cluster, records)
    if here.as_json:
        print_json([_row(one) for one in done])
        return
    for one in done:
        print_line(f"{one.place}: {told} {moment(one.due_ms)}")


def _row(one: WaitingRecord) -> dict[str, Any]:
    return {
        "record": str(one.place),
        "kind": one.kind,
        "target": one.target,
        "message_id": one.message_id,
        "uniq_key": one.uniq_key,
        "attempt": one.attempt,
        "level": one.level,
        "due": moment(one.due_ms),
        "stored": moment(one.stored_ms),
    }
