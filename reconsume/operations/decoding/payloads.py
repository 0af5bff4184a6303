"""Bytes of a record as text: JSON, text, a registered schema, else hexadecimal."""

from __future__ import annotations

import importlib
import json
import re
import struct
from dataclasses import dataclass
from typing import Final, Protocol

from reconsume.bridge.kafka.schema_registry import RegisteredSchema, SchemaUnknown
from reconsume.delay_levels.errors import ReconsumeError

_MOST_BYTES: Final = 1_048_576
"""The maximum size of a payload to decode."""
MOST_CHARACTERS: Final = 65_536
HEX_BYTES: Final = 4_096
_HEX_ROW: Final = 16
_DEEPEST: Final = 20
_TOKEN: Final = re.compile(r'"(?:[^"\\]|\\.)*"|[{}\[\],:]|[^\s{}\[\],:"]+')
_ROOM: Final = "reconsume.operations.decoding"
_BY_LIBRARY: Final = {
    "AVRO": ("avro", f"{_ROOM}.avro", "decode_avro"),
    "PROTOBUF": ("protobuf", f"{_ROOM}.protobuf", "decode_protobuf"),
}
_CONFLUENT: Final = struct.Struct(">bI")
"""A zero, and the id of the schema."""


class Undecodable(ReconsumeError):
    """The bytes do not match their schema."""


class Schemas(Protocol):
    """Schemas by id, as in `SchemaRegistry`."""

    def schema(self, number: int) -> RegisteredSchema:
        """Return the schema; raises `SchemaUnknown`."""


@dataclass(frozen=True, slots=True)
class DecodedPayload:
    """A payload as text. The text is untrusted: escape it for the medium that shows it.

    Attributes:
        format: `null`, `empty`, `json`, `text`, `avro`, `protobuf`, `json schema` or `hex`.
        text: the text; empty for `null` and `empty`.
        is_cut: whether the text is shortened.
        schema: the id of the schema in the bytes; None without one.
        note: why that schema was not used; else empty.
    """

    format: str
    text: str
    is_cut: bool = False
    schema: int | None = None
    note: str = ""


def decode_payload(payload: bytes | None, schemas: Schemas | None = None) -> DecodedPayload:
    """Return a key or value as text. Never raises: undecodable bytes are shown in another format, with a note.

    Bytes in Confluent's wire format (a zero, four bytes with a schema id) are decoded by their schema. Others are shown
    as JSON or text, or as hexadecimal if they are not UTF-8 or have control characters.

    Args:
        payload: the bytes.
        schemas: a schema registry; None does not decode Confluent's format.
    """
    if not payload:
        return DecodedPayload("null" if payload is None else "empty", "")
    if payload[0] != 0 or len(payload) < _CONFLUENT.size:
        return _plain(payload)
    number = _CONFLUENT.unpack_from(payload)[1]
    if schemas is None or len(payload) > _MOST_BYTES:
        why = f"over {_MOST_BYTES:,} bytes are not decoded" if schemas else "name a schema registry to decode it"
        return _with_note(payload, number, f"perhaps of schema {number}; {why}")
    try:
        kind, text = _by_schema(payload[_CONFLUENT.size :], schemas.schema(number))
    except ReconsumeError as error:
        return _with_note(payload, number, str(error)[:500])
    return DecodedPayload(kind, text[:MOST_CHARACTERS], len(text) > MOST_CHARACTERS, number)


def _by_schema(body: bytes, schema: RegisteredSchema) -> tuple[str, str]:
    try:
        if schema.kind == "JSON":
            return "json schema", _pretty(body.decode())
        if schema.kind in _BY_LIBRARY:
            shown, module, function = _BY_LIBRARY[schema.kind]
            # Imported here, because its library belongs to an extra.
            return shown, getattr(importlib.import_module(module), function)(body, schema)
    except ImportError as error:
        raise SchemaUnknown(f"{error.name} is missing: pip install '.[schemas]' in the checkout") from None
    except Exception as error:
        # The libraries raise errors of any type for bytes that do not match.
        why = f"the bytes do not fit the schema: {type(error).__name__}: {error}"
        raise Undecodable(why) from error
    raise SchemaUnknown(f"schemas of the type {schema.kind} are not supported")


def _with_note(payload: bytes, number: int, note: str) -> DecodedPayload:
    shown = _plain(payload)
    return DecodedPayload(shown.format, shown.text, shown.is_cut, number, note)


def _plain(payload: bytes) -> DecodedPayload:
    try:
        text = payload.decode()
    except UnicodeDecodeError:
        return _hex(payload)
    if any(one < " " and one not in "\t\r\n" for one in text[:MOST_CHARACTERS]):
        return _hex(payload)
    kind = "text"
    if len(payload) <= _MOST_BYTES and text.lstrip()[:1] in ("{", "["):
        try:
            text, kind = _pretty(text), "json"
        except (ValueError, RecursionError):
            kind = "text"
    return DecodedPayload(kind, text[:MOST_CHARACTERS], len(text) > MOST_CHARACTERS)


def _pretty(text: str) -> str:
    """Give JSON a line for each member, and keep numbers, escapes and duplicate members unchanged.

    Raises:
        ValueError, RecursionError: not JSON, or too deep.
    """
    json.loads(text)
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


def hex_dump(payload: bytes) -> str:
    """Return rows of 16 bytes: offset, hexadecimal, ASCII."""
    return "\n".join(
        f"{at:08x}  {row.hex(' '):<{3 * _HEX_ROW}} {_ascii(row)}"
        for at in range(0, len(payload), _HEX_ROW)
        for row in (payload[at : at + _HEX_ROW],)
    )


def _ascii(row: bytes) -> str:
    text = row.decode("latin-1")
    return "".join(one if one.isascii() and one.isprintable() else "." for one in text)


def _hex(payload: bytes) -> DecodedPayload:
    return DecodedPayload("hex", hex_dump(payload[:HEX_BYTES]), len(payload) > HEX_BYTES)
