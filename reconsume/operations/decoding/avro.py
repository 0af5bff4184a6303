"""Avro payloads as JSON text."""

from __future__ import annotations

import io
import json
from collections.abc import Mapping
from typing import Any, Final

from fastavro import parse_schema

# The compiled reader (fastavro 1.13) crashes the process on a record with a million nested levels: it has no limit.
from fastavro._read_py import schemaless_reader

from reconsume.bridge.kafka.schema_registry import RegisteredSchema

_RECORDS: Final = ("record", "error")


def decode_avro(body: bytes, schema: RegisteredSchema) -> str:
    """Return the data as JSON; bytes become hexadecimal, and types that JSON lacks become text.

    Raises:
        Exception: any exception of fastavro for bytes that do not match.
    """
    named: dict[str, Any] = {}
    for _, reference in schema.references:
        parse_schema(json.loads(reference.text), named_schemas=named)
    parsed = parse_schema(json.loads(schema.text), named_schemas=named)
    if _repeats_nothing(parsed, named):
        # Nine bytes can announce 2 ** 62 such items, and reading them would never end.
        raise ValueError("an array of the schema has items that take no bytes")
    stream = io.BytesIO(body)
    found = schemaless_reader(stream, parsed, None)
    if left := len(body) - stream.tell():
        raise ValueError(f"{left} bytes are left over")
    return json.dumps(found, ensure_ascii=False, indent=2, default=_shown)


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
