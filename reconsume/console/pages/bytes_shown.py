"""Keys, values and headers for people; shortened parts are marked."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from reconsume.delay_levels.wire.properties import Header, is_reserved
from reconsume.operations.decoding.payloads import (
    HEX_BYTES,
    MOST_CHARACTERS,
    DecodedPayload,
    Schemas,
    decode_payload,
    hex_dump,
)

_HEADER_CHARACTERS: Final = 8_192


@dataclass(frozen=True, slots=True)
class Blob:
    """A key or a value.

    Attributes:
        size: the size in bytes; None if it is missing.
        decoded: the result of `decode_payload`; None if it is hidden, empty or missing.
        text: its bytes as text; None if they are not UTF-8, or if `decoded` shows the same.
        text_is_cut: whether the text is shortened.
        dump: its bytes in hexadecimal.
        dumped: the number of bytes in `dump`.
    """

    size: int | None
    decoded: DecodedPayload | None = None
    text: str | None = None
    text_is_cut: bool = False
    dump: str = ""
    dumped: int = 0


def blob(value: bytes | None, schemas: Schemas | None = None, *, hide: bool) -> Blob:
    """Return the bytes to show; only their size if they are hidden.

    Args:
        value: the bytes.
        schemas: a schema registry, if there is one.
        hide: show only the size.
    """
    if not value or hide:
        return Blob(None if value is None else len(value))
    decoded, text = decode_payload(value, schemas), _text(value)
    if text is not None and text[:MOST_CHARACTERS] == decoded.text:
        text = None
    return Blob(
        len(value),
        decoded,
        None if text is None else text[:MOST_CHARACTERS],
        text is not None and len(text) > MOST_CHARACTERS,
        hex_dump(value[:HEX_BYTES]),
        min(len(value), HEX_BYTES),
    )


def _text(value: bytes) -> str | None:
    try:
        return value.decode()
    except UnicodeDecodeError:
        return None


def one_line(value: bytes | None, longest: int, *, hide: bool) -> str | None:
    """Return text for a cell of a table; None if it is missing or hidden."""
    if value is None or hide:
        return None
    text = _text(value)
    return shorten(value.hex() if text is None else text, longest)


def shorten(text: str, longest: int) -> str:
    """Return text on one line, with an ellipsis if shortened."""
    line = " ".join(text[: longest * 4].split())
    return line if len(line) <= longest and len(text) <= longest * 4 else line[: longest - 1] + "…"


@dataclass(frozen=True, slots=True)
class HeaderRow:
    """A header of a record.

    Attributes:
        text: the value; None if it is missing or hidden.
        is_hex: whether the text is hexadecimal, because the value is not UTF-8.
        is_cut: whether the text is shortened.
        size: the size in bytes; None without a value.
        is_ours: whether reconsume has written it.
        is_hidden: only its size may be shown.
    """

    name: str
    text: str | None
    is_hex: bool
    is_cut: bool
    size: int | None
    is_ours: bool
    is_hidden: bool


def header_rows(headers: Iterable[Header], *, hide: bool) -> list[HeaderRow]:
    """Return all headers in order."""
    return [_header_row(name, value, hide=hide) for name, value in headers]


def _header_row(name: str, value: bytes | None, *, hide: bool) -> HeaderRow:
    ours = is_reserved(name)
    if value is None or (hide and not ours):
        return HeaderRow(name, None, False, False, None if value is None else len(value), ours, value is not None)
    text = _text(value)
    shown = value.hex(" ") if text is None else text
    is_cut = len(shown) > _HEADER_CHARACTERS
    return HeaderRow(name, shown[:_HEADER_CHARACTERS], text is None, is_cut, len(value), ours, False)
