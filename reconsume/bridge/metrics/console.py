"""The console's metrics."""

from __future__ import annotations

from typing import Final

from reconsume.bridge.metrics.spec import MetricKind, MetricSpec

__all__ = ["CONSOLE"]

CONSOLE: Final = (
    MetricSpec(
        "reconsume_console_requests",
        MetricKind.COUNTER,
        "console",
        "requests",
        ("page", "status"),
        "Requests of browsers, by page and status; 503 is Kafka that does not answer, 403 a right that is missing or a "
        "form that was refused",
    ),
    MetricSpec(
        "reconsume_console_request_duration_seconds",
        MetricKind.HISTOGRAM,
        "console",
        "seconds",
        ("page",),
        "How long a page took, most of it Kafka's answers",
        (0.01, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60),
    ),
    MetricSpec(
        "reconsume_console_resent_records",
        MetricKind.COUNTER,
        "console",
        "records",
        ("outcome",),
        "Dead letters that somebody wanted to send again, by what became of it: send (it was sent), superseded, "
        "replayed, capped, damaged",
    ),
    MetricSpec(
        "reconsume_oldest_open_dead_letter_timestamp_seconds",
        MetricKind.GAUGE,
        "console",
        "seconds",
        ("group",),
        "When the oldest open dead letter was stored; nothing for a group without one. Look at it, then send it again "
        "or resolve it",
    ),
)
