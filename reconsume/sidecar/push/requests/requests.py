"""The requests to an app, by profile."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, ClassVar, Final, NamedTuple
from urllib.parse import quote, quote_from_bytes

from reconsume.consumers.message import Message
from reconsume.delay_levels.wire.properties import Header
from reconsume.sidecar.push.requests.cloud_events import (
    MOST_TOPICS,
    OCTETS,
    REQUIRED,
    CloudEvent,
    content_type_of,
    header_name,
    header_value,
    parsed,
    rfc3339,
    with_members,
)
from reconsume.sidecar.push.settings import Profile, PushSettings

HttpHeaders = list[tuple[str, str]]

_TRACE: Final = ("traceparent", "tracestate", "baggage")


@dataclass(frozen=True, slots=True)
class AppRequest:
    """A POST request.

    Attributes:
        path: the path; empty for the URL as configured.
    """

    path: str
    headers: HttpHeaders
    body: bytes


class ReconsumeHeaders:
    """The `reconsume-*` headers of the requests of one subscription.

    Args:
        group: the consumer group.
        max_times: returns how often the group now allows a message to be sent back.
        deadline_ms: the time for an answer, in milliseconds.
    """

    def __init__(self, group: str, max_times: Callable[[], int], deadline_ms: int) -> None:
        self.group = group
        self._max_times = max_times
        self._same = [("reconsume-group", header_value(group)), ("reconsume-deadline-ms", str(deadline_ms))]

    def of_request(self) -> HttpHeaders:
        """Return the headers for all messages of a request."""
        return [*self._same, ("reconsume-max-times", str(self._max_times()))]

    def of_message(self, message: Message) -> HttpHeaders:
        """Return the headers for one message."""
        headers = [
            ("reconsume-topic", header_value(message.topic)),
            ("reconsume-times", str(message.reconsume_times)),
            ("reconsume-message-id", header_value(message.msg_id)),
        ]
        if message.is_retry:
            headers.append(("reconsume-delay-level", str(message.delay_time_level)))
            headers.append(("reconsume-due-time", rfc3339(message.kafka.timestamp)))
            if (first_failed_ms := message.stored.first_failed_ms) is not None:
                headers.append(("reconsume-first-failure-time", rfc3339(first_failed_ms)))
        if message.body is None:
            headers.append(("reconsume-tombstone", "true"))
        return headers

    def of_single(self, message: Message, carried: CloudEvent | None) -> HttpHeaders:
        """Return all headers of a request with one message, including the record's own, in order and with duplicates.

        A null value becomes an empty one. The attributes of `carried`, the record's event in the request, are left out.
        """
        headers = [*self.of_request(), *self.of_message(message)]
        for name, value in _users(message, carried):
            headers.append(("kafka-header-" + header_name(name), "" if value is None else header_value(value)))
        return headers

    def of_event(self, message: Message, carried: CloudEvent | None) -> dict[str, Any]:
        """Return the headers as attributes of an event in a batch, which has one set of HTTP headers for all events."""
        attributes: dict[str, Any] = {name.replace("-", ""): value for name, value in self.of_message(message)}
        if user := _users(message, carried):
            attributes["kafkaheaders"] = "&".join(_pair(name, value) for name, value in user)
        return attributes


@dataclass(frozen=True, slots=True)
class NativeRequests:
    """CloudEvents in binary mode: the body is the record's value; a record with a whole event passes unchanged."""

    own_headers: ReconsumeHeaders
    route: Callable[[str], str]
    untyped: ClassVar[str | None] = OCTETS
    """The content type for events without one; None sends none."""

    def of(self, messages: Sequence[Message], trace: HttpHeaders) -> AppRequest:
        """Make the request for one message."""
        [message] = messages
        content_type = content_type_of(message)
        attributes: HttpHeaders = []
        carried: CloudEvent | None = None
        if not _is_structured(content_type):
            carried = CloudEvent.carried(message)
            event = carried or self._made(message)
            attributes, content_type = event.binary_headers(), event.content_type or self.untyped
        return AppRequest(
            self.route(message.topic),
            [
                *([] if content_type is None else [("content-type", content_type)]),
                *attributes,
                *self.own_headers.of_single(message, carried),
                *_trace_headers(messages, trace),
            ],
            message.body or b"",
        )

    def _made(self, message: Message) -> CloudEvent:
        """Make the event of an ordinary record."""
        return CloudEvent.made(message, self.own_headers.group)


