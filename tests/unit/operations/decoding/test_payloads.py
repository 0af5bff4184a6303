"""Payloads as people see them: by real schemas of a registry over HTTP, and hostile ones."""

from __future__ import annotations

import datetime as dt
import io
import itertools
import json
import struct
from collections.abc import Iterator
from typing import Any

import fastavro
import pytest
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory, timestamp_pb2
from hypothesis import given
from hypothesis import strategies as st

from reconsume.bridge.kafka.schema_registry import RegisteredSchema, SchemaRegistry
from reconsume.delay_levels.errors import IllegalSetting
from reconsume.operations.decoding.payloads import decode_payload, hex_dump
from tests.support.hostile import HOSTILE
from tests.support.schema_registry import Registry, running_registry

SEAT = {"type": "record", "name": "Seat", "namespace": "n", "fields": [{"name": "row", "type": "int"}]}
FLIGHT = {
    "type": "record",
    "name": "Flight",
    "namespace": "n",
    "fields": [
        {"name": "number", "type": "string"},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
        {"name": "raw", "type": ["null", "bytes"]},
        {"name": "seats", "type": {"type": "array", "items": "n.Seat"}},
    ],
}


@pytest.fixture(scope="module")
def registry() -> Iterator[Registry]:
    with running_registry() as one:
        yield one


@pytest.fixture
def schemas(registry: Registry) -> SchemaRegistry:
    return SchemaRegistry(registry.url)


def confluent(number: int, body: bytes) -> bytes:
    return struct.pack(">bI", 0, number) + body


def avro(schema: Any, value: Any) -> bytes:
    stream = io.BytesIO()
    fastavro.schemaless_writer(stream, fastavro.parse_schema(schema), value)
    return stream.getvalue()


def test_avro_is_shown_as_json_with_its_references(registry: Registry, schemas: SchemaRegistry) -> None:
    seat = registry.add(SEAT)
    number = registry.add(FLIGHT, refers_to=(("n.Seat", seat),))
    fields = [*FLIGHT["fields"][:3], {"name": "seats", "type": {"type": "array", "items": SEAT}}]
    at = dt.datetime(2026, 11, 22, 10, 0, tzinfo=dt.UTC)
    value = {"number": HOSTILE, "at": at, "raw": b"\x00\xff", "seats": [{"row": 7}]}
    payload = confluent(number, avro(FLIGHT | {"fields": fields}, value))
    for _ in range(2):
        found = decode_payload(payload, schemas)
        assert (found.format, found.schema, found.note) == ("avro", number, "")
        assert json.loads(found.text) == {
            "number": HOSTILE,
            "at": "2026-11-22 10:00:00+00:00",
            "raw": "00ff",
            "seats": [{"row": 7}],
        }
    assert len([one for one in registry.asked if f"/ids/{number}" in one]) == 1
    assert decode_payload(payload[:-1], schemas).format == "hex"


def flights_file() -> descriptor_pb2.FileDescriptorProto:
    field = descriptor_pb2.FieldDescriptorProto
    file = descriptor_pb2.FileDescriptorProto(name="flights.proto", package="n", syntax="proto3")
    file.dependency.extend(["google/protobuf/timestamp.proto", "seats.proto"])
    file.message_type.add(name="Other")
    flight = file.message_type.add(name="Flight")
    leg = flight.nested_type.add(name="Leg")
    leg.field.add(name="from_port", number=1, type=field.TYPE_STRING, label=field.LABEL_OPTIONAL)
    leg.field.add(name="seat", number=2, type=field.TYPE_MESSAGE, type_name=".n.Seat", label=field.LABEL_OPTIONAL)
    stamp = ".google.protobuf.Timestamp"
    leg.field.add(name="at", number=3, type=field.TYPE_MESSAGE, type_name=stamp, label=field.LABEL_OPTIONAL)
    return file


