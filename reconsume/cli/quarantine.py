"""`reconsume quarantine`: what could not be delivered, why, and back with it."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

from reconsume.bridge.place import Place
from reconsume.bridge.quarantine import QuarantineRecord, read_quarantine, release
from reconsume.bridge.settings import Settings
from reconsume.cli.common import confirm, print_json, print_table, shown_text
from reconsume.delay_levels.errors import IllegalSetting

__all__ = ["list_quarantine", "release_records", "show_record"]

_LIST = "reconsume quarantine list"


def list_quarantine(settings: Settings, *, as_json: bool) -> None:
    """Those that were not released."""
    records = [one for one in read_quarantine(settings) if not one.is_released]
    if as_json:
        print_json([_summary(one) for one in records])
        return
    rows = [(_summary(one)["record"], _since(one), one.quarantined.source, one.quarantined.reason) for one in records]
    print_table("quarantine", ("record", "since", "stood at", "reason"), rows)


def show_record(settings: Settings, place: str, *, as_json: bool) -> None:
    """One, with all that it has.

    Raises:
        IllegalSetting: there is none.
    """
    wanted = Place.parse(place, _LIST)
    found = next((one for one in read_quarantine(settings) if one.place == wanted), None)
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
        return
    for name, value in report.items():
        for line in value if isinstance(value, list) else [value]:
            sys.stdout.write(f"{name:10} {line if isinstance(line, str) else ' = '.join(map(str, line))}\n")


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
    chosen = None if all_of_them else [Place.parse(one, _LIST) for one in places]
    what = "all records of the quarantine" if chosen is None else f"{len(chosen)} records"
    if not confirm(f"Release {what}?", yes=yes):
        return
    released = release(settings, chosen, changes)
    if as_json:
        print_json([_summary(one) for one in released])
    else:
        sys.stdout.write(f"{len(released)} released; what still cannot be delivered comes back here with its reason\n")


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