class KnativeRequests(NativeRequests):
    """The requests of Knative's Kafka source."""

    __slots__ = ()
    untyped = None

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
        """Make the request for one message."""
        [message] = messages
        route = self.routes.get(message.topic)
        traced = _trace_headers(messages, trace)
        envelope: dict[str, Any] = {"topic": message.topic, "pubsubname": self.pubsub} | dict(traced)
        body, carried = self._body(message, envelope, raw=route is not None and route.raw_payload)
        return AppRequest(
            self.otherwise(message.topic) if route is None else route.route,
            [
                ("content-type", "application/cloudevents+json"),
                *self._metadata(message),
                *self.own_headers.of_single(message, carried),
                *traced,
            ],
            body,
        )

    def _body(self, message: Message, envelope: dict[str, Any], *, raw: bool) -> tuple[bytes, CloudEvent | None]:
        """Return the body, and the event of the record's `ce_` headers if it is the one in the body."""
        if raw:
            return replace(self._wrapped(message), content_type=OCTETS).structured(envelope), None
        whole = parsed(message.body) if message.body is not None else None
        if isinstance(whole, dict) and whole.keys() >= REQUIRED:
            return with_members(message.body or b"", whole, envelope), None
        carried = CloudEvent.carried(message)
        return (carried or self._wrapped(message)).structured(envelope), carried

    def _wrapped(self, message: Message) -> CloudEvent:
        event = CloudEvent.made(message, self.own_headers.group)
        return replace(event, attributes=dict(event.attributes) | {"type": "com.dapr.event.sent", "source": "Dapr"})

    def _metadata(self, message: Message) -> HttpHeaders:
        headers = [
            ("__topic", header_value(message.topic)),
            ("__partition", str(message.origin.partition)),
            ("__offset", str(message.origin.offset)),
            ("__timestamp", str(message.born_timestamp)),
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
        """Make one request for all messages."""
        own = self.own_headers.of_request()
        if len(messages) == 1:
            own += self.own_headers.of_message(messages[0])
        return AppRequest(
            self.route(messages[0].topic),
            [("content-type", "application/cloudevents-batch+json"), *own, *_trace_headers(messages, trace)],
            b"[" + b",\n".join(self._event(message) for message in messages) + b"]",
        )

    def _event(self, message: Message) -> bytes:
        if _is_structured(content_type_of(message)) and message.body is not None:
            whole, own = parsed(message.body), self.own_headers.of_event(message, None)
            if isinstance(whole, dict):
                return with_members(message.body, whole, own)
        carried = CloudEvent.carried(message)
        event = carried or CloudEvent.made(message, self.own_headers.group)
        return event.structured(self.own_headers.of_event(message, carried))


Requests = NativeRequests | DaprRequests | BatchRequests
"""Makes a request for messages of a partition, in the order of their offsets, with trace headers."""


def requests_of(settings: PushSettings, max_times: Callable[[], int], routes: Mapping[str, DaprRoute]) -> Requests:
    """Return the request maker of a subscription.

    Args:
        settings: the settings of the subscription.
        max_times: returns how often the group now allows a message to be sent back.
        routes: the routes that a Dapr app declares.
    """
    template, pubsub = settings.route_template, quote(settings.pubsub, safe="")

    @lru_cache(maxsize=MOST_TOPICS)
    def route(topic: str) -> str:
        return template.format(topic=quote(topic, safe=""), pubsub=pubsub)

    headers = ReconsumeHeaders(settings.group, max_times, round(settings.timeout.total_seconds() * 1000))
    if settings.profile is Profile.DAPR:
        return DaprRequests(headers, settings.pubsub, routes, route)
    if settings.profile is Profile.ROCKETMQ_BATCH:
        return BatchRequests(headers, route)
    return (KnativeRequests if settings.profile is Profile.KNATIVE else NativeRequests)(headers, route)


def _is_structured(content_type: str | None) -> bool:
    """Return whether the body is a whole CloudEvent, in any format."""
    return content_type is not None and content_type.lower().startswith("application/cloudevents")


def _users(message: Message, carried: CloudEvent | None) -> list[Header]:
    """Return the record's headers but the attributes of its event in the request."""
    if carried is None:
        return message.headers
    in_event = carried.kafka_headers()
    return [one for one in message.headers if one not in in_event]


def _trace_headers(messages: Sequence[Message], current: HttpHeaders) -> HttpHeaders:
    """Return the trace headers for the app: those of the current call, else those of a single message."""
    if current or len(messages) != 1:
        return current
    return [
        (name, header_value(value))
        for name in _TRACE
        for key, value in messages[0].headers
        if key == name and value is not None
    ]


def _pair(name: str, value: bytes | None) -> str:
    encoded = quote_from_bytes(name.encode(errors="surrogateescape"), safe="")
    return encoded if value is None else f"{encoded}={quote_from_bytes(value, safe='')}"
