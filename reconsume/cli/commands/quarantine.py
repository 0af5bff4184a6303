"""`reconsume quarantine`: list, show, export, release and resolve undeliverable records."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from itertools import islice
from typing import Annotated, Any, Final

import typer

from reconsume.bridge.process.clock import now_ms
from reconsume.cli.commands.dead_letter_rows import state_row
from reconsume.cli.common import ExportFile, Here, Yes, confirm, exit_at_sigterm, on_kafka, shown_text, user_name
from reconsume.cli.output import opened, print_json, print_json_list, print_line, print_report, print_table, tell
from reconsume.delay_levels.errors import IllegalSetting
from reconsume.delay_levels.human_text import counted, json_text, pair
from reconsume.delay_levels.wire.dead_letter_states import OPEN, RESOLVED
from reconsume.delay_levels.wire.quarantine import RELEASED
from reconsume.operations.jobs.letter_files import csv_writer, json_line_writer, moment, whole
from reconsume.operations.points_in_time import parse_point_in_time
from reconsume.operations.quarantine.changes import release, resolve_quarantined
from reconsume.operations.quarantine.records import (
    QuarantineFilter,
    QuarantineRecord,
    find_quarantined,
    read_quarantine,
)
from reconsume.operations.record_address import RecordAddress

app = typer.Typer()

_LIST: Final = "reconsume quarantine list"
_TABLE_ROWS: Final = 1_000
"""Rows of one table; a long list has several tables."""


_COLUMNS: Final = ("record", "state", "since", "stood_at", "reason", "key", "value")
_STATES: Final = (OPEN, RESOLVED, RELEASED)
Records = Annotated[list[str] | None, typer.Argument(metavar="PARTITION/OFFSET...")]
All = Annotated[bool, typer.Option("--all", help="all open records that match the filter")]
State = Annotated[str, typer.Option(help=f"state: {', '.join(_STATES).lower()}")]


def _wanted(
    text: Annotated[str | None, typer.Option(help="text in the reason")] = None,
    since: Annotated[
        str | None,
        typer.Option(metavar="TIME", help="quarantined since this time: 2026-11-22 10:00 (UTC), or an age: 2h"),
    ] = None,
    until: Annotated[str | None, typer.Option(metavar="TIME", help="quarantined before this time")] = None,
) -> QuarantineFilter:
    since_ms, until_ms = (
        None if said is None else parse_point_in_time(option, said, now_ms())
        for option, said in (("--since", since), ("--until", until))
    )
    return QuarantineFilter(text, since_ms, until_ms)


def _matching(here: Here, wanted: QuarantineFilter, state: str = OPEN) -> Iterator[QuarantineRecord]:
    if state.upper() not in _STATES:
        raise IllegalSetting(f"--state {state!r}: use {', '.join(_STATES).lower()}")
    return filter(replace(wanted, state=state.upper()).takes, read_quarantine(here.cluster))


@on_kafka(app, "list", wanted=_wanted)
def list_quarantine(
    here: Here,
    wanted: QuarantineFilter,
    limit: Annotated[int | None, typer.Option(min=1, help="maximum number of rows; default: all")] = None,
    state: State = "open",
) -> None:
    """List undeliverable records, each with its reason, the oldest first."""
    found = (_summary(one) for one in islice(_matching(here, wanted, state), limit))
    if here.as_json:
        print_json_list(found)
        return
    rows = (tuple(one[name] for name in ("record", "since", "stood_at", "reason")) for one in found)
    table = list(islice(rows, _TABLE_ROWS))
    while True:
        print_table("quarantine", ("record", "since", "stood at", "reason"), table)
        if not (table := list(islice(rows, _TABLE_ROWS))):
            return


@on_kafka(app, "show")
def show_record(here: Here, record: Annotated[str, typer.Argument(metavar="PARTITION/OFFSET")]) -> None:
    """Show one record with its headers and its value."""
    found = find_quarantined(here.cluster, RecordAddress.parse(record, _LIST))
    if found is None:
        raise IllegalSetting(f"{record}: the record does not exist; `reconsume quarantine list` shows them")
    report = _summary(found) | {
        "released": found.state == RELEASED,
        **state_row(found.resolution),
        "key": shown_text(found.key),
        "headers": [[name, shown_text(value)] for name, value in found.quarantined.headers],
        "value": shown_text(found.value),
    }
    print_report(report, as_json=here.as_json)


@on_kafka(app, "export", wanted=_wanted)
def export_records(
    here: Here,
    wanted: QuarantineFilter,
    form: Annotated[str, typer.Option("--format", help="jsonl or csv")] = "jsonl",
    file: ExportFile = None,
    state: State = "open",
) -> None:
    """Write undeliverable records to a file; they stay in the quarantine. Standard error has the number."""
    if form not in ("jsonl", "csv"):
        raise IllegalSetting(f"--format {form!r}: use jsonl or csv")
    count = 0
    exit_at_sigterm()  # a killed export would leave a file that looks complete
    with opened(file) as out:
        write = csv_writer(out, _COLUMNS) if form == "csv" else json_line_writer(out)
        for one in _matching(here, wanted, state):
            headers = [[name, whole(value)] for name, value in one.quarantined.headers]
            write(_summary(one) | {"key": whole(one.key), "value": whole(one.value), "headers": headers})
            count += 1
    # Standard output may be the file.
    tell(json_text({"exported": count}) if here.as_json else counted(count, "record"))


@on_kafka(app, "release", wanted=_wanted)
def release_records(
    here: Here,
    wanted: QuarantineFilter,
    records: Records = None,
    all_of_them: All = False,
    header: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME=VALUE", help="set this header on each record; may be given several times"),
    ] = None,
    yes: Yes = False,
) -> None:
    """Return records to the schedulers, each once; fix the cause first."""
    changes = dict(pair("--header", text, "NAME=VALUE, such as REAL_TOPIC=%RETRY%orders") for text in header or ())
    chosen = _chosen(here, wanted, records, all_of_them=all_of_them)
    confirm(f"Release {_counted(chosen)}?", yes=yes)
    words = "released; records that are still undeliverable return here with their reason"
    _tell_closed(here, words, lambda told: release(here.cluster, chosen, changes, told))


@on_kafka(app, "resolve", wanted=_wanted)
def resolve_records(
    here: Here,
    wanted: QuarantineFilter,
    why: Annotated[str, typer.Option(help="reason, shown with the record")],
    records: Records = None,
    all_of_them: All = False,
    yes: Yes = False,
) -> None:
    """Close records that need no delivery, and record why; they stay on their topic and cannot be released."""
    chosen = _chosen(here, wanted, records, all_of_them=all_of_them)
    confirm(f"Resolve {_counted(chosen)}, for good?", yes=yes)
    resolve = partial(resolve_quarantined, here.cluster, chosen, by=user_name(), why=why)
    _tell_closed(here, "resolved", lambda told: resolve(told=told))


def _chosen(
    here: Here, wanted: QuarantineFilter, records: Sequence[str] | None, *, all_of_them: bool
) -> list[RecordAddress] | None:
    """Return the named records or those that match the filter; None for all open ones."""
    if bool(records) == all_of_them:
        raise IllegalSetting("name records as PARTITION/OFFSET, or pass --all")
    if records and wanted != QuarantineFilter():
        raise IllegalSetting("a filter goes with --all: leave it out, or name no records")
    if records:
        return [RecordAddress.parse(one, _LIST) for one in records]
    return None if wanted == QuarantineFilter() else [one.place for one in _matching(here, wanted)]


def _counted(chosen: Sequence[RecordAddress] | None) -> str:
    return "all records of the quarantine" if chosen is None else counted(len(chosen), "record")


def _tell_closed(here: Here, words: str, close: Callable[[Callable[[QuarantineRecord], None]], int]) -> None:
    closed: list[dict[str, Any]] = []
    count = close(lambda one: closed.append(_summary(one)) if here.as_json else None)
    if here.as_json:
        print_json(closed)
    else:
        print_line(f"{count} {words}")


def _summary(one: QuarantineRecord) -> dict[str, Any]:
    return {
        "record": str(one.place),
        "state": one.state,
        "since": moment(one.stored_ms, "seconds"),
        "stood_at": str(one.quarantined.source),
        "reason": one.quarantined.reason,
    }
