"""The catalogue of metrics: everything that is exported stands in it, and labels are bounded."""

from __future__ import annotations

import ast
from collections import Counter

import promql_parser
import pytest
from prometheus_client import CollectorRegistry

from deploy.generate.pages import metrics_page
from deploy.generate.rocketmq_names import ROCKETMQ_NAMES
from reconsume.bridge.metrics.catalogue import CATALOGUE, MOST_GROUPS, OTHER_GROUPS, metric
from reconsume.bridge.metrics.registry import LevelWaiting, SchedulerMetrics
from reconsume.bridge.metrics.spec import MetricKind
from reconsume.console.metrics import ConsoleMetrics
from reconsume.consumers.listeners.circuit_metrics import CircuitMetrics
from reconsume.consumers.observing.consumer_metrics import ConsumerMetrics
from reconsume.delay_levels.rules.levels import DEFAULT_LEVEL_TABLE
from reconsume.delay_levels.wire.names import TopicNames
from reconsume.sidecar.metrics import PushMetrics, SidecarMetrics
from tests.support.source import modules

OUTCOMES = ("delivered", "dead_lettered", "sent_back", "rolled", "quarantined", "parked", "dropped", "cancelled")
LEVELS = ["SEND_BACK", *(f"DELAY.{text}" for text in ("0s", *DEFAULT_LEVEL_TABLE.split()))]


def series(registry: CollectorRegistry) -> Counter[str]:
    """Time series by family; `_created` is of the client library, and the scheduler's process turns it off."""
    return Counter(
        family.name
        for family in registry.collect()
        if family.name.startswith("reconsume_")
        for sample in family.samples
        if not sample.name.endswith("_created")
    )


def busy_scheduler(groups: int) -> SchedulerMetrics:
    metrics = SchedulerMetrics()
    metrics.scraped.waiting = lambda: {level: LevelWaiting(1, 1, 1.0) for level in LEVELS}
    metrics.scraped.table = lambda: DEFAULT_LEVEL_TABLE
    metrics.scraped.withdrawals = lambda: 1
    for level in LEVELS:
        metrics.lateness.observe(level, 1_000, [999])
    for outcome in OUTCOMES:
        metrics.count({(outcome, f"g{number}"): 1 for number in range(groups)})
    return metrics


def busy_consumer(registry: CollectorRegistry) -> None:
    metrics = ConsumerMetrics(registry)
    for physical in ("flights", TopicNames().retry("departures")):
        labels = ("departures", "flights", physical)
        for one in (metrics._ok, metrics._failed, metrics._dead_letters, metrics._refused):
            one.labels(*labels).inc()
        metrics._rt.labels(*labels).observe(1)
        metrics._in_flight.labels(*labels).inc()
    metrics._sent_back.labels("departures", "flights", "flights", "RETRY", "3").inc()
    for level in range(4, 19):
        metrics._sent_back.labels("departures", "flights", TopicNames().retry("departures"), "RETRY", str(level)).inc()
    metrics._sent_back.labels("departures", "flights", TopicNames().retry("departures"), "DEAD_LETTER", "0").inc()


def test_names_are_prometheus_and_there_once() -> None:
    names = [one.name for one in CATALOGUE]
    assert len(names) == len(set(names))
    for one in CATALOGUE:
        assert one.name.startswith("reconsume_"), one.name
        assert not one.name.endswith("_total"), one.name
        assert one.help, one.name
        assert (one.kind is MetricKind.HISTOGRAM) == bool(one.buckets), one.name
        assert ("seconds" in one.name) == (one.unit == "seconds"), one.name


def test_what_is_exported_stands_in_the_catalogue_with_its_kind_and_labels() -> None:
    registry = CollectorRegistry()
    busy_consumer(registry)
    CircuitMetrics(registry)
    PushMetrics(registry)
    SidecarMetrics(registry)
    ConsoleMetrics(registry)
    seen = set()
    for family in [*busy_scheduler(1).registry.collect(), *registry.collect()]:
        if family.name.startswith("reconsume_"):
            spec = metric(family.name)
            seen.add(family.name)
            assert family.documentation == spec.help
            assert family.type == ("gauge" if spec.kind is MetricKind.INFO else spec.kind.value)
            for sample in family.samples:
                assert set(sample.labels) - {"le"} == set(spec.labels), sample.name
    assert seen == {one.name for one in CATALOGUE}


def test_no_metric_is_made_past_the_catalogue() -> None:
    makers = {"Counter", "Gauge", "Histogram", "Summary", "Info", "Enum"}
    found = []
    for path, tree in modules().items():
        imported = {
            name.asname or name.name
            for node in ast.walk(tree)
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("prometheus_client")
            for name in node.names
        }
        called = {
            node.func.id for node in ast.walk(tree) if isinstance(node, ast.Call) and isinstance(node.func, ast.Name)
        }
        found += [path.name for _ in (imported & called & makers)]
    assert set(found) == {"spec.py"}


def test_series_stay_few_with_200_groups_and_18_levels_and_the_page_gives_the_figure() -> None:
    counted = series(busy_scheduler(200).registry)
    assert counted["reconsume_delivery_lateness_seconds"] == len(LEVELS) * 17
    assert counted["reconsume_scheduler_records"] == 200 * len(OUTCOMES)
    registry = CollectorRegistry()
    busy_consumer(registry)
    page = metrics_page()
    assert f"one scheduler worker has {sum(counted.values()):,} time\nseries" in page
    assert f"and {sum(counted.values()) - 340 - 60 - 1_600} others" in page
    assert f"has {sum(series(registry).values())} with every level in use" in page


def test_the_outcomes_that_are_counted_are_those_of_the_catalogue() -> None:
    told = metric("reconsume_scheduler_records").help.split("by outcome: ")[1]
    assert tuple(part.split(" ")[0] for part in told.split(", ")) == OUTCOMES


def test_a_flood_of_group_names_shares_one_label() -> None:
    metrics = busy_scheduler(MOST_GROUPS + 50)
    value = metrics.registry.get_sample_value
    labels = {"outcome": "quarantined", "group": OTHER_GROUPS}
    assert value("reconsume_scheduler_records_total", labels) == 50
    assert series(metrics.registry)["reconsume_scheduler_records"] == len(OUTCOMES) * (MOST_GROUPS + 1)


@pytest.mark.parametrize("expression", [one.expression for one in ROCKETMQ_NAMES if one.expression])
def test_rocketmqs_names_are_promql_over_metrics_that_exist(expression: str) -> None:
    promql_parser.parse(expression)
    exported = {sample for spec in CATALOGUE for sample in spec.samples}
    named = {word for word in _words(expression) if word.startswith("reconsume_")}
    assert named
    assert named <= exported


def _words(text: str) -> list[str]:
    return "".join(character if character.isalnum() or character == "_" else " " for character in text).split()
