"""Schemas of a Confluent Schema Registry, read with confluent-kafka's own client."""

from __future__ import annotations

import base64
import importlib
import threading
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import urlsplit

from reconsume.bridge.process.brokers_clock import monotonic_ms
from reconsume.bridge.process.clock import Clock
from reconsume.delay_levels.errors import IllegalSetting, ReconsumeError

_SECONDS: Final = 5.0
_MOST_SCHEMAS: Final = 1_000
_MOST_REFERENCES: Final = 100
_FAILED_MS: Final = 30_000.0
"""Records may name any schema, so a failed request is not repeated for a while, nor are others if it took long."""
_LONG_MS: Final = 1_000.0


class SchemaUnknown(ReconsumeError):
    """The registry does not have the schema, or does not answer."""


@dataclass(frozen=True, slots=True)
class RegisteredSchema:
    """A schema with its references.

    Attributes:
        kind: `AVRO`, `JSON` or `PROTOBUF`.
        text: the text, for Avro and JSON Schema.
        file: the serialized file descriptor, for Protobuf.
        references: names and schemas, each after its own references.
    """

    kind: str
    text: str
    file: bytes
    references: tuple[tuple[str, RegisteredSchema], ...] = ()


class SchemaRegistry:
    """Asks a registry, and caches the answers. Safe to use from several threads, which wait for each other.

    Args:
        url: the registry's URL, or several with commas; may contain a user and a password.
        clock: monotonic milliseconds.

    Raises:
        IllegalSetting: the extra `schemas` is not installed, or the URL is invalid.
    """

    def __init__(self, url: str, clock: Clock = monotonic_ms) -> None:
        try:
            package = importlib.import_module("confluent_kafka.schema_registry")
        except ImportError as error:
            raise IllegalSetting(
                f"a schema registry needs {error.name}: pip install '.[schemas]' in the checkout"
            ) from None
        conf = {"url": url, "timeout": _SECONDS, "max.retries": 0, "cache.capacity": _MOST_SCHEMAS}
        try:
            for one in url.split(","):
                # Else a password with `/`, `?` or `#` would be taken for a port, and quoted when a schema is read.
                _ = urlsplit(one.strip()).port
            # Two, because the client's cache ignores the format.
            self._texts, self._files = package.SchemaRegistryClient(conf), package.SchemaRegistryClient(conf)
        except (ValueError, TypeError, OSError):
            # The error may contain the URL with its password.
            raise IllegalSetting(
                "--schema-registry: the URL is not usable; write http://HOST:PORT or https://USER:PASSWORD@HOST, with "
                "/, ? and # of the password percent-encoded"
            ) from None
        self._clock = clock
        self._lock = threading.Lock()
        self._known: OrderedDict[int, RegisteredSchema | tuple[float, str]] = OrderedDict()
        self._silent_until = float("-inf"), ""

    def schema(self, number: int) -> RegisteredSchema:
        """Return the schema with this id.

        Raises:
            SchemaUnknown: the schema does not exist, or no answer.
        """
        with self._lock:
            known = self._known.get(number)
            if isinstance(known, tuple):
                if self._clock() < known[0]:
                    raise SchemaUnknown(known[1])
                known = None
            if known is None:
                if self._clock() < self._silent_until[0]:
                    raise SchemaUnknown(self._silent_until[1])
                known = self._ask(number)
            return known

    def _ask(self, number: int) -> RegisteredSchema:
        if len(self._known) >= _MOST_SCHEMAS:
            self._known.popitem(last=False)
        begun = self._clock()
        try:
            found = self._read(number)
        except Exception as error:  # noqa: BLE001 - whatever the client and its HTTP library raise
            why, now = f"{type(error).__name__}: {error}", self._clock()
            if now - begun > _LONG_MS:
                # Another schema would take as long, and its caller would hold up the others.
                self._silent_until = now + _FAILED_MS, f"the registry gave no answer a moment ago: {why}"
            why = f"schema {number} is unavailable from the registry: {why}"
            self._known[number] = now + _FAILED_MS, why
            raise SchemaUnknown(why) from None
        self._known[number] = found
        return found

    def _read(self, number: int) -> RegisteredSchema:
        first = self._texts.get_schema(number)
        if first.schema_type != "PROTOBUF":
            return self._made(first, lambda one: self._texts.get_version(one.subject, one.version).schema, [])
        first = self._files.get_schema(number, fmt="serialized")
        return self._made(
            first, lambda one: self._files.get_version(one.subject, one.version, fmt="serialized").schema, []
        )

    def _made(self, schema: Any, find: Callable[[Any], Any], seen: list[str]) -> RegisteredSchema:
        references = []
        for one in schema.references or ():
            if one.name in seen:
                continue
            seen.append(one.name)
            if len(seen) > _MOST_REFERENCES:
                raise SchemaUnknown(f"the schema has more than {_MOST_REFERENCES} references")
            found = self._made(find(one), find, seen)
            references += [*found.references, (one.name, found)]
        file = base64.b64decode(schema.schema_str) if schema.schema_type == "PROTOBUF" else b""
        return RegisteredSchema(schema.schema_type or "AVRO", schema.schema_str, file, tuple(references))
