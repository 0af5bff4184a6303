"""The trace that goes to the app."""

from __future__ import annotations

from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider

from reconsume.sidecar.push.trace import current_trace


def test_outside_of_a_span_there_is_none() -> None:
    assert current_trace() == []


def test_the_current_span_is_the_parent_of_what_the_app_does() -> None:
    span = TracerProvider().get_tracer("test").start_span("process flights")
    with trace.use_span(span):
        found = dict(current_trace())
    context = span.get_span_context()
    assert found["traceparent"].startswith(f"00-{context.trace_id:032x}-{context.span_id:016x}-")
    span.end()
