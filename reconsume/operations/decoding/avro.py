"""Avro payloads as JSON text."""

from __future__ import annotations

import io
import json
from collections.abc import Mapping
from typing import Any, Final

from fastavro import parse_schema

# The compiled reader (fastavro 1.13) crashes the process on a record with a million nested levels: it has no limit.
from fastavro._read_py import read_data
from fastavro.io.binary_decoder import BinaryDecoder
from fastavro.read import LOGICAL_READERS

from reconsume.bridge.kafka.schema_registry import RegisteredSchema

_RECORDS: Final = ("record", "error")
_NUMBER_BYTES: Final = 10
"""The maximum size of an encoded int or long."""
_DECIMAL_BYTES: Final = 1_024
_DECIMAL: Final = "decimal of reconsume"
"""Our logical type in place of `decimal`, so that other users of fastavro in the process keep theirs."""


class _Decoder(BinaryDecoder):
    """A decoder with a limit for numbers; that of fastavro takes a second for 100 KB, and its time is quadratic."""

    def read_long(self) -> int:
        number = 0
        for at in range(_NUMBER_BYTES):
            byte: bytes = self.fo.read(1)
            if not byte:
                raise EOFError("the bytes end within a number")
            number |= (byte[0] & 0x7F) << 7 * at
            if byte[0] < 0x80:  # noqa: PLR2004 - no other byte follows
                return (number >> 1) ^ -(number & 1)
        raise ValueError(f"a number of more than {_NUMBER_BYTES} bytes")

    read_int = read_long


def _read_decimal(data: bytes, writer_schema: Any = None, reader_schema: Any = None) -> Any:
    """Read a decimal of limited size: Python takes minutes for 1 MB, and no other thread runs meanwhile."""
    if len(data) > _DECIMAL_BYTES:
        raise ValueError(f"a decimal of {len(data)} bytes; over {_DECIMAL_BYTES} are not converted")
    return LOGICAL_READERS["bytes-decimal"](data, writer_schema, reader_schema)


LOGICAL_READERS.update({f"{kind}-{_DECIMAL}": _read_decimal for kind in ("bytes", "fixed")})


def decode_avro(body: bytes, schema: RegisteredSchema) -> str:
    """Return the data as JSON; bytes become hexadecimal, and types that JSON lacks become text.

    Raises:
        Exception: any exception of fastavro for bytes that do not match.
    """
    named: dict[str, Any] = {}
    for _, reference in schema.references:
        parse_schema(_loads(reference.text), named_schemas=named)
    parsed = parse_schema(_loads(schema.text), named_schemas=named)
    if _repeats_nothing(parsed, named):
        # Nine bytes can announce 2 ** 62 such items, and reading them would never end.
        raise ValueError("an array of the schema has items that take no bytes")
    stream = io.BytesIO(body)
    decoder = _Decoder(stream)  # type: ignore[no-untyped-call]  # fastavro has no types here
    found = read_data(decoder, parsed, {"writer": named, "reader": {}})  # type: ignore[no-untyped-call]
    if left := len(body) - stream.tell():
        raise ValueError(f"{left} bytes are left over")
    return json.dumps(found, ensure_ascii=False, indent=2, default=_shown)


def _loads(text: str) -> Any:
    """Return a schema with our logical type for decimals."""

    def ours(one: dict[str, Any]) -> dict[str, Any]:
        return one | {"logicalType": _DECIMAL} if one.get("logicalType") == "decimal" else one

    return json.loads(text, object_hook=ours)


def _shown(value: Any) -> Any:
    return value.hex() if isinstance(value, bytes) else str(value)


def _repeats_nothing(schema: Any, named: Mapping[str, Any]) -> bool:
    """Return whether the schema has an array whose items may take no bytes."""
    left, seen = [schema, *named.values()], set[int]()
    while left:
        one = left.pop()
        if isinstance(one, list):
            left += one
        elif isinstance(one, dict) and id(one) not in seen:
            seen.add(id(one))
            if one["type"] == "array" and _takes_nothing(one["items"], named, frozenset()):
                return True
            inner = (
                one.get("items"),
                one.get("values"),
                one["type"],
                [field["type"] for field in one.get("fields", ())],
            )
            left += inner
    return False


def _takes_nothing(one: Any, named: Mapping[str, Any], within: frozenset[str]) -> bool:
    if isinstance(one, str):
        if one in named and one not in within:
            return _takes_nothing(named[one], named, within | {one})
        return one == "null" or one in within
    if isinstance(one, list):
        return False  # the choice takes a byte
    kind = one["type"]
    if kind in _RECORDS:
        return all(_takes_nothing(field["type"], named, within | {one["name"]}) for field in one["fields"])
    if kind == "fixed":
        return bool(one["size"] == 0)
    return kind == "null" or (not isinstance(kind, str) and _takes_nothing(kind, named, within))
