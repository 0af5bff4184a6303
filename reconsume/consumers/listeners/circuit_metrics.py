"""Prometheus metrics of circuit breakers."""

from __future__ import annotations

from typing import Final

from prometheus_client import REGISTRY, CollectorRegistry

from reconsume.bridge.metrics.catalogue import metric
from reconsume.consumers.listeners.circuit_breaker import CircuitChange, CircuitState

_NUMBERS: Final = {CircuitState.CLOSED: 0, CircuitState.HALF_OPEN: 1, CircuitState.OPEN: 2}


class CircuitMetrics:
    """Metrics of all circuit breakers of a process; pass its method `changed` as `on_change`.

    Args:
        registry: the Prometheus registry.
    """

    def __init__(self, registry: CollectorRegistry = REGISTRY) -> None:
        self._state = metric("reconsume_circuit_breaker_state").gauge(registry)
        self._openings = metric("reconsume_circuit_breaker_openings").counter(registry)

    def changed(self, change: CircuitChange) -> None:
        """Record a change."""
        self._state.labels(change.group).set(_NUMBERS[change.state])
        openings = self._openings.labels(change.group)
        if change.state is CircuitState.OPEN:
            openings.inc()
