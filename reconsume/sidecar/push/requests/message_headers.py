"""What every delivery tells of its message: the `reconsume-*` headers, key and headers of the record, its trace."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final
from urllib.parse import quote_from_bytes

from reconsume.consumers.message import Message
from reconsume.sidecar.push.requests.cloud_events import rfc3339
from reconsume.sidecar.push.requests.percent import header_name, header_value

__all__ = ["HttpHeaders", "ReconsumeHeaders", "kafka_headers", "trace_headers"]

HttpHeaders = list[tuple[str, str]]

_TRACE: Final = ("traceparent", "tracestate", "baggage")
_TOMBSTONE: Final = "reconsume-tombstone"


class ReconsumeHeaders:
    """Headers `reconsume-*` of the requests of one subscription.

    Args:
        group: the consumer group.
        max_times: gives how often a message may be sent back, as the group stands now.
        deadline_ms: so long the app has for its answer.
    """

    def __init__(self, group: str, max_times: Callable[[], int], deadline_ms: int) -> None:
        self.group = group
        self._max_times = max_times
        self._same = [("reconsume-group", header_value(group)), ("reconsume-deadline-ms", str(deadline_ms))]

    def of_request(self) -> HttpHeaders:
        """What holds for all messages of a request."""
        return [*self._same, ("reconsume-max-times", str(self._max_times()))]

    def of_message(self, message: Message) -> HttpHeaders:
        """What holds for one message."""
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
            headers.append((_TOMBSTONE, "true"))
        return headers

    def of_event(self, message: Message) -> dict[str, Any]:
        """The same as attributes, for an event in a batch: a batch has one set of headers for all its events."""
        attributes: dict[str, Any] = {name.replace("-", ""): value for name, value in self.of_message(message)}
        if user := [one for one in message.headers if not one[0].startswith("ce_")]:
            attributes["kafkaheaders"] = "&".join(_pair(name, value) for name, value in user)
        return attributes


def kafka_headers(message: Message, *, without_events: bool) -> HttpHeaders:
    """The record's headers, in order and with duplicates; a null value is an empty one.

    Args:
        message: the record.
        without_events: leave out `ce_` headers, which are attributes of the event.
    """
    return [
        ("kafka-header-" + header_name(name), "" if value is None else header_value(value))
        for name, value in message.headers
        if not (without_events and name.startswith("ce_"))
    ]


def trace_headers(messages: Sequence[Message], current: HttpHeaders) -> HttpHeaders:
    """The trace that the app goes on with: of the call that we are in, else that of a single message's headers."""
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
