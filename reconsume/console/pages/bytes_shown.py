"""Keys, values and headers as people can look at them. Pure; whatever is cut says so."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final

from reconsume.delay_levels.wire.properties import REPLAY_ID, REPLAY_TIMES, Header, is_ours

TEXT_CHARACTERS: Final = 65_536
HEX_BYTES: Final = 4_096
_HEADER_CHARACTERS: Final = 8_192
_WIDTH: Final = 16
_DEEPEST: Final = 20
_TOKEN: Final = re.compile(r'"(?:[^"\\]|\\.)*"|[{}\[\],:]|[^\s{}\[\],:"]+')
_PRINTABLE: Final = range(0x20, 0x7F)


@dataclass(frozen=True, slots=True)
class Blob:
    """A key or a value.

    Attributes:
        size: in bytes; None: there is none.
        text: None where it is not UTF-8.
        text_is_cut: there is more of it.
        pretty: its JSON, with a line for each member; None where it is none.
        dump: in hexadecimal.
        dumped: so many bytes of it stand in `dump`.
    """

    size: int | None
    text: str | None = None
    text_is_cut: bool = False
    pretty: str | None = None
    dump: str = ""
    dumped: int = 0


def blob(value: bytes | None, *, hide: bool) -> Blob:
    """Return the bytes to show; only their size if they are hidden."""
    if value is None or hide:
        return Blob(None if value is None else len(value))
    text = _text(value)
    return Blob(
        len(value),
        None if text is None else text[:TEXT_CHARACTERS],
        text is not None and len(text) > TEXT_CHARACTERS,
        None if text is None else _pretty(text),
        hex_dump(value[:HEX_BYTES]),
        min(len(value), HEX_BYTES),
    )


def hex_dump(value: bytes) -> str:
    """Lines of offset, 16 bytes and their ASCII, as `hexdump -C` writes them."""
    return "\n".join(_dump_lines(value))


def _dump_lines(value: bytes) -> Iterator[str]:
    for start in range(0, len(value), _WIDTH):
        part = value[start : start + _WIDTH]
        ascii_text = "".join(chr(byte) if byte in _PRINTABLE else "." for byte in part)
        yield f"{start:06x}  {part.hex(' '):<{_WIDTH * 3 - 1}}  {ascii_text}"


def _text(value: bytes) -> str | None:
    try:
        return value.decode()
    except UnicodeDecodeError:
        return None


def _pretty(text: str) -> str | None:
    """Return an object or a list, indented; other JSON is readable as it is."""
    if len(text) > TEXT_CHARACTERS or text.lstrip()[:1] not in ("{", "["):
        return None
    try:
        json.loads(text)
    except (ValueError, RecursionError):
        return None
    return _indented(text)


def _indented(text: str) -> str:
    """JSON with a line for each member; numbers, escapes and members that stand there twice are as they were."""
    out: list[str] = []
    depth, before = 0, ""
    for token in _TOKEN.findall(text):
        if token in ("}", "]"):
            depth -= 1
            if before not in ("{", "["):
                out.append(_new_line(depth))
        elif before in ("{", "[", ","):
            out.append(_new_line(depth))
        elif before == ":":
            out.append(" ")
        out.append(token)
        depth += token in ("{", "[")
        before = token
    return "".join(out)


def _new_line(depth: int) -> str:
    return "\n" + "  " * min(depth, _DEEPEST)


def one_line(value: bytes | None, longest: int, *, hide: bool) -> str | None:
    """For a cell of a table; None where there is none, or where it is to be hidden."""
    if value is None or hide:
        return None
    text = _text(value)
    return shorten(value.hex() if text is None else text, longest)


def shorten(text: str, longest: int) -> str:
    """On one line, with an ellipsis where it was cut."""
    line = " ".join(text[: longest * 4].split())
    return line if len(line) <= longest and len(text) <= longest * 4 else line[: longest - 1] + "…"


@dataclass(frozen=True, slots=True)
class HeaderRow:
    """A header of a record.

    Attributes:
        text: None where it has no value, or where it is hidden.
        is_hex: the text is its bytes in hexadecimal, because it is not UTF-8.
        is_cut: there is more of it.
        size: in bytes; None without a value.
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
    """All of them, in their order."""
    return [_header_row(name, value, hide=hide) for name, value in headers]


def _header_row(name: str, value: bytes | None, *, hide: bool) -> HeaderRow:
    ours = is_ours(name) or name in (REPLAY_ID, REPLAY_TIMES)
    if value is None or (hide and not ours):
        return HeaderRow(name, None, False, False, None if value is None else len(value), ours, value is not None)
    text = _text(value)
    shown = value.hex(" ") if text is None else text
    is_cut = len(shown) > _HEADER_CHARACTERS
    return HeaderRow(name, shown[:_HEADER_CHARACTERS], text is None, is_cut, len(value), ours, False)
