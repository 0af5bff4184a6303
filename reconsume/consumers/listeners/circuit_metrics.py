"""The circuit breaker for Prometheus."""

from __future__ import annotations

from typing import Final

from prometheus_client import REGISTRY, CollectorRegistry

from reconsume.bridge.metrics.catalogue import metric
from reconsume.consumers.listeners.circuit_breaker import CircuitChange, CircuitState

_NUMBERS: Final = {CircuitState.CLOSED: 0, CircuitState.HALF_OPEN: 1, CircuitState.OPEN: 2}


class CircuitMetrics:
    """Give `changed` as `on_change`; one of these serves all consumers of a process.

    Args:
        registry: where they are scraped from.
    """

    def __init__(self, registry: CollectorRegistry = REGISTRY) -> None:
        self._state = metric("reconsume_circuit_breaker_state").gauge(registry)
        self._openings = metric("reconsume_circuit_breaker_openings").counter(registry)

    def changed(self, change: CircuitChange) -> None:
        """Take note of a change."""
        self._state.labels(change.group).set(_NUMBERS[change.state])
        openings = self._openings.labels(change.group)
        if change.state is CircuitState.OPEN:
            openings.inc()
