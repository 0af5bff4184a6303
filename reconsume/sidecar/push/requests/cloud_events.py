"""Messages as CloudEvents: existing events keep every attribute, other messages become events."""

from __future__ import annotations

import base64
import json
import re
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import lru_cache
from typing import Any, Final, Self
from urllib.parse import quote, unquote

from reconsume.consumers.message import Message
from reconsume.delay_levels.wire.properties import Header

OCTETS: Final = "application/octet-stream"
MOST_TOPICS: Final = 1_000
"""The maximum of remembered paths: headers name origin topics, and clients write headers."""
_PREFIX: Final = "ce_"
_LAST_MS: Final = 253_402_300_799_000
REQUIRED: Final = frozenset({"id", "source", "type", "specversion"})
_DATA: Final = frozenset({"data", "datacontenttype"})
"""Not attributes in Kafka's binary mode: the value and `content-type` carry them."""
_ATTRIBUTE: Final = re.compile(r"ce_[a-z0-9]+", re.ASCII)
_MEDIA_TYPE: Final = re.compile(r"[!-~][ -~]*", re.ASCII)
_JSON: Final = re.compile(r"(?:application|text)/(?:[\w.-]+\+)?json\s*(?:;|$)", re.IGNORECASE | re.ASCII)
_TEXT: Final = re.compile(r"(?:text/|application/(?:[\w.-]+\+)?xml\s*(?:;|$))", re.IGNORECASE | re.ASCII)
_PLAIN: Final = re.compile(r"[!#$&-~]*", re.ASCII)
_NOT_IN_VALUE: Final = re.compile(rb'[^!-~]|["%]')
_NOT_IN_NAME: Final = re.compile(rb"[^0-9A-Za-z.-]")


@dataclass(frozen=True, slots=True)
class CloudEvent:
    """A CloudEvent.

    Attributes:
        attributes: all attributes but `datacontenttype`, as text.
        content_type: None if unknown.
        data: None for a tombstone.
    """

    attributes: Mapping[str, str]
    content_type: str | None
    data: bytes | None

    @classmethod
    def carried(cls, message: Message) -> Self | None:
        """Return the event in a record's `ce_` headers; None if a required attribute is missing."""
        attributes = {}
        for name, value in message.headers:
            if name.startswith(_PREFIX) and value is not None and _ATTRIBUTE.fullmatch(name):
                attributes[name.removeprefix(_PREFIX)] = value.decode(errors="surrogateescape")
        if not attributes.keys() >= REQUIRED:
            return None
        attributes = {name: value for name, value in attributes.items() if name not in _DATA}
        return cls(attributes, content_type_of(message), message.body)

    @classmethod
    def made(cls, message: Message, group: str) -> Self:
        """Make the event of an ordinary record; `source` and `id` are the same over all its deliveries."""
        attributes = {
            "specversion": "1.0",
            "id": message.stored.origin_message_id,
            "source": _source(message.topic),
            "type": "reconsume.message",
            "time": rfc3339(message.born_timestamp),
            "retrygroup": group,
            "reconsumetimes": str(message.reconsume_times),
        }
        if message.key is not None:
            attributes["partitionkey"] = message.key.decode(errors="surrogateescape")
        return cls(attributes, content_type_of(message), message.body)

    def binary_headers(self) -> list[tuple[str, str]]:
        """Return the attributes as `ce-` headers."""
        return [("ce-" + name, header_value(value)) for name, value in self.attributes.items()]

    def kafka_headers(self) -> set[Header]:
        """Return the attributes as the record's `ce_` headers."""
        return {(_PREFIX + name, value.encode(errors="surrogateescape")) for name, value in self.attributes.items()}

    def structured(self, more: Mapping[str, Any]) -> bytes:
        """Return the event and more attributes in JSON; data that is JSON is embedded byte for byte.

        Data that is not UTF-8 becomes `data_base64`; in an attribute such bytes are percent-encoded.
        """
        attributes: dict[str, Any] = {name: _json_text(value) for name, value in self.attributes.items()}
        content_type = self.content_type or _guessed_type(self.data)
        if self.data is not None:
            attributes["datacontenttype"] = content_type
        head = json.dumps(attributes | dict(more))[:-1].encode()
        return b"%s, %s}" % (head, _data(self.data, content_type))


