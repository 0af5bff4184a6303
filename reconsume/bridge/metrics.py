"""The catalogue of metrics: name, kind, unit, labels and what to do about it, all in one place."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from prometheus_client import CollectorRegistry, Counter, Gauge
from prometheus_client.core import HistogramMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

__all__ = ["LATENESS_BUCKETS_MS", "LatenessHistogram", "SchedulerMetrics"]

LATENESS_BUCKETS_MS: Final = (2, 5, 10, 20, 50, 100, 200, 500, 1_000, 2_000, 5_000, 15_000, 60_000, 300_000)


class LatenessHistogram(Collector):
    """How late records were delivered; fed a batch at a time, because one call per record costs too much."""

    def __init__(self) -> None:
        self._counts: dict[str, list[int]] = {}
        self._sums: dict[str, float] = {}

    def observe(self, level: str, now_ms: float, due_ms: list[int]) -> None:
        """Add records of one level that were due at those moments and are delivered now.

        They come nearly in order, so sorting is a walk, and a search for each bound replaces one for each record.
        """
        due = sorted(due_ms)
        counts = self._counts.setdefault(level, [0] * (len(LATENESS_BUCKETS_MS) + 1))
        above = len(due)
        for bucket, bound in enumerate(LATENESS_BUCKETS_MS):
            later = bisect_left(due, now_ms - bound)
            counts[bucket] += above - later
            above = later
        counts[-1] += above
        self._sums[level] = self._sums.get(level, 0.0) + now_ms * len(due) - sum(due)

    def collect(self) -> Iterator[Metric]:
        """What Prometheus scrapes, in seconds."""
        family = HistogramMetricFamily(
            "reconsume_delivery_lateness_seconds",
            "How long after its due time a record was delivered; above 1 s add workers or look at the brokers",
            labels=["level"],
        )
        for level, counts in list(self._counts.items()):
            bounds = [*(str(bound / 1000) for bound in LATENESS_BUCKETS_MS), "+Inf"]
            family.add_metric([level], list(zip(bounds, _running(counts), strict=True)), self._sums[level] / 1000)
        yield family


def _running(counts: Sequence[int]) -> list[int]:
    total, running = 0, []
    for count in counts:
        total += count
        running.append(total)
    return running


@dataclass(slots=True)
class SchedulerMetrics:
    """What a scheduler worker exports."""

    registry: CollectorRegistry = field(default_factory=CollectorRegistry)
    lateness: LatenessHistogram = field(default_factory=LatenessHistogram)
    records: Counter = field(init=False)
    aborts: Counter = field(init=False)
    partitions: Gauge = field(init=False)

    def __post_init__(self) -> None:
        self.registry.register(self.lateness)
        self.records = Counter(
            "reconsume_scheduler_records",
            "Records moved, by outcome: delivered, dead_lettered, sent_back, rolled (to another delay topic), "
            "quarantined (look at the topic), dropped, cancelled",
            ["outcome", "group"],
            registry=self.registry,
        )
        self.aborts = Counter(
            "reconsume_scheduler_aborted_batches",
            "Batches that were not committed and are delivered again; steady growth means brokers refuse something",
            registry=self.registry,
        )
        self.partitions = Gauge(
            "reconsume_scheduler_partitions",
            "Partitions that this worker schedules from; 0 on all workers means that nothing moves",
            registry=self.registry,
        )

    def count(self, outcomes: Mapping[tuple[str, str], int]) -> None:
        """Add a batch: records by outcome and group."""
        for (outcome, group), number in outcomes.items():
            self.records.labels(outcome, group).inc(number)
