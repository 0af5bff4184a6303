"""What is sent to the app, by profile."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple
from urllib.parse import quote

from reconsume.consumers.message import Message
from reconsume.sidecar.push.requests.cloud_events import (
    BATCH_TYPE,
    OCTETS,
    REQUIRED,
    STRUCTURED_TYPE,
    CloudEvent,
    binary_headers,
    carried,
    content_type_of,
    is_structured,
    made,
    parsed,
    rfc3339,
    structured,
)
from reconsume.sidecar.push.requests.message_headers import HttpHeaders, ReconsumeHeaders, kafka_headers, trace_headers
from reconsume.sidecar.push.requests.percent import header_value

__all__ = ["AppRequest", "BatchRequests", "DaprRequests", "DaprRoute", "KnativeRequests", "NativeRequests", "Requests"]


@dataclass(frozen=True, slots=True)
class AppRequest:
    """A POST.

    Attributes:
        path: empty for the URL as it is.
    """

    path: str
    headers: HttpHeaders
    body: bytes


@dataclass(frozen=True, slots=True)
class NativeRequests:
    """CloudEvents in binary mode: the body is the record's value; a record that holds a whole event passes as it is."""

    own_headers: ReconsumeHeaders
    route: Callable[[str], str]

    def of(self, messages: Sequence[Message], trace: HttpHeaders) -> AppRequest:
        """One message."""
        [message] = messages
        content_type = content_type_of(message)
        attributes: HttpHeaders = []
        if not is_structured(content_type):
            event = carried(message) or self._made(message)
            attributes, content_type = binary_headers(event), event.content_type or self._untyped
        return AppRequest(
            self.route(message.topic),
            [
                *([] if content_type is None else [("content-type", content_type)]),
                *attributes,
                *self.own_headers.of_request(),
                *self.own_headers.of_message(message),
                *kafka_headers(message, without_events=True),
                *trace_headers(messages, trace),
            ],
            message.body or b"",
        )

    @property
    def _untyped(self) -> str | None:
        """The content type where the event has none; None sends none."""
        return OCTETS

    def _made(self, message: Message) -> CloudEvent:
        """The event of an ordinary record."""
        return made(message, self.own_headers.group)


class KnativeRequests(NativeRequests):
    """What Knative's Kafka source sends."""

    __slots__ = ()

    @property
    def _untyped(self) -> str | None:
        return None

    def _made(self, message: Message) -> CloudEvent:
        first = message.origin
        source = f"/apis/v1/namespaces/default/kafkasources/{quote(self.own_headers.group)}"
        attributes = {
            "specversion": "1.0",
            "id": f"partition:{first.partition}/offset:{first.offset}",
            "time": rfc3339(message.born_timestamp),
            "type": "dev.knative.kafka.event",
            "source": f"{source}#{quote(message.topic)}",
            "subject": f"partition:{first.partition}#{first.offset}",
        }
        if message.key is not None:
            attributes["partitionkey"] = attributes["key"] = message.key.decode(errors="surrogateescape")
        for name, value in message.headers:
            if name.lower() != "content-type" and value is not None:
                letters = "".join(one for one in name.lower() if one.isascii() and one.isalnum())
                attributes["kafkaheader" + letters] = value.decode(errors="surrogateescape")
        content_type = content_type_of(message)
        return CloudEvent(attributes, None if content_type is None else content_type.lower(), message.body)


class DaprRoute(NamedTuple):
    """One subscription of an app of Dapr."""

    topic: str
    route: str
    raw_payload: bool = False


@dataclass(frozen=True, slots=True)
class DaprRequests:
    """CloudEvents in structured mode, with the attributes and metadata headers that Dapr sends."""

    own_headers: ReconsumeHeaders
    pubsub: str
    routes: Mapping[str, DaprRoute]
    otherwise: Callable[[str], str]

    def of(self, messages: Sequence[Message], trace: HttpHeaders) -> AppRequest:
        """One message."""
        [message] = messages
        route = self.routes.get(message.topic)
        traced = trace_headers(messages, trace)
        envelope: dict[str, Any] = {"topic": message.topic, "pubsubname": self.pubsub} | dict(traced)
        return AppRequest(
            self.otherwise(message.topic) if route is None else route.route,
            [
                ("content-type", STRUCTURED_TYPE),
                *self._metadata(message),
                *self.own_headers.of_request(),
                *self.own_headers.of_message(message),
                *kafka_headers(message, without_events=True),
                *traced,
            ],
            self._body(message, envelope, raw=route is not None and route.raw_payload),
        )

    def _body(self, message: Message, envelope: dict[str, Any], *, raw: bool) -> bytes:
        if raw:
            event = self._wrapped(message)
            return structured(replace(event, content_type=OCTETS), envelope)
        whole = parsed(message.body) if message.body is not None else None
        if isinstance(whole, dict) and whole.keys() >= REQUIRED:
            return json.dumps(whole | envelope).encode()
        return structured(carried(message) or self._wrapped(message), envelope)

    def _wrapped(self, message: Message) -> CloudEvent:
        event = made(message, self.own_headers.group)
        return replace(event, attributes=dict(event.attributes) | {"type": "com.dapr.event.sent", "source": "Dapr"})

    def _metadata(self, message: Message) -> HttpHeaders:
        kafka = message.kafka
        headers = [
            ("__topic", header_value(message.topic)),
            ("__partition", str(message.origin.partition)),
            ("__offset", str(message.origin.offset)),
            ("__timestamp", str(message.born_timestamp if message.is_retry else kafka.timestamp)),
        ]
        if message.key is not None:
            headers.append(("__key", header_value(message.key)))
        return headers


@dataclass(frozen=True, slots=True)
class BatchRequests:
    """Several CloudEvents in a JSON array, in the order of the queue."""

    own_headers: ReconsumeHeaders
    route: Callable[[str], str]

    def of(self, messages: Sequence[Message], trace: HttpHeaders) -> AppRequest:
        """All of them in one request."""
        same = self.own_headers.of_message(messages[0]) if len(messages) == 1 else []
        return AppRequest(
            self.route(messages[0].topic),
            [("content-type", BATCH_TYPE), *self.own_headers.of_request(), *same, *trace_headers(messages, trace)],
            b"[" + b",\n".join(self._event(message) for message in messages) + b"]",
        )

    def _event(self, message: Message) -> bytes:
        attributes = self.own_headers.of_event(message)
        if is_structured(content_type_of(message)) and message.body is not None:
            whole = parsed(message.body)
            if isinstance(whole, dict):
                return json.dumps(whole | attributes).encode()
        return structured(carried(message) or made(message, self.own_headers.group), attributes)


Requests = NativeRequests | DaprRequests | BatchRequests
"""Makes the request for messages of one partition, in the order of their offsets, with headers of the current span."""
