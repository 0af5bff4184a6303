"""The metrics of a sidecar process."""

from __future__ import annotations

from prometheus_client import CollectorRegistry

from reconsume.bridge.metrics.catalogue import metric
from reconsume.consumers.observing.consumer_metrics import Labels


class SidecarMetrics:
    """The metrics of the API. Labels have few values, never topics, keys or partitions; further groups share one.

    Args:
        registry: the Prometheus registry.
    """

    def __init__(self, registry: CollectorRegistry) -> None:
        self.registry = registry
        self.requests = metric("reconsume_sidecar_requests").counter(registry)
        self.seconds = metric("reconsume_sidecar_request_duration_seconds").histogram(registry)
        self._groups = Labels()
        self._send_backs = metric("reconsume_sidecar_send_backs").counter(registry)
        self.waiting = metric("reconsume_sidecar_waiting_send_backs").gauge(registry)

    def sent_back(self, group: str, outcome: str) -> None:
        """Count a send-back."""
        self._send_backs.labels(self._groups.of(group), outcome).inc()


class PushMetrics:
    """The metrics of push; one instance serves all subscriptions of a process.

    Args:
        registry: the Prometheus registry.
    """

    def __init__(self, registry: CollectorRegistry) -> None:
        self.deliveries = metric("reconsume_push_deliveries").counter(registry)
        self.unknown_statuses = metric("reconsume_push_unknown_statuses").counter(registry)
        self.discarded = metric("reconsume_push_discarded_messages").counter(registry)
        self.redirects = metric("reconsume_push_redirects").counter(registry)
        self.seconds = metric("reconsume_push_delivery_duration_seconds").histogram(registry)
        self.in_flight = metric("reconsume_push_in_flight").gauge(registry)
        self.app_down_since = metric("reconsume_push_app_down_since_timestamp_seconds").gauge(registry)
