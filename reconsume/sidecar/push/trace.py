"""Headers of the current span; none without OpenTelemetry."""

from __future__ import annotations

try:
    from opentelemetry import propagate, trace
except ImportError:  # pragma: no cover - an extra

    def current_trace() -> list[tuple[str, str]]:
        """Return no headers."""
        return []

else:

    def current_trace() -> list[tuple[str, str]]:
        """Return the headers of the current span; none outside of one."""
        if not trace.get_current_span().get_span_context().is_valid:
            return []
        carrier: dict[str, str] = {}
        propagate.inject(carrier)
        return list(carrier.items())


__all__ = ["current_trace"]
