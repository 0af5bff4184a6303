"""What a console process exports."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from reconsume.bridge.metrics.catalogue import metric

__all__ = ["ConsoleMetrics"]


@dataclass(slots=True)
class ConsoleMetrics:
    """Labels are of few values: a route is the name of a page, never an address."""

    registry: CollectorRegistry = field(default_factory=CollectorRegistry)
    requests: Counter = field(init=False)
    seconds: Histogram = field(init=False)
    resent: Counter = field(init=False)
    oldest_open: Gauge = field(init=False)

    def __post_init__(self) -> None:
        self.requests = metric("reconsume_console_requests").counter(self.registry)
        self.seconds = metric("reconsume_console_request_duration_seconds").histogram(self.registry)
        self.resent = metric("reconsume_console_resent_records").counter(self.registry)
        self.oldest_open = metric("reconsume_oldest_open_dead_letter_timestamp_seconds").gauge(self.registry)

    def tell_oldest_open(self, oldest_ms: Mapping[str, int]) -> None:
        """When the oldest open dead letter of each group was stored; a group that is left out has none."""
        self.oldest_open.clear()
        for group, stored_ms in oldest_ms.items():
            self.oldest_open.labels(group).set(stored_ms / 1000)
