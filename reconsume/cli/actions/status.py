"""`reconsume status`: what waits, and what each group has."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any, Final

from reconsume.bridge.process.settings import Settings
from reconsume.bridge.reading.counting import Count
from reconsume.cli.output import clear_screen, print_json, print_line, print_table
from reconsume.delay_levels.rules.durations import format_duration
from reconsume.operations.status import collect_status

__all__ = ["show_status", "watch_status"]


_EVERY_SECONDS: Final = 2.0


def watch_status(settings: Settings, *, as_json: bool, rest: Callable[[float], object] = time.sleep) -> None:
    """Print the status again and again, until Ctrl-C.

    Args:
        settings: of the installation.
        as_json: print JSON.
        rest: how seconds pass.
    """
    with suppress(KeyboardInterrupt):
        while True:
            if not as_json:
                clear_screen()
            show_status(settings, as_json=as_json)
            rest(_EVERY_SECONDS)


def show_status(settings: Settings, *, as_json: bool) -> None:
    """Print the status once."""
    report = collect_status(settings)
    if as_json:
        print_json(report)
        return
    lanes = [
        (one["topic"], _shown(one, "waiting"), _shown(one, "overdue"), _when(one["next_due_ms"], report["at_ms"]))
        for one in report["waiting"]
    ]
    print_table("waiting", ("topic", "waiting", "overdue", "next due"), lanes)
    rows = [(one["group"], _shown(one, "retry_lag"), _shown(one, "dead_letters")) for one in report["groups"]]
    print_table("groups", ("group", "retries not consumed", "dead letters kept"), rows)
    print_line(f"quarantined: {_shown(report, 'quarantined')}")
    parts = [report, *report["waiting"], *report["groups"]]
    if not all(value for part in parts for name, value in part.items() if name.endswith("_exact")):
        print_line("~: too many to be read; by offsets, which count the end marks of transactions too")


def _when(due_ms: int | None, now: int) -> str:
    if due_ms is None:
        return ""
    left = (due_ms - now) // 1000 * 1000
    return f"in {format_duration(left)}" if left >= 0 else f"{format_duration(-left)} ago"


def _shown(report: Mapping[str, Any], name: str) -> str:
    return str(Count(report[name], report[f"{name}_exact"]))
