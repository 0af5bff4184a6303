"""What a sidecar process exports."""

from __future__ import annotations

from dataclasses import dataclass, field

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from reconsume.bridge.metrics.catalogue import metric

__all__ = ["SidecarMetrics"]


@dataclass(slots=True)
class SidecarMetrics:
    """Labels are of few values, never topics, keys or partitions."""

    registry: CollectorRegistry = field(default_factory=CollectorRegistry)
    requests: Counter = field(init=False)
    seconds: Histogram = field(init=False)
    send_backs: Counter = field(init=False)
    waiting: Gauge = field(init=False)

    def __post_init__(self) -> None:
        self.requests = metric("reconsume_sidecar_requests").counter(self.registry)
        self.seconds = metric("reconsume_sidecar_request_duration_seconds").histogram(self.registry)
        self.send_backs = metric("reconsume_sidecar_send_backs").counter(self.registry)
        self.waiting = metric("reconsume_sidecar_waiting_send_backs").gauge(self.registry)
