"""Protobuf payloads as JSON text."""

from __future__ import annotations

import importlib
from typing import Any, Final

from google.protobuf import descriptor_pb2, descriptor_pool, json_format, message_factory, text_format
from google.protobuf.unknown_fields import UnknownFieldSet

from reconsume.bridge.kafka.schema_registry import RegisteredSchema

_MOST_INDEXES: Final = 100


def decode_protobuf(body: bytes, schema: RegisteredSchema) -> str:
    """Return the message as JSON, or in Protobuf's text form if it has fields unknown to the schema.

    Raises:
        Exception: any exception of protobuf for bytes that do not match.
    """
    pool = descriptor_pool.DescriptorPool()
    file = descriptor_pb2.FileDescriptorProto.FromString(schema.file)
    file.name = file.name or "schema.proto"
    known: dict[str, Any] = {}
    for name, reference in schema.references:
        one = descriptor_pb2.FileDescriptorProto.FromString(reference.file)
        one.name = name
        known[name] = one
    for one in (*known.values(), file):
        _add_well_known(pool, one.dependency, known)
        pool.Add(one)
    indexes, at = _indexes(body)
    kind = file.message_type[indexes[0]]
    names = [kind.name]
    for index in indexes[1:]:
        kind = kind.nested_type[index]
        names.append(kind.name)
    full_name = ".".join(filter(None, (file.package, *names)))
    message = message_factory.GetMessageClass(pool.FindMessageTypeByName(full_name))()
    message.ParseFromString(body[at:])
    if len(UnknownFieldSet(message)):
        return str(text_format.MessageToString(message, as_utf8=True, print_unknown_fields=True))
    return str(
        json_format.MessageToJson(
            message, preserving_proto_field_name=True, ensure_ascii=False, indent=2, descriptor_pool=pool
        )
    )


def _add_well_known(pool: Any, names: Any, known: dict[str, Any]) -> None:
    """Add Google's own files, such as `google/protobuf/timestamp.proto`, which registries do not have."""
    for name in names:
        if name in known:
            continue
        stem = name.removeprefix("google/protobuf/").removesuffix(".proto")
        if name != f"google/protobuf/{stem}.proto" or not stem.isidentifier():
            raise ValueError(f"the schema imports {name}, which is not among its references")
        one = descriptor_pb2.FileDescriptorProto()
        importlib.import_module(f"google.protobuf.{stem}_pb2").DESCRIPTOR.CopyToProto(one)
        known[name] = one
        _add_well_known(pool, one.dependency, known)
        pool.Add(one)


def _indexes(body: bytes) -> tuple[list[int], int]:
    """Return the path to the message type in its file, and the message's start; a single zero is the first type."""
    count, at = _zigzag(body, 0)
    if count == 0:
        return [0], at
    if not 0 < count <= _MOST_INDEXES:
        raise ValueError(f"{count} message indexes")
    found = []
    for _ in range(count):
        index, at = _zigzag(body, at)
        if index < 0:
            raise ValueError(f"message index {index}")
        found.append(index)
    return found, at


def _zigzag(body: bytes, at: int) -> tuple[int, int]:
    number = shift = 0
    while True:
        byte = body[at]
        number |= (byte & 0x7F) << shift
        at, shift = at + 1, shift + 7
        if not byte & 0x80:
            return (number >> 1) ^ -(number & 1), at
        if shift > 63:  # noqa: PLR2004 - bits
            raise ValueError("a message index is too long")
