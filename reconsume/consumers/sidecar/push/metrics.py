"""What push does, for Prometheus."""

from __future__ import annotations

from functools import cache
from typing import Final

from prometheus_client import REGISTRY, CollectorRegistry, Counter, Gauge, Histogram

__all__ = ["PushMetrics", "push_metrics"]

_BUCKETS: Final = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300, 900)


class PushMetrics:
    """One of these serves all subscriptions of a process.

    Args:
        registry: where they are scraped from.
    """

    def __init__(self, registry: CollectorRegistry = REGISTRY) -> None:
        self.deliveries = Counter(
            "reconsume_push_deliveries",
            "Requests to the app by what their answers meant: ack, retry, dead_letter, drop, hold, missing_route",
            ["group", "outcome"],
            registry=registry,
        )
        self.unknown_statuses = Counter(
            "reconsume_push_unknown_statuses",
            "2xx answers with a status that the contract does not have; the message was sent back",
            ["group"],
            registry=registry,
        )
        self.discarded = Counter(
            "reconsume_push_discarded_messages",
            "Messages that the app dropped and that drop = discard let go",
            ["group"],
            registry=registry,
        )
        self.redirects = Counter(
            "reconsume_push_redirects",
            "3xx answers; they are never followed: the URL or the route in the settings is wrong",
            ["group"],
            registry=registry,
        )
        self.seconds = Histogram(
            "reconsume_push_delivery_duration_seconds",
            "From the request to the app's answer",
            ["group"],
            buckets=_BUCKETS,
            registry=registry,
        )
        self.in_flight = Gauge(
            "reconsume_push_in_flight", "Requests that the app has and has not answered", ["group"], registry=registry
        )
        self.app_down_since = Gauge(
            "reconsume_push_app_down_since_timestamp_seconds",
            "Since when the app could not be asked; 0 if it can. Alert on it when it is minutes ago",
            ["group"],
            registry=registry,
        )


@cache
def push_metrics(registry: CollectorRegistry = REGISTRY) -> PushMetrics:
    """Those of a registry."""
    return PushMetrics(registry)
