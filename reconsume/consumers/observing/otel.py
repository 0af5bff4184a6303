"""OpenTelemetry spans of a PushConsumer: one for each call of the listener, one for each send-back."""

from __future__ import annotations

import time
from contextvars import ContextVar, Token
from typing import Final, NamedTuple
from weakref import WeakKeyDictionary

try:
    from opentelemetry import context as otel_context
    from opentelemetry import propagate, trace
    from opentelemetry.context import Context
    from opentelemetry.trace import Link, Span, SpanContext, SpanKind, Status, StatusCode, TracerProvider
except ImportError as error:
    raise ImportError(
        "reconsume.consumers.observing.otel needs opentelemetry-api: pip install '.[otel]' in the checkout"
    ) from error

from reconsume import __version__
from reconsume.consumers.message import Message
from reconsume.consumers.observing.hooks import (
    ConsumeMessageContext,
    ConsumeMessageHook,
    ConsumeReturnType,
    SendMessageBackContext,
)

TRACE_ON: Final = "TRACE_ON"
"""A message whose header of this name is `false` is not traced (RocketMQ: ST-11)."""

_Attributes = dict[str, str | int | bool]


class _Open(NamedTuple):
    """The span of the current call in this thread or task; the token restores the previous context."""

    span: Span
    token: Token[Context]


class OpenTelemetryHook(ConsumeMessageHook):
    """Spans by the semantic conventions for messaging and Kafka. One instance serves any number of consumers.

    The span of a call is current while the listener runs. Its parent is the trace context in the headers of a single
    message; the messages of a batch are links. Headers travel with a message, so one trace has all its tries and the
    work of its listeners. The span of a send-back is a child of the failed call. That call's span is kept by weak
    reference to the message, because the acknowledgement arrives in another thread, without the listener's context.
    Test: tests/unit/consumers/observing/test_otel.py.

    Args:
        tracer_provider: None uses the global one.
    """

    def __init__(self, tracer_provider: TracerProvider | None = None) -> None:
        self._tracer = trace.get_tracer("reconsume", __version__, tracer_provider)
        self._open: ContextVar[_Open | None] = ContextVar("reconsume_open_span", default=None)
        self._called: WeakKeyDictionary[Message, SpanContext] = WeakKeyDictionary()

    def consume_message_before(self, context: ConsumeMessageContext) -> None:
        """Start a span and make it current."""
        self._open.set(None)
        messages = [message for message in context.messages if _is_traced(message)]
        if not messages:
            return
        parents = [_trace_context(message) for message in messages]
        parent = parents[0] if len(messages) == 1 else Context()
        attributes = _attributes("process", "process", context.group, messages[0])
        if len(messages) == 1:
            attributes |= _of_message(messages[0]) | _of_its_past(messages[0])
        else:
            attributes["messaging.batch.message_count"] = len(messages)
        span = self._tracer.start_span(
            f"process {messages[0].kafka.topic}",
            context=parent,
            kind=SpanKind.CONSUMER,
            attributes=attributes,
            links=[
                Link(found, _of_message(message) | _of_its_past(message))
                for message, one in zip(messages, parents, strict=True)
                if (found := trace.get_current_span(one).get_span_context()).is_valid
            ],
        )
        for message in messages:
            self._called[message] = span.get_span_context()
        self._open.set(_Open(span, otel_context.attach(trace.set_span_in_context(span, parent))))

    def consume_message_after(self, context: ConsumeMessageContext) -> None:
        """End the span and record how the listener returned."""
        opened = self._open.get()
        if opened is None:
            return
        self._open.set(None)
        span, token = opened
        otel_context.detach(token)
        if context.return_type is not None and context.status is not None:
            span.set_attributes(
                {
                    "reconsume.return_type": context.return_type.value,
                    "reconsume.status": context.status.value,
                    "reconsume.acknowledged": context.acknowledged,
                }
            )
            if context.return_type is not ConsumeReturnType.SUCCESS:
                _tell_failure(span, context, context.return_type)
        span.end()

    def send_message_back_after(self, context: SendMessageBackContext) -> None:
        """Write a span from the decision to the acknowledgement or the failure."""
        message = context.message
        if not _is_traced(message):
            return
        called = self._called.get(message)
        parent = (
            _trace_context(message)
            if called is None
            else trace.set_span_in_context(trace.NonRecordingSpan(called), Context())
        )
        now = time.time_ns()
        attributes = _attributes("send_back", "settle", context.group, message) | _of_message(message)
        attributes |= {
            "reconsume.target": context.target.value,
            "reconsume.delay_level": context.delay_level,
            "reconsume.reconsume_times": context.reconsume_times,
        }
        span = self._tracer.start_span(
            f"send_back {message.kafka.topic}",
            context=parent,
            kind=SpanKind.CLIENT,
            attributes=attributes,
            start_time=now - int(context.elapsed_ms * 1_000_000),
        )
        if context.error is not None:
            span.set_attribute("error.type", type(context.error).__qualname__)
            span.set_status(Status(StatusCode.ERROR, str(context.error)))
        span.end(now)


def _is_traced(message: Message) -> bool:
    return message.properties.get(TRACE_ON) != "false"


def _trace_context(message: Message) -> Context:
    """Return the context in the headers, never the current one of this thread."""
    texts: dict[str, list[str]] = {}
    for name, value in message.headers:
        if value is not None:
            texts.setdefault(name, []).append(value.decode(errors="replace"))
    return propagate.extract(texts, Context())


def _tell_failure(span: Span, context: ConsumeMessageContext, return_type: ConsumeReturnType) -> None:
    cause = context.cause
    span.set_attribute("error.type", return_type.value if cause is None else cause.exception_class or return_type.value)
    span.set_status(Status(StatusCode.ERROR, return_type.value if cause is None else cause.message))
    if cause is not None and cause.exception_class is not None:
        span.add_event(
            "exception",
            {
                "exception.type": cause.exception_class,
                "exception.message": cause.message,
                "exception.stacktrace": cause.stacktrace or "",
            },
        )


def _attributes(name: str, kind: str, group: str, message: Message) -> _Attributes:
    return {
        "messaging.system": "kafka",
        "messaging.operation.name": name,
        "messaging.operation.type": kind,
        "messaging.destination.name": message.kafka.topic,
        "messaging.destination.partition.id": str(message.kafka.partition),
        "messaging.consumer.group.name": group,
    }


def _of_message(message: Message) -> _Attributes:
    attributes: _Attributes = {
        "messaging.message.id": message.msg_id,
        "messaging.kafka.offset": message.kafka.offset,
        "reconsume.origin_topic": message.topic,
    }
    if message.body is None:
        attributes["messaging.kafka.message.tombstone"] = True
    try:
        if message.key is not None:
            attributes["messaging.kafka.message.key"] = message.key.decode()
    except UnicodeDecodeError:
        pass  # the conventions omit keys that are not text
    return attributes


def _of_its_past(message: Message) -> _Attributes:
    return {"reconsume.reconsume_times": message.reconsume_times, "reconsume.delay_level": message.delay_time_level}
