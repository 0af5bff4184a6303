"""Rows to produce: the packaged flights, or any CSV or JSON-lines file."""

from __future__ import annotations

import csv
import gzip
import io
import json
import zlib
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from importlib.resources import files
from pathlib import Path
from typing import IO, Any, TextIO, cast

from reconsume.delay_levels.errors import IllegalSetting

__all__ = ["Row", "open_rows", "parse_condition", "read_rows"]

Row = dict[str, Any]


def read_rows(path: Path | None) -> Iterator[Row]:
    """The rows of a file, plain or gzip; None reads the packaged 20,000 flights.

    A name that ends in `.csv` or `.csv.gz` is CSV with a header line, all else is a JSON object a line.

    Raises:
        IllegalSetting: the file cannot be read, or a line is not what it must be.
    """
    with open_rows(path) as (name, text):
        rows = csv.DictReader(text) if name.removesuffix(".gz").endswith(".csv") else _json_rows(name, text)
        yield from rows


class open_rows:  # noqa: N801 - used like `open`
    """The file as text, with its name; gzip is recognised by the name."""

    def __init__(self, path: Path | None) -> None:
        self._path = path
        self._open = ExitStack()

    def __enter__(self) -> tuple[str, TextIO]:
        source = files("reconsume.cli.demo") / "flights.csv.gz" if self._path is None else self._path
        try:
            raw = self._open.enter_context(source.open("rb"))
        except OSError as error:
            raise IllegalSetting(f"--input: {error}") from None
        data = self._open.enter_context(gzip.open(raw)) if source.name.endswith(".gz") else raw
        return source.name, self._open.enter_context(io.TextIOWrapper(cast("IO[bytes]", data), "utf-8", newline=""))

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, *_: object) -> None:
        self._open.close()
        if isinstance(error, OSError | EOFError | UnicodeDecodeError | csv.Error | zlib.error):
            raise IllegalSetting(f"--input {self._path}: cannot be read to its end: {error}") from error


def _json_rows(name: str, text: TextIO) -> Iterator[Row]:
    for number, line in enumerate(text, start=1):
        if not line.strip():
            continue
        try:
            row = json.loads(line)
        except ValueError as error:
            raise IllegalSetting(f"--input {name}, line {number}: not JSON: {error}") from None
        if not isinstance(row, dict):
            raise IllegalSetting(f"--input {name}, line {number}: must be a JSON object")
        yield row


def parse_condition(text: str) -> Callable[[Row], bool]:
    """`COLUMN=VALUE`: whether a row can never be processed. An empty VALUE means missing or empty.

    Raises:
        IllegalSetting: there is no `=`.
    """
    column, equals, value = text.partition("=")
    if not equals or not column:
        raise IllegalSetting(f"--fail-if {text!r}: write COLUMN=VALUE, such as dep_time=NA")
    return lambda row: str(row.get(column) if row.get(column) is not None else "") == value
