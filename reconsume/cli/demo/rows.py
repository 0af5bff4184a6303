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
from reconsume.delay_levels.human_text import pair

Row = dict[str, Any]


def read_rows(path: Path | None) -> Iterator[Row]:
    """Yield the rows of a file, plain or gzip by its name; None reads the packaged 20,000 flights.

    A name that ends with `.csv` or `.csv.gz` is CSV with a header line; all others have a JSON object on each line.

    Raises:
        IllegalSetting: the file cannot be read, or a line is malformed.
    """
    source = files("reconsume.cli.demo") / "flights.csv.gz" if path is None else path
    with ExitStack() as stack:
        try:
            raw = stack.enter_context(source.open("rb"))
        except OSError as error:
            raise IllegalSetting(f"--input: {error}") from None
        data = stack.enter_context(gzip.open(raw)) if source.name.endswith(".gz") else raw
        text = stack.enter_context(io.TextIOWrapper(cast("IO[bytes]", data), "utf-8", newline=""))
        is_csv = source.name.removesuffix(".gz").endswith(".csv")
        try:
            yield from _csv_rows(source.name, text) if is_csv else _json_rows(source.name, text)
        except (OSError, EOFError, UnicodeDecodeError, csv.Error, zlib.error) as error:
            raise IllegalSetting(f"--input {path}: cannot be read to its end: {error}") from error


def _csv_rows(name: str, text: TextIO) -> Iterator[Row]:
    reader = csv.DictReader(text)
    for row in reader:
        if None in row:
            raise IllegalSetting(f"--input {name}, line {reader.line_num}: must not have more values than the header")
        yield row


def _json_rows(name: str, text: TextIO) -> Iterator[Row]:
    for number, line in enumerate(text, start=1):
        if not line.strip():
            continue
        try:
            row = json.loads(line)
        except (ValueError, RecursionError) as error:
            raise IllegalSetting(f"--input {name}, line {number}: not JSON: {error}") from None
        if not isinstance(row, dict):
            raise IllegalSetting(f"--input {name}, line {number}: must be a JSON object")
        yield row


def parse_condition(text: str) -> Callable[[Row], bool]:
    """Parse `COLUMN=VALUE`; return whether a row can never be processed. An empty VALUE means missing or empty.

    Raises:
        IllegalSetting: `=` is missing.
    """
    column, value = pair("--fail-if", text, "COLUMN=VALUE, such as dep_time=NA")
    return lambda row: str(row.get(column) if row.get(column) is not None else "") == value
