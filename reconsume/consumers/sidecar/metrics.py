"""What a sidecar process exports."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

__all__ = ["SidecarMetrics"]

_SECONDS: Final = (0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 30)


@dataclass(slots=True)
class SidecarMetrics:
    """The catalogue; labels are of few values, never topics, keys or partitions."""

    registry: CollectorRegistry = field(default_factory=CollectorRegistry)
    requests: Counter = field(init=False)
    seconds: Histogram = field(init=False)
    send_backs: Counter = field(init=False)
    waiting: Gauge = field(init=False)

    def __post_init__(self) -> None:
        self.requests = Counter(
            "reconsume_sidecar_requests",
            "Requests to the API, by route and status; 503 is Kafka that does not answer, 4xx a caller to be mended",
            ["route", "status"],
            registry=self.registry,
        )
        self.seconds = Histogram(
            "reconsume_sidecar_request_seconds",
            "How long a request took, the wait for Kafka's acknowledgement with it",
            ["route"],
            buckets=_SECONDS,
            registry=self.registry,
        )
        self.send_backs = Counter(
            "reconsume_sidecar_send_backs",
            "Records sent back through the API, by group and outcome",
            ["group", "outcome"],
            registry=self.registry,
        )
        self.waiting = Gauge(
            "reconsume_sidecar_waiting_send_backs",
            "Send-backs that Kafka has not acknowledged yet; steady growth means that it does not answer",
            registry=self.registry,
        )
