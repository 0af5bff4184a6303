"""Entries of the catalogue of metrics, and the metrics made from them."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Final

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

_NOT_SUMMED: Final = ("", "0, 1, 2", "ratio", "seconds")
"""Units of gauges without a sum: the largest value of all processes counts."""


class MetricKind(Enum):
    """Prometheus' kinds; an INFO is a gauge that is always 1 and carries its information in labels."""

    COUNTER = "counter"
    GAUGE = "gauge"
    HISTOGRAM = "histogram"
    INFO = "info"


@dataclass(frozen=True, slots=True)
class MetricSpec:
    """One metric.

    Attributes:
        name: the name of the family; a counter's samples end with `_total`, a histogram's with `_bucket` and so on.
        unit: the unit of its values.
        help: its meaning and what to do about it.
    """

    kind: MetricKind
    name: str
    unit: str
    labels: tuple[str, ...]
    help: str
    buckets: tuple[float, ...] = ()

    @property
    def exported(self) -> str:
        """The name in Prometheus; for a histogram that of its family."""
        return f"{self.name}_total" if self.kind is MetricKind.COUNTER else self.name

    @property
    def samples(self) -> tuple[str, ...]:
        """The names of all its time series."""
        if self.kind is MetricKind.HISTOGRAM:
            return tuple(f"{self.name}_{part}" for part in ("bucket", "count", "sum"))
        return (self.exported,)

    def counter(self, registry: CollectorRegistry) -> Counter:
        """Make and register the metric."""
        return Counter(self.name, self.help, self.labels, registry=registry)

    def gauge(self, registry: CollectorRegistry) -> Gauge:
        """Make and register the metric; in Prometheus' multiprocess mode it covers the live processes alone."""
        return Gauge(
            self.name,
            self.help,
            self.labels,
            registry=registry,
            multiprocess_mode="livemax" if self.unit in _NOT_SUMMED else "livesum",
        )

    def histogram(self, registry: CollectorRegistry) -> Histogram:
        """Make and register the metric."""
        return Histogram(self.name, self.help, self.labels, buckets=self.buckets, registry=registry)
