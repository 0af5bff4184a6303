"""The sidecar's metrics."""

from __future__ import annotations

from typing import Final

from reconsume.bridge.metrics.spec import MetricKind, MetricSpec

__all__ = ["SIDECAR"]

SIDECAR: Final = (
    MetricSpec(
        "reconsume_sidecar_requests",
        MetricKind.COUNTER,
        "sidecar",
        "requests",
        ("route", "status"),
        "Requests to the API, by route and status; 503 is Kafka that does not answer, 4xx a caller to be mended",
    ),
    MetricSpec(
        "reconsume_sidecar_request_duration_seconds",
        MetricKind.HISTOGRAM,
        "sidecar",
        "seconds",
        ("route",),
        "How long a request took, the wait for Kafka's acknowledgement with it",
        (0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 30),
    ),
    MetricSpec(
        "reconsume_sidecar_send_backs",
        MetricKind.COUNTER,
        "sidecar",
        "records",
        ("group", "outcome"),
        "Records sent back through the API, by group and outcome",
    ),
    MetricSpec(
        "reconsume_sidecar_waiting_send_backs",
        MetricKind.GAUGE,
        "sidecar",
        "records",
        (),
        "Send-backs that Kafka has not acknowledged yet; steady growth means that it does not answer",
    ),
    MetricSpec(
        "reconsume_push_deliveries",
        MetricKind.COUNTER,
        "sidecar",
        "requests",
        ("group", "outcome"),
        "Requests to the app by what their answers meant: ack, retry, dead_letter, drop, hold, missing_route",
    ),
    MetricSpec(
        "reconsume_push_delivery_duration_seconds",
        MetricKind.HISTOGRAM,
        "sidecar",
        "seconds",
        ("group",),
        "From the request to the app's answer",
        (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300, 900),
    ),
    MetricSpec(
        "reconsume_push_in_flight",
        MetricKind.GAUGE,
        "sidecar",
        "requests",
        ("group",),
        "Requests that the app has and has not answered",
    ),
    MetricSpec(
        "reconsume_push_unknown_statuses",
        MetricKind.COUNTER,
        "sidecar",
        "answers",
        ("group",),
        "2xx answers with a status that the contract does not have; the message was sent back. Mend the app",
    ),
    MetricSpec(
        "reconsume_push_discarded_messages",
        MetricKind.COUNTER,
        "sidecar",
        "messages",
        ("group",),
        "Messages that the app dropped and that `drop: discard` let go",
    ),
    MetricSpec(
        "reconsume_push_redirects",
        MetricKind.COUNTER,
        "sidecar",
        "answers",
        ("group",),
        "3xx answers; they are never followed: the URL or the route in the settings is wrong",
    ),
    MetricSpec(
        "reconsume_push_app_down_since_timestamp_seconds",
        MetricKind.GAUGE,
        "sidecar",
        "seconds",
        ("group",),
        "Since when the app could not be asked; 0 if it can. Messages are held meanwhile: look at the app",
    ),
)
