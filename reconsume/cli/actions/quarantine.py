"""`reconsume quarantine`: what could not be delivered, why, and back with it."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from itertools import islice
from typing import Any, Final

from reconsume.bridge.process.settings import Settings
from reconsume.cli.common import confirm, shown_text
from reconsume.cli.output import counted, print_facts, print_json, print_json_list, print_line, print_table
from reconsume.delay_levels.errors import IllegalSetting
from reconsume.operations.quarantine import QuarantineRecord, find_quarantined, read_quarantine, release
from reconsume.operations.record_address import RecordAddress

__all__ = ["list_quarantine", "release_records", "show_record"]

_LIST: Final = "reconsume quarantine list"
_TABLE_ROWS: Final = 1_000
"""Of one table; a long list has several."""


def list_quarantine(settings: Settings, *, as_json: bool) -> None:
    """Those that were not released."""
    found = (_summary(one) for one in read_quarantine(settings) if not one.is_released)
    if as_json:
        print_json_list(found)
        return
    rows = (tuple(one.values()) for one in found)
    table = list(islice(rows, _TABLE_ROWS))
    while True:
        print_table("quarantine", ("record", "since", "stood at", "reason"), table)
        if not (table := list(islice(rows, _TABLE_ROWS))):
            return


def show_record(settings: Settings, place: str, *, as_json: bool) -> None:
    """One, with all that it has.

    Raises:
        IllegalSetting: there is none.
    """
    wanted = RecordAddress.parse(place, _LIST)
    found = find_quarantined(settings, wanted)
    if found is None:
        raise IllegalSetting(f"{place}: there is no such record; `reconsume quarantine list` shows them")
    report = _summary(found) | {
        "released": found.is_released,
        "key": shown_text(found.key),
        "headers": [[name, shown_text(value)] for name, value in found.quarantined.headers],
        "value": shown_text(found.value),
    }
    if as_json:
        print_json(report)
    else:
        print_facts(report)


def release_records(
    settings: Settings, places: Sequence[str], headers: Sequence[str], *, all_of_them: bool, yes: bool, as_json: bool
) -> None:
    """Give some or all back.

    Raises:
        IllegalSetting: neither or both are named, or one cannot be released.
    """
    if bool(places) == all_of_them:
        raise IllegalSetting("name the records as PARTITION/OFFSET, or say --all")
    changes = dict(_change(text) for text in headers)
    chosen = None if all_of_them else [RecordAddress.parse(one, _LIST) for one in places]
    what = "all records of the quarantine" if chosen is None else counted(len(chosen), "record")
    if not confirm(f"Release {what}?", yes=yes):
        return
    if as_json:
        released: list[dict[str, Any]] = []
        release(settings, chosen, changes, lambda one: released.append(_summary(one)))
        print_json(released)
    else:
        count = release(settings, chosen, changes)
        print_line(f"{count} released; what still cannot be delivered comes back here with its reason")


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
