"""The output of the command line, in which printed data is neither markup nor a control sequence.

Texts of records, topics, groups and brokers are untrusted. They are escaped here, and never interpreted as markup.
ruff refuses `rich`, `print`, `sys.stdout` and `sys.stderr` in all other modules of the command line.
"""

from __future__ import annotations

import codecs
import json
import logging
import os
import sys
import textwrap
import threading
import traceback
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from io import TextIOWrapper
from pathlib import Path
from types import TracebackType
from typing import Any, Final, NamedTuple, TextIO

from reconsume.delay_levels.errors import IllegalSetting
from reconsume.delay_levels.human_text import json_text, visible

_CLEAR: Final = "\x1b[H\x1b[2J"
_WIDTH_OF_FILES: Final = 160
_JSON_ESCAPES: Final = "reconsume.json"


class Coloured(NamedTuple):
    """A text with a colour for terminals."""

    text: str
    colour: str


def one_line(text: str) -> str:
    """Return foreign text for a part of a line: a second line would look like ours."""
    return " ".join(text.split())


def print_line(text: str = "") -> None:
    """Print one or more lines."""
    sys.stdout.write(visible(text) + "\n")
    sys.stdout.flush()


def tell(text: str | Coloured) -> None:
    """Write progress and notes, which are not results, to standard error.

    If that fails, for example on a full disk, the command goes on; its exit code tells how it ended.
    """
    with suppress(OSError):
        if not isinstance(text, Coloured):
            sys.stderr.write(visible(text) + "\n")
            sys.stderr.flush()
            return
        from rich.console import Console
        from rich.text import Text

        Console(stderr=True).print(Text(visible(text.text), text.colour), soft_wrap=True)


def print_error(error: BaseException) -> None:
    """Print one message with the reason why the command ends."""
    tell(f"error: {error}")


def give_up_output() -> None:
    """Discard unwritten standard output; otherwise Python would try to write it again at exit."""
    _discard(sys.__stdout__, 1)


def give_up_messages() -> None:
    """Discard messages that cannot be written; otherwise Python would end with 120 instead of the exit code."""
    try:
        sys.stderr.flush()
    except OSError:
        _discard(sys.__stderr__, 2)


def _discard(stream: TextIO | None, number: int) -> None:
    os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno() if stream else number)


def make_stray_lines_visible() -> None:
    """Make tracebacks harmless, and logs of commands that configure none, because they may quote a record.

    Characters that the output cannot encode become JSON escapes, so that JSON output keeps its meaning.
    """
    codecs.register_error(_JSON_ESCAPES, _as_escapes)
    if isinstance(sys.stdout, TextIOWrapper):
        sys.stdout.reconfigure(errors=_JSON_ESCAPES)

    def show(kind: type[BaseException], error: BaseException | None, trace: TracebackType | None) -> None:
        tell("".join(traceback.format_exception(kind, error, trace)).rstrip("\n"))

    sys.excepthook = show
    threading.excepthook = lambda its: show(its.exc_type, its.exc_value, its.exc_traceback)
    if logging.lastResort is not None:
        logging.lastResort.setFormatter(_Visible())


def _as_escapes(error: UnicodeError) -> tuple[str, int]:
    assert isinstance(error, UnicodeEncodeError)
    return json.dumps(error.object[error.start : error.end])[1:-1], error.end


class _Visible(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        return indented(visible(super().format(record)))


def indented(text: str, spaces: int = 4) -> str:
    """Return the text with its further lines indented, so that they do not look like ours."""
    return text.replace("\n", "\n" + " " * spaces)


def print_json(value: Any) -> None:
    """Print one JSON document."""
    print_line(json_text(value, indent=2))


def print_json_line(value: Any) -> None:
    """Print one JSON document on one line, for readers of a stream."""
    print_line(json_text(value))


def print_json_list(values: Iterable[Any]) -> None:
    """Print a list that may be long, each value as it arrives."""
    before = "[\n"
    with opened(None) as out:
        for value in values:
            out.write(before + textwrap.indent(json_text(value, indent=2), "  "))
            before = ",\n"
        out.write("[]\n" if before == "[\n" else "\n]\n")


def print_facts(facts: Mapping[str, Any]) -> None:
    """Print name and value on each line; lists take a line for each item, pairs as `name = value`.

    Further lines of a value are indented, so that they do not look like facts.
    """
    width = max(map(len, facts), default=0)
    for name, value in facts.items():
        for item in value if isinstance(value, list) else [value]:
            text = " = ".join(map(_plain, item)) if isinstance(item, list | tuple) else _plain(item)
            print_line(indented(f"{name:{width}} {text}".rstrip(), width + 1))


def print_report(report: Mapping[str, Any], *, as_json: bool) -> None:
    """Print one object, as JSON or as `print_facts` does."""
    if as_json:
        print_json(report)
    else:
        print_facts(report)


def print_table(title: str, columns: Sequence[str] | None, rows: Iterable[Sequence[object]]) -> None:
    """Print a table for people.

    Args:
        title: the title above it.
        columns: their names; None omits the header.
        rows: the rows; numbers get separators, None is empty.
    """
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    cells = [[_cell(one) for one in row] for row in rows]
    table = Table(title=Text(visible(title)), title_justify="left", show_header=columns is not None)
    for number, column in enumerate(columns or ("",) * max(map(len, cells), default=0)):
        table.add_column(Text(visible(column)), overflow="fold", justify="left" if number == 0 else "right")
    for row in cells:
        table.add_row(*(Text(visible(one.text), one.colour) for one in row))
    Console(width=None if sys.stdout.isatty() else _WIDTH_OF_FILES).print(table)


def _cell(value: object) -> Coloured:
    return value if isinstance(value, Coloured) else Coloured(_plain(value), "")


def _plain(value: object) -> str:
    if value is None:
        return ""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, dict):
        return json_text(value)
    return f"{value:,}" if isinstance(value, int) else str(value)


def has_colours(stream: TextIO) -> bool:
    """Return whether a stream shows colours and its user wants them (https://no-color.org)."""
    return _is_obedient(stream) and not os.environ.get("NO_COLOR")


def _is_obedient(stream: TextIO) -> bool:
    return stream.isatty() and os.environ.get("TERM") != "dumb"


def clear_screen() -> None:
    """Clear the screen of a terminal."""
    if _is_obedient(sys.stdout):
        sys.stdout.write(_CLEAR)


@contextmanager
def opened(file: Path | None) -> Iterator[TextIO]:
    """Open a new file, or standard output without a name; remove the file if it is not written completely.

    Raises:
        IllegalSetting: the file exists already, or cannot be written.
    """
    if file is None:
        try:
            yield sys.stdout
        finally:
            sys.stdout.flush()  # at its exit Python would end with 120 if that fails
        return
    try:
        new = file.open("x", encoding="utf-8", newline="")
    except OSError as error:
        raise IllegalSetting(f"--file {file}: {error.strerror}; name a new file in a folder that exists") from None
    try:
        with new:
            yield new
    except BaseException:
        file.unlink(missing_ok=True)
        raise
