"""What a sidecar process exports."""

from __future__ import annotations

from prometheus_client import CollectorRegistry

from reconsume.bridge.metrics.catalogue import metric

__all__ = ["SidecarMetrics"]


class SidecarMetrics:
    """Labels are of few values, never topics, keys or partitions.

    Args:
        registry: where they are scraped from.
    """

    def __init__(self, registry: CollectorRegistry) -> None:
        self.registry = registry
        self.requests = metric("reconsume_sidecar_requests").counter(registry)
        self.seconds = metric("reconsume_sidecar_request_duration_seconds").histogram(registry)
        self.send_backs = metric("reconsume_sidecar_send_backs").counter(registry)
        self.waiting = metric("reconsume_sidecar_waiting_send_backs").gauge(registry)
