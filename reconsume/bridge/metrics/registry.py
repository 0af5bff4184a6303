"""The metrics of a scheduler worker, made from the catalogue."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import accumulate
from typing import NamedTuple

from prometheus_client import CollectorRegistry, Counter, Gauge, ProcessCollector
from prometheus_client.core import GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

import reconsume
from reconsume.bridge.metrics.catalogue import LATENESS_BUCKETS_MS, MOST_GROUPS, OTHER_GROUPS, metric


class LatenessHistogram(Collector):
    """Lateness of delivered records; fed in batches, because one call per record costs too much."""

    def __init__(self) -> None:
        self._counts: dict[str, list[int]] = {}
        self._sums: dict[str, float] = {}

    def observe(self, level: str, now_ms: float, due_ms: list[int]) -> None:
        """Add records of one level with these due moments, delivered now.

        They are nearly sorted, so sorting is cheap, and one search for each bound replaces one for each record.
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
        """Return the samples for Prometheus, in seconds."""
        spec = metric("reconsume_delivery_lateness_seconds")
        family = HistogramMetricFamily(spec.name, spec.help, labels=spec.labels)
        for level, counts in list(self._counts.items()):
            bounds = [*(str(bound / 1000) for bound in LATENESS_BUCKETS_MS), "+Inf"]
            family.add_metric([level], list(zip(bounds, accumulate(counts), strict=True)), self._sums[level] / 1000)
        yield family


class LevelWaiting(NamedTuple):
    """The waiting records of one level; `overdue_seconds` is how late the first one is, 0 if it is not."""

    backlog: int
    overdue: int
    overdue_seconds: float


class ScrapedGauges(Collector):
    """Gauges computed at each scrape: a hanging worker must not show old values.

    Attributes:
        waiting: returns waiting records by level.
        parked: returns records in parked topics, by group.
        table: returns the level table in force.
        withdrawals: returns the number of withdrawals in memory.
    """

    def __init__(self) -> None:
        self.waiting: Callable[[], Mapping[str, LevelWaiting]] = dict
        self.parked: Callable[[], Mapping[str, int]] = dict
        self.table: Callable[[], str] | None = None
        self.withdrawals: Callable[[], int] | None = None

    def collect(self) -> Iterator[Metric]:
        """Return the samples for Prometheus."""
        levels = self.waiting()
        for name, part in (("backlog_records", 0), ("overdue_records", 1), ("overdue_seconds", 2)):
            spec = metric(f"reconsume_scheduler_{name}")
            family = GaugeMetricFamily(spec.name, spec.help, labels=spec.labels)
            for level, waiting in levels.items():
                family.add_metric([level], waiting[part])
            yield family
        spec = metric("reconsume_scheduler_parked_records")
        family = GaugeMetricFamily(spec.name, spec.help, labels=spec.labels)
        for number, (group, count) in enumerate(self.parked().items()):
            if number < MOST_GROUPS:
                family.add_metric([group], count)
        yield family
        if self.withdrawals is not None:
            spec = metric("reconsume_scheduler_withdrawals")
            yield GaugeMetricFamily(spec.name, spec.help, self.withdrawals())
        if self.table is not None:
            spec = metric("reconsume_level_table_info")
            family = GaugeMetricFamily(spec.name, spec.help, labels=spec.labels)
            family.add_metric([self.table()], 1)
            yield family


@dataclass(slots=True)
class SchedulerMetrics:
    """The metrics of a scheduler worker."""

    registry: CollectorRegistry = field(default_factory=CollectorRegistry)
    lateness: LatenessHistogram = field(default_factory=LatenessHistogram)
    scraped: ScrapedGauges = field(default_factory=ScrapedGauges)
    records: Counter = field(init=False)
    aborts: Counter = field(init=False)
    partitions: Gauge = field(init=False)
    refused: Gauge = field(init=False)
    _groups: set[str] = field(init=False, default_factory=set)

    def __post_init__(self) -> None:
        self.registry.register(self.lateness)
        self.registry.register(self.scraped)
        ProcessCollector(registry=self.registry)
        self.records = metric("reconsume_scheduler_records").counter(self.registry)
        self.aborts = metric("reconsume_scheduler_aborted_batches").counter(self.registry)
        self.partitions = metric("reconsume_scheduler_partitions").gauge(self.registry)
        self.refused = metric("reconsume_scheduler_refused_partitions").gauge(self.registry)
        metric("reconsume_build_info").gauge(self.registry).labels(reconsume.__version__).set(1)

    def count(self, outcomes: Mapping[tuple[str, str], int]) -> None:
        """Add a batch: records by outcome and group."""
        for (outcome, group), number in outcomes.items():
            self.records.labels(outcome, self._bounded(group)).inc(number)

    def _bounded(self, group: str) -> str:
        if group not in self._groups:
            if len(self._groups) >= MOST_GROUPS:
                return OTHER_GROUPS
            self._groups.add(group)
        return group
