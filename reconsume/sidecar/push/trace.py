"""The current span, for the headers of a request; without OpenTelemetry there is none."""

from __future__ import annotations

try:
    from opentelemetry import propagate, trace
except ImportError:  # pragma: no cover - an extra

    def current_trace() -> list[tuple[str, str]]:
        """No span."""
        return []

else:

    def current_trace() -> list[tuple[str, str]]:
        """Headers of the span that we are in; none outside of one."""
        if not trace.get_current_span().get_span_context().is_valid:
            return []
        carrier: dict[str, str] = {}
        propagate.inject(carrier)
        return list(carrier.items())


__all__ = ["current_trace"]