def test_protobuf_is_shown_as_json_by_its_path_in_the_file(registry: Registry, schemas: SchemaRegistry) -> None:
    field = descriptor_pb2.FieldDescriptorProto
    seats = descriptor_pb2.FileDescriptorProto(name="seats.proto", package="n", syntax="proto3")
    seats.message_type.add(name="Seat").field.add(
        name="row", number=1, type=field.TYPE_INT32, label=field.LABEL_OPTIONAL
    )
    flights = flights_file()
    number = registry.add(
        flights.SerializeToString(),
        "PROTOBUF",
        (("seats.proto", registry.add(seats.SerializeToString(), "PROTOBUF")),),
    )
    pool = descriptor_pool.DescriptorPool()
    stamp = descriptor_pb2.FileDescriptorProto()
    timestamp_pb2.DESCRIPTOR.CopyToProto(stamp)
    for one in (stamp, seats, flights):
        pool.Add(one)
    leg = message_factory.GetMessageClass(pool.FindMessageTypeByName("n.Flight.Leg"))()
    leg.from_port, leg.seat.row, leg.at.seconds = HOSTILE, 7, 1_700_000_000
    path = bytes([4, 2, 0])  # two indexes, zigzag: 1, 0
    found = decode_payload(confluent(number, path + leg.SerializeToString()), schemas)
    assert (found.format, found.schema, found.note) == ("protobuf", number, "")
    assert json.loads(found.text) == {"from_port": HOSTILE, "seat": {"row": 7}, "at": "2023-11-14T22:13:20Z"}
    assert decode_payload(confluent(number, b"\x00"), schemas).text == "{}"
    unknown = decode_payload(confluent(number, b"\x00" + b"\x48\x05"), schemas)
    assert (unknown.format, unknown.text.strip()) == ("protobuf", "9: 5")
    for wrong in (b"\x02\x7f", b"\xff" * 20, b"", path + b"\x0a\xff"):
        assert decode_payload(confluent(number, wrong), schemas).note


def test_json_schema_is_shown_as_json(registry: Registry, schemas: SchemaRegistry) -> None:
    number = registry.add({"type": "object"}, "JSON")
    found = decode_payload(confluent(number, b'{"a":1,"b":[2]}'), schemas)
    assert (found.format, json.loads(found.text), "\n" in found.text) == ("json schema", {"a": 1, "b": [2]}, True)


@pytest.mark.parametrize(
    ("payload", "kind", "text"),
    [
        (None, "null", ""),
        (b"", "empty", ""),
        (b'{"a":[1]}', "json", '{\n  "a": [\n    1\n  ]\n}'),
        (b'{"a":1,"a":2}', "json", '{\n  "a": 1,\n  "a": 2\n}'),
        (b'{"a":1.00, "b": "x: {,} \\" y", "c": {}}', "json", '{\n  "a": 1.00,\n  "b": "x: {,} \\" y",\n  "c": {}\n}'),
        (b'{"half": ', "text", '{"half": '),
        (b"[NaN]x", "text", "[NaN]x"),
        ("zürich".encode(), "text", "zürich"),
        (b"[" * 100_000, "text", "[" * 65_536),
        (b"\xff\x00A", "hex", f"00000000  {'ff 00 41':<48} ..A"),
        (b"\x1b[2J", "hex", f"00000000  {'1b 5b 32 4a':<48} .[2J"),
    ],
)
def test_without_a_schema(payload: bytes | None, kind: str, text: str) -> None:
    found = decode_payload(payload)
    assert (found.format, found.text, found.note) == (kind, text, "")


def test_what_no_registry_knows_is_hexadecimal_and_asked_for_once_in_a_while(registry: Registry) -> None:
    now = [0.0]
    schemas = SchemaRegistry(registry.url, lambda: now[0])
    payload = confluent(4_000_000_000, b"x")
    for moment, times in ((0.0, 1), (29_999.0, 1), (30_000.0, 2)):
        now[0] = moment
        found = decode_payload(payload, schemas)
        assert (found.format, found.schema) == ("hex", 4_000_000_000)
        assert "unavailable" in found.note
        assert sum("4000000000" in one for one in registry.asked) == times
    assert "name a schema registry" in decode_payload(payload).note
    assert "unavailable" in decode_payload(payload, SchemaRegistry("http://127.0.0.1:9")).note


def test_a_registry_that_lets_callers_wait_is_asked_once_in_a_while() -> None:
    ticks = itertools.count(0, 2_000)  # each look at the clock finds it two seconds later
    schemas = SchemaRegistry("http://127.0.0.1:9", lambda: next(ticks))
    notes = [decode_payload(confluent(number, b"x"), schemas).note for number in range(1, 17)]
    assert "schema 1 is unavailable from the registry" in notes[0]
    assert all("the registry gave no answer a moment ago" in note for note in notes[1:-1]), notes
    assert "schema 16 is unavailable from the registry" in notes[-1], notes


def test_an_array_of_nothing_does_not_run_for_ever(registry: Registry, schemas: SchemaRegistry) -> None:
    number = registry.add({"type": "array", "items": {"type": "record", "name": "E", "fields": []}})
    found = decode_payload(confluent(number, b"\xfe" + b"\xff" * 7 + b"\x7f\x00"), schemas)
    assert "items that take no bytes" in found.note


