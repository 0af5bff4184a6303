"""`reconsume quarantine`: list, show, export and release undeliverable records."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from itertools import islice
from typing import Annotated, Any, Final

import typer

from reconsume.bridge.process.clock import now_ms
from reconsume.cli.common import ExportFile, Here, Yes, confirm, on_kafka, shown_text
from reconsume.cli.output import (
    counted,
    opened,
    print_json,
    print_json_list,
    print_line,
    print_report,
    print_table,
    tell,
)
from reconsume.delay_levels.errors import IllegalSetting
from reconsume.delay_levels.human_text import json_text
from reconsume.operations.jobs.letter_files import csv_writer, json_line_writer, whole
from reconsume.operations.points_in_time import parse_point_in_time
from reconsume.operations.quarantine import (
    QuarantineFilter,
    QuarantineRecord,
    find_quarantined,
    read_quarantine,
    release,
)
from reconsume.operations.record_address import RecordAddress

app = typer.Typer()

_LIST: Final = "reconsume quarantine list"
_TABLE_ROWS: Final = 1_000
"""Rows of one table; a long list has several tables."""


_COLUMNS: Final = ("record", "since", "stood_at", "reason", "key", "value")


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


def _matching(here: Here, wanted: QuarantineFilter) -> Iterator[QuarantineRecord]:
    return (one for one in read_quarantine(here.cluster) if not one.is_released and wanted.takes(one))


@on_kafka(app, "list", wanted=_wanted)
def list_quarantine(
    here: Here,
    wanted: QuarantineFilter,
    limit: Annotated[int | None, typer.Option(min=1, help="maximum number of rows; default: all")] = None,
) -> None:
    """List undeliverable records, each with its reason, the oldest first."""
    found = (_summary(one) for one in islice(_matching(here, wanted), limit))
    if here.as_json:
        print_json_list(found)
        return
    rows = (tuple(one.values()) for one in found)
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
        "released": found.is_released,
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
) -> None:
    """Write undeliverable records to a file; they stay in the quarantine. Standard error has the number."""
    if form not in ("jsonl", "csv"):
        raise IllegalSetting(f"--format {form!r}: use jsonl or csv")
    count = 0
    with opened(file) as out:
        write = csv_writer(out, _COLUMNS) if form == "csv" else json_line_writer(out)
        for one in _matching(here, wanted):
            headers = [[name, whole(value)] for name, value in one.quarantined.headers]
            write(_summary(one) | {"key": whole(one.key), "value": whole(one.value), "headers": headers})
            count += 1
    # Standard output may be the file.
    tell(json_text({"exported": count}) if here.as_json else counted(count, "record"))


@on_kafka(app, "release", wanted=_wanted)
def release_records(
    here: Here,
    wanted: QuarantineFilter,
    records: Annotated[list[str] | None, typer.Argument(metavar="PARTITION/OFFSET...")] = None,
    all_of_them: Annotated[bool, typer.Option("--all", help="all unreleased records that match the filter")] = False,
    header: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME=VALUE", help="set this header on each record; may be given several times"),
    ] = None,
    yes: Yes = False,
) -> None:
    """Return records to the schedulers, each once; fix the cause first."""
    if bool(records) == all_of_them:
        raise IllegalSetting("name records as PARTITION/OFFSET, or pass --all")
    if records and wanted != QuarantineFilter():
        raise IllegalSetting("a filter goes with --all: leave it out, or name no records")
    changes = dict(_change(text) for text in header or ())
    chosen = None if all_of_them else [RecordAddress.parse(one, _LIST) for one in records or ()]
    if wanted != QuarantineFilter():
        chosen = [one.place for one in _matching(here, wanted)]
    what = "all records of the quarantine" if chosen is None else counted(len(chosen), "record")
    if not confirm(f"Release {what}?", yes=yes):
        return
    if here.as_json:
        released: list[dict[str, Any]] = []
        release(here.cluster, chosen, changes, lambda one: released.append(_summary(one)))
        print_json(released)
    else:
        count = release(here.cluster, chosen, changes)
        print_line(f"{count} released; records that are still undeliverable return here with their reason")


def _change(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not equals or not name:
        raise IllegalSetting(f"--header {text!r}: write NAME=VALUE, such as REAL_TOPIC=%RETRY%orders")
    return name, value


def _summary(one: QuarantineRecord) -> dict[str, Any]:
    return {
        "record": str(one.place),
        "since": _since(one),
        "stood_at": str(one.quarantined.source),
        "reason": one.quarantined.reason,
    }


def _since(one: QuarantineRecord) -> str:
    return datetime.fromtimestamp(one.stored_ms / 1000, UTC).isoformat(timespec="seconds")
