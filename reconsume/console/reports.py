"""Reports of `reconsume reconcile` in a folder: a list, their findings, and their pages."""

from __future__ import annotations

import json
import os
import stat
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from reconsume.delay_levels.errors import IllegalSetting, RecordNotFound
from reconsume.delay_levels.foreign_values import check_json

_PAGE: Final = ".html"
_FIGURES: Final = ".json"
_MOST: Final = 100
"""Maximum of listed reports, the newest."""
_NO_LINKS: Final = getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)
"""Flags for opening a file: if it has become a link or a pipe since it was listed, the open fails and never blocks."""
_PAGE_BYTES: Final = 32 * 1024 * 1024
_FIGURES_BYTES: Final = 1024 * 1024


@dataclass(frozen=True, slots=True)
class ReconcileReport:
    """A report.

    Attributes:
        name: the name of its page, without `.html`.
        at_ms: when it was written.
        verdict: `ok` or `findings`; None without readable figures beside the page.
        attempts: number of judged attempts; None without readable figures.
        findings: number of findings by kind.
        since: the beginning of its window; None without one.
        until: the end of its window.
    """

    name: str
    at_ms: int
    verdict: str | None = None
    attempts: int | None = None
    findings: dict[str, int] = field(default_factory=dict)
    since: str | None = None
    until: str | None = None


def list_reports(folder: Path) -> tuple[list[ReconcileReport], int]:
    """Return the newest reports of a folder, and the total number.

    Raises:
        IllegalSetting: the folder cannot be read.
    """
    try:
        found = sorted(_pages(folder), reverse=True)
    except OSError as error:
        raise IllegalSetting(f"setting console.reports_folder: {folder} cannot be read: {error.strerror}") from None
    return [_report(folder, name, at_ms) for at_ms, name in found[:_MOST]], len(found)


def _pages(folder: Path) -> Iterator[tuple[int, str]]:
    """Yield the time and name of each page; symbolic links are skipped, because they may point outside the folder."""
    with os.scandir(folder) as entries:
        for entry in entries:
            name = entry.name.removesuffix(_PAGE)
            if name == entry.name or name.startswith(".") or not _is_text(name):
                continue
            if entry.is_file(follow_symlinks=False):
                yield entry.stat(follow_symlinks=False).st_mtime_ns // 1_000_000, name


def _is_text(name: str) -> bool:
    """Return whether a file name is text; Linux allows any bytes."""
    try:
        name.encode()
    except UnicodeEncodeError:
        return False
    return bool(name)


def read_page(folder: Path, name: str) -> bytes:
    """Return the page of a report.

    Raises:
        IllegalSetting: the folder cannot be read, or the page is too large.
        RecordNotFound: the folder has no such report.
    """
    try:
        # Only listed names are opened, so no name can point outside the folder.
        is_there = name in {one for _, one in _pages(folder)}
        return _read(folder, name + _PAGE, _PAGE_BYTES) if is_there else _missing(name)
    except FileNotFoundError:
        return _missing(name)
    except OSError as error:
        raise IllegalSetting(f"setting console.reports_folder: {folder} cannot be read: {error.strerror}") from None


def _missing(name: str) -> bytes:
    raise RecordNotFound(
        f"report {name[:200]!r} does not exist; the list of reports shows those of console.reports_folder"
    )


def _read(folder: Path, name: str, most: int) -> bytes:
    with os.fdopen(os.open(folder / name, os.O_RDONLY | _NO_LINKS), "rb") as file:
        if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
            raise FileNotFoundError
        content = file.read(most + 1)
    if len(content) > most:
        raise IllegalSetting(
            f"report {name[:200]!r} is too large: the console shows at most {most >> 20} MiB; open the file itself"
        )
    return content


def _report(folder: Path, name: str, at_ms: int) -> ReconcileReport:
    try:
        return _with_figures(name, at_ms, json.loads(_read(folder, name + _FIGURES, _FIGURES_BYTES)))
    except (OSError, ValueError, OverflowError, RecursionError, TypeError, KeyError, AttributeError, IllegalSetting):
        return ReconcileReport(name, at_ms)


def _with_figures(name: str, at_ms: int, figures: dict[str, Any]) -> ReconcileReport:
    check_json("the figures", figures)
    findings = {str(kind): int(count) for kind, count in figures["findings"].items()}
    since, until = figures["since"], figures["until"]
    return ReconcileReport(
        name,
        at_ms,
        "findings" if findings else "ok",
        int(figures["attempts"]),
        findings,
        None if since is None else str(since),
        str(until),
    )
