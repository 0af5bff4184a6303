"""`reconsume quarantine`: list, show and release undeliverable records."""

from __future__ import annotations

from datetime import UTC, datetime
from itertools import islice
from typing import Annotated, Any, Final

import typer

from reconsume.cli.common import Here, Yes, confirm, on_kafka, shown_text
from reconsume.cli.output import counted, print_json, print_json_list, print_line, print_report, print_table
from reconsume.delay_levels.errors import IllegalSetting
from reconsume.operations.quarantine import QuarantineRecord, find_quarantined, read_quarantine, release
from reconsume.operations.record_address import RecordAddress

app = typer.Typer()

_LIST: Final = "reconsume quarantine list"
_TABLE_ROWS: Final = 1_000
"""Of one table; a long list has several."""


@on_kafka(app, "list")
def list_quarantine(here: Here) -> None:
    """List undeliverable records, each with its reason."""
    found = (_summary(one) for one in read_quarantine(here.cluster) if not one.is_released)
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


@on_kafka(app, "release")
def release_records(
    here: Here,
    records: Annotated[list[str] | None, typer.Argument(metavar="PARTITION/OFFSET...")] = None,
    all_of_them: Annotated[bool, typer.Option("--all", help="all records that were not released")] = False,
    header: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME=VALUE", help="set this header on each record; may be given several times"),
    ] = None,
    yes: Yes = False,
) -> None:
    """Return records to the schedulers, each once; fix the cause first."""
    if bool(records) == all_of_them:
        raise IllegalSetting("name records as PARTITION/OFFSET, or pass --all")
    changes = dict(_change(text) for text in header or ())
    chosen = None if all_of_them else [RecordAddress.parse(one, _LIST) for one in records or ()]
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
