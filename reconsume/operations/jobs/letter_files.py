"""Dead letters as files: JSON lines, CSV for spreadsheets, Parquet."""

from __future__ import annotations

import base64
import csv
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final, Protocol, TextIO

from reconsume.delay_levels.errors import IllegalSetting
from reconsume.delay_levels.human_text import json_text, visible
from reconsume.operations.dead_letter_states import state_name
from reconsume.operations.dead_letters import DeadLetterRecord

FORMATS: Final = ("jsonl", "csv", "parquet")
COLUMNS: Final = (
    "record",
    "state",
    "dead_since",
    "message_id",
    "origin_topic",
    "retries",
    "exception_class",
    "cause",
    "replay_times",
    "key",
    "value",
)
_BEGINS_FORMULA: Final = ("=", "+", "-", "@", "\t", "\r", "\n", "＝", "＋", "－", "＠")
"""Spreadsheets treat a cell with such a beginning as a formula (OWASP, CSV injection)."""
_ROWS_OF_A_GROUP: Final = 1_000
_BYTES_OF_A_GROUP: Final = 32 * 1024 * 1024


class LetterFile(Protocol):
    """A file of dead letters for writing."""

    def write(self, one: DeadLetterRecord) -> None:
        """Add a letter."""

    def close(self) -> None:
        """Write the end of the file."""


def letter_file(form: str, out: TextIO | None, path: Path | None) -> LetterFile:
    """Open a file for writing.

    Args:
        form: one of `FORMATS`.
        out: the stream for `jsonl` and `csv`.
        path: the path of the Parquet file, which must not exist.

    Raises:
        IllegalSetting: the Parquet file has no path, or pyarrow is not installed.
    """
    if form == "parquet":
        return _ParquetFile(path)
    assert out is not None
    return TextLetters(csv_writer(out) if form == "csv" else json_line_writer(out))


class TextLetters:
    """JSON lines or CSV."""

    def __init__(self, write: Callable[[Mapping[str, Any]], None]) -> None:
        self._write = write

    def write(self, one: DeadLetterRecord) -> None:
        """Add a letter."""
        self._write(summary(one) | content(one))

    def close(self) -> None:
        """Do nothing: the text is complete."""


class _ParquetFile:
    """A Parquet file: key, value and headers are binary columns."""

    def __init__(self, path: Path | None) -> None:
        try:
            import pyarrow as pa  # noqa: PLC0415 - only where it is wanted
            from pyarrow import parquet  # noqa: PLC0415
        except ImportError:
            raise IllegalSetting("--format parquet needs pyarrow: pip install '.[parquet]' in the checkout") from None
        if path is None:
            raise IllegalSetting("--format parquet needs --file: standard output takes jsonl or csv")
        text = pa.string()
        header = pa.struct([("name", text), ("value", pa.binary())])
        fields = {
            **dict.fromkeys(COLUMNS, text),
            "retries": pa.int64(),
            "replay_times": pa.int64(),
            "key": pa.binary(),
            "value": pa.binary(),
            "headers": pa.list_(header),
            "dead_since": pa.timestamp("ms", "UTC"),
        }
        self._pa, self._schema = pa, pa.schema(fields)
        try:
            self._writer = parquet.ParquetWriter(path, self._schema, compression="zstd")
        except OSError as error:
            raise IllegalSetting(f"file {path}: {error}; name one that can be written") from None
        self._rows: list[dict[str, Any]] = []
        self._bytes = 0

    def write(self, one: DeadLetterRecord) -> None:
        """Add a letter."""
        headers = [{"name": name, "value": value} for name, value in one.headers]
        binary = {"key": one.key, "value": one.value, "headers": headers}
        self._rows.append(summary(one) | binary | {"dead_since": one.stored_ms})
        self._bytes += one.size
        if len(self._rows) >= _ROWS_OF_A_GROUP or self._bytes >= _BYTES_OF_A_GROUP:
            self._flush()

    def _flush(self) -> None:
        if self._rows:
            self._writer.write_table(self._pa.Table.from_pylist(self._rows, self._schema))
            self._rows, self._bytes = [], 0

    def close(self) -> None:
        """Write the rest, and the footer."""
        self._flush()
        self._writer.close()


def summary(one: DeadLetterRecord) -> dict[str, Any]:
    """Return a dead letter as a row of a list."""
    letter = one.letter
    return {
        "record": str(one.place),
        "state": state_name(one.state),
        "dead_since": moment(one.stored_ms),
        "message_id": letter.origin_message_id,
        "origin_topic": letter.origin_topic,
        "retries": letter.retries,
        "exception_class": letter.exception_class,
        "cause": letter.cause,
        "replay_times": letter.replay_times,
    }


def content(one: DeadLetterRecord) -> dict[str, Any]:
    """Return a whole dead letter; nothing is shortened."""
    headers = [[name, whole(value)] for name, value in one.headers]
    return {"key": whole(one.key), "value": whole(one.value), "headers": headers}


def whole(value: bytes | None) -> str | dict[str, str] | None:
    """Return the text; bytes that are not UTF-8 become `{"base64": …}`, which cannot be mistaken for text."""
    if value is None:
        return None
    try:
        return value.decode()
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(value).decode()}


def moment(milliseconds: int | None, precision: str = "milliseconds") -> str | None:
    """Return a moment as text; an impossible date stays a number."""
    if milliseconds is None:
        return None
    try:
        return datetime.fromtimestamp(milliseconds / 1000, UTC).isoformat(timespec=precision)
    except (OverflowError, ValueError, OSError):
        return str(milliseconds)


def json_line_writer(out: TextIO) -> Callable[[Mapping[str, Any]], None]:
    """Return a function that writes rows as JSON, one on each line."""

    def write(row: Mapping[str, Any]) -> None:
        out.write(json_text(row) + "\n")

    return write


def csv_writer(out: TextIO, columns: Sequence[str] = COLUMNS) -> Callable[[Mapping[str, Any]], None]:
    """Return a function that writes rows for a spreadsheet: possible formulas begin with `'`, controls are escapes."""
    table = csv.DictWriter(out, columns, extrasaction="ignore")
    table.writeheader()

    def write(row: Mapping[str, Any]) -> None:
        table.writerow({name: _csv_cell(value) for name, value in row.items()})

    return write


def _csv_cell(value: Any) -> Any:
    text = json_text(value) if isinstance(value, dict | list) else value
    if not isinstance(text, str):
        return text
    return visible("'" + text if text.startswith(_BEGINS_FORMULA) else text)
