"""The metrics of a console process."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from prometheus_client import CollectorRegistry

from reconsume.bridge.metrics.catalogue import metric
from reconsume.operations.jobs.work import OUTCOMES, LetterOutcome


class ConsoleMetrics:
    """Metrics of a console. Labels have few values: a route is the name of a page, never an address.

    Args:
        registry: the Prometheus registry.
    """

    def __init__(self, registry: CollectorRegistry) -> None:
        self.registry = registry
        self.requests = metric("reconsume_console_requests").counter(registry)
        self.seconds = metric("reconsume_console_request_duration_seconds").histogram(registry)
        self.handled = metric("reconsume_console_job_records").counter(registry)
        for outcome in OUTCOMES:  # from the start, because rate() leaves out a counter's first value
            self.handled.labels(outcome)
        self.oldest_open = metric("reconsume_oldest_open_dead_letter_timestamp_seconds").gauge(registry)
        self._told: set[str] = set()

    def count_outcomes(self, outcomes: Sequence[LetterOutcome]) -> None:
        """Count the outcomes of jobs."""
        for one in outcomes:
            self.handled.labels(one.outcome).inc()

    def tell_oldest_open(self, oldest_ms: Mapping[str, int]) -> None:
        """Record when the oldest open dead letter of each group was stored; groups that are left out have none."""
        # Not by clear(): a scrape right after it would miss groups, and their alerts would resolve.
        for group in self._told - oldest_ms.keys():
            self.oldest_open.remove(group)
        self._told = set(oldest_ms)
        for group, stored_ms in oldest_ms.items():
            self.oldest_open.labels(group).set(stored_ms / 1000)