def test_a_record_that_nests_a_million_times_ends_no_process(registry: Registry, schemas: SchemaRegistry) -> None:
    node = {"type": "record", "name": "Node", "fields": [{"name": "next", "type": ["null", "Node"]}]}
    found = decode_payload(confluent(registry.add(node), b"\x02" * 1_000_000 + b"\x00"), schemas)
    assert "RecursionError" in found.note


@pytest.mark.parametrize(("number", "shown"), [(258, "2.58"), (-1, "-0.01")])
@pytest.mark.parametrize("kind", ["bytes", "fixed"])
def test_a_decimal_is_shown_as_a_number(kind: str, number: int, shown: str) -> None:
    body = number.to_bytes(2, "big", signed=True)
    found = decode_payload(confluent(1, (b"\x04" if kind == "bytes" else b"") + body), decimals(kind, 2))
    assert (found.format, found.note, json.loads(found.text)) == ("avro", "", shown)


@pytest.mark.parametrize("kind", ["bytes", "fixed"])
def test_a_decimal_of_many_bytes_is_not_converted(kind: str) -> None:
    """Python would take five minutes for a megabyte, and no other thread would run."""
    length = b"\xc0\x9a\x0c" if kind == "bytes" else b""
    found = decode_payload(confluent(1, length + b"\x7f" * 100_000), decimals(kind, 100_000))
    assert "a decimal of 100000 bytes" in found.note


@pytest.mark.parametrize("kind", ["string", "long", "int", "bytes", {"type": "array", "items": "int"}])
def test_a_number_of_many_bytes_is_not_read(kind: Any) -> None:
    schema = Fixed(RegisteredSchema("AVRO", json.dumps(kind), b""))
    assert "a number of more than 10 bytes" in decode_payload(confluent(1, b"\xff" * 100_000), schema).note


@pytest.mark.parametrize("number", [0, -(2**63), 2**63 - 1])
def test_a_long_is_shown_whole(number: int) -> None:
    schema = Fixed(RegisteredSchema("AVRO", '"long"', b""))
    assert decode_payload(confluent(1, avro("long", number)), schema).text == str(number)


class Fixed:
    """One schema under every id."""

    def __init__(self, schema: RegisteredSchema) -> None:
        self._schema = schema

    def schema(self, _number: int) -> RegisteredSchema:
        return self._schema


def decimals(kind: str, size: int) -> Fixed:
    schema = {"type": kind, "name": "D", "size": size, "logicalType": "decimal", "precision": 4, "scale": 2}
    return Fixed(RegisteredSchema("AVRO", json.dumps(schema), b""))


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
)


@given(JSON.filter(lambda value: isinstance(value, list | dict)), st.sampled_from([None, 0, 1]))
def test_indented_json_is_the_same_json(value: object, indent: int | None) -> None:
    found = decode_payload(json.dumps(value, indent=indent).encode())
    assert (found.format, json.loads(found.text)) == ("json", value)


def test_deep_json_stays_small() -> None:
    assert len(decode_payload(b"[" * 400 + b"1,2,3" + b"]" * 400).text) < 65_536


@given(st.binary(max_size=200))
def test_a_dump_holds_every_byte(value: bytes) -> None:
    assert bytes.fromhex("".join(line[10:58] for line in hex_dump(value).splitlines())) == value


@given(body=st.binary(max_size=200))
def test_any_bytes_are_shown_in_some_way(body: bytes) -> None:
    fields = [*FLIGHT["fields"][:3], {"name": "seats", "type": {"type": "array", "items": SEAT}}]
    file = descriptor_pb2.FileDescriptorProto(name="a.proto", syntax="proto3")
    file.message_type.add(name="A").field.add(name="a", number=1, type=9, label=1)
    for schema in (
        RegisteredSchema("AVRO", json.dumps(FLIGHT | {"fields": fields}), b""),
        RegisteredSchema("PROTOBUF", "", file.SerializeToString()),
        RegisteredSchema("JSON", "{}", b""),
        RegisteredSchema("OTHER", HOSTILE, b""),
        RegisteredSchema("AVRO", HOSTILE, b""),
    ):
        for payload in (body, confluent(1, body)):
            assert decode_payload(payload, Fixed(schema)).format


@pytest.mark.parametrize(
    "url",
    [
        *("nowhere", "ftp://a", "", "http://a:99999", "http://a,http://me:S3cret/x@b"),
        *("http://me:S3cret/x@a", "http://me:S3cret?x@a", "http://me:S3cret#x@a"),
    ],
)
def test_a_url_that_is_none_is_refused_without_its_password(url: str) -> None:
    with pytest.raises(IllegalSetting, match="URL") as refused:
        SchemaRegistry(url)
    assert "S3cret" not in str(refused.value)