def rfc3339(moment_ms: float) -> str:
    """Format a moment in UTC with milliseconds; a moment beyond the calendar becomes the nearest valid one."""
    moment = datetime.fromtimestamp(max(0, min(moment_ms, _LAST_MS)) / 1000, UTC)
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def content_type_of(message: Message) -> str | None:
    """Return the record's own content type, if it is legal in an HTTP header."""
    for name, value in message.headers:
        if value is not None and name.lower() == "content-type":
            text = value.decode("ascii", "replace").strip()
            return text if _MEDIA_TYPE.fullmatch(text) else None
    return None


@lru_cache(maxsize=MOST_TOPICS)
def _source(topic: str) -> str:
    return f"/kafka/topics/{quote(topic)}"


def _data(data: bytes | None, content_type: str) -> bytes:
    if data is None:
        return b'"data": null'
    if _JSON.match(content_type) and parsed(data) is not _NO_JSON:
        return b'"data": ' + data
    if _JSON.match(content_type) or _TEXT.match(content_type):
        try:
            return b'"data": ' + json.dumps(data.decode()).encode()
        except UnicodeDecodeError:
            pass
    return b'"data_base64": "%s"' % base64.b64encode(data)


_NO_JSON: Final = object()


def parsed(data: bytes) -> Any:
    """Parse JSON in UTF-8; return something that is not a dict if that fails."""
    try:
        return json.loads(data.decode(), parse_constant=_refuse, parse_float=_finite)
    except (ValueError, RecursionError):
        return _NO_JSON


def with_members(body: bytes, whole: Mapping[str, Any], more: Mapping[str, Any]) -> bytes:
    """Return a JSON object with more members. Its own text stays: a number may have more digits than a float.

    Args:
        body: the object in UTF-8.
        whole: the object as `parsed` returns it.
        more: the members; of two with one name the new one counts.
    """
    if not whole or whole.keys() & more.keys():
        return json.dumps({**whole, **more}).encode()
    return b"%s, %s" % (body.rstrip()[:-1], json.dumps(more)[1:].encode())


def _finite(text: str) -> float:
    """Return a number; one that no float holds, such as 1e999, becomes the largest: `Infinity` is not JSON."""
    return max(-sys.float_info.max, min(float(text), sys.float_info.max))


def _refuse(constant: str) -> None:
    raise ValueError(f"{constant} is not JSON")


def _guessed_type(data: bytes | None) -> str:
    """Guess the type of data without a declared one: a JSON object or array, text, or bytes."""
    if data is None:
        return OCTETS
    if data[:1] in (b"{", b"[") and parsed(data) is not _NO_JSON:
        return "application/json"
    try:
        data.decode()
    except UnicodeDecodeError:
        return OCTETS
    return "text/plain"


def _json_text(value: str) -> str:
    try:
        value.encode()
    except UnicodeEncodeError:
        return header_value(value)
    return value


def header_value(value: str | bytes) -> str:
    """Encode space, `"`, `%` and all but printable ASCII as `%XX`, byte by byte, as the HTTP binding requires."""
    if isinstance(value, str):
        if _PLAIN.fullmatch(value):  # nearly all values are plain, and each delivery has a dozen
            return value
        value = value.encode(errors="surrogateescape")
    return _NOT_IN_VALUE.sub(_escaped, value).decode("ascii")


def header_name(name: str) -> str:
    """Return a legal header name; underscores are replaced, because common proxies drop headers with them."""
    return _NOT_IN_NAME.sub(_escaped, name.encode(errors="surrogateescape")).decode("ascii")


def decoded(value: str) -> str:
    """Decode once; bytes that are not UTF-8 become U+FFFD, so that an app's text never fails."""
    return unquote(value, errors="replace")


def _escaped(match: re.Match[bytes]) -> bytes:
    return b"%%%02X" % match[0][0]
