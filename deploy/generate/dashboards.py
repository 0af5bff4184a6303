"""Grafana dashboards, from the catalogue of metrics."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

from grafana_foundation_sdk.builders.common import VizLegendOptions, VizTooltipOptions
from grafana_foundation_sdk.builders.dashboard import Dashboard, DatasourceVariable, QueryVariable, Row
from grafana_foundation_sdk.builders.prometheus import Dataquery
from grafana_foundation_sdk.builders.stat import Panel as Stat
from grafana_foundation_sdk.builders.timeseries import Panel as Timeseries
from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.models.common import LegendDisplayMode, LegendPlacement, TooltipDisplayMode
from grafana_foundation_sdk.models.dashboard import DashboardCursorSync, DataSourceRef, VariableRefresh

from reconsume.bridge.metrics.catalogue import metric

__all__ = ["DASHBOARDS", "PanelSpec", "dashboard_json"]

_ALL: Final = 'namespace=~"$namespace",release=~"$release"'


@dataclass(frozen=True, slots=True)
class PanelSpec:
    """A panel: its queries by legend, and how it is drawn.

    Attributes:
        metric: of the catalogue; its help is the panel's description.
        queries: PromQL by legend; `SELECTOR` stands for the chosen installation's labels.
        unit: as Grafana calls it.
        single: one big number in place of lines.
    """

    title: str
    metric: str
    queries: dict[str, str]
    unit: str = "short"
    single: bool = False
    width: int = 12


def _rate(title: str, name: str, by: str, where: str = "", legend: str = "") -> PanelSpec:
    """Return the query of a counter's growth per second."""
    exported = metric(name).exported
    selector = f"{where},SELECTOR" if where else "SELECTOR"
    query = f"sum by ({by}) (rate({exported}{{{selector}}}[$__rate_interval]))"
    return PanelSpec(title, name, {legend or f"{{{{{by}}}}}": query})


def _quantiles(title: str, name: str, by: str) -> PanelSpec:
    """Return the queries of a histogram's median and maximum."""
    queries = {
        f"{{{{{by}}}}} p{percent}": f"histogram_quantile({percent / 100}, sum by (le, {by}) "
        f"(rate({name}_bucket{{SELECTOR}}[$__rate_interval])))"
        for percent in (50, 99)
    }
    return PanelSpec(title, name, queries, unit="s")


_SCHEDULER: Final[dict[str, Sequence[PanelSpec]]] = {
    "Is it well?": (
        PanelSpec(
            "Most overdue",
            "reconsume_scheduler_overdue_seconds",
            {"seconds": "max(reconsume_scheduler_overdue_seconds{SELECTOR})"},
            unit="s",
            single=True,
            width=6,
        ),
        PanelSpec(
            "Overdue records",
            "reconsume_scheduler_overdue_records",
            {"records": "sum(reconsume_scheduler_overdue_records{SELECTOR})"},
            single=True,
            width=6,
        ),
        PanelSpec(
            "Waiting records",
            "reconsume_scheduler_backlog_records",
            {"records": "sum(reconsume_scheduler_backlog_records{SELECTOR})"},
            single=True,
            width=6,
        ),
        PanelSpec(
            "Workers with partitions",
            "reconsume_scheduler_partitions",
            {"workers": "count(reconsume_scheduler_partitions{SELECTOR} > 0)"},
            single=True,
            width=6,
        ),
    ),
    "What it does": (
        _rate("Records moved, by outcome", "reconsume_scheduler_records", "outcome"),
        _quantiles("Lateness, by level", "reconsume_delivery_lateness_seconds", "level"),
        PanelSpec(
            "Overdue, by level",
            "reconsume_scheduler_overdue_seconds",
            {"{{level}}": "max by (level) (reconsume_scheduler_overdue_seconds{SELECTOR})"},
            unit="s",
        ),
        PanelSpec(
            "Waiting, by level",
            "reconsume_scheduler_backlog_records",
            {"{{level}}": "sum by (level) (reconsume_scheduler_backlog_records{SELECTOR})"},
        ),
    ),
    "Workers": (
        PanelSpec(
            "Partitions, by worker",
            "reconsume_scheduler_partitions",
            {"{{instance}}": "sum by (instance) (reconsume_scheduler_partitions{SELECTOR})"},
        ),
        PanelSpec(
            "Partitions left alone",
            "reconsume_scheduler_refused_partitions",
            {"{{instance}}": "sum by (instance) (reconsume_scheduler_refused_partitions{SELECTOR})"},
        ),
        _rate("Batches that were not committed", "reconsume_scheduler_aborted_batches", "instance"),
        PanelSpec(
            "Withdrawals in memory, by worker",
            "reconsume_scheduler_withdrawals",
            {"{{instance}}": "max by (instance) (reconsume_scheduler_withdrawals{SELECTOR})"},
        ),
        PanelSpec(
            "Versions",
            "reconsume_build_info",
            {"{{version}}": "count by (version) (reconsume_build_info{SELECTOR})"},
        ),
        PanelSpec(
            "Level tables in use",
            "reconsume_level_table_info",
            {"{{table}}": "count by (table) (reconsume_level_table_info{SELECTOR})"},
        ),
    ),
}

_GROUP: Final = 'group=~"$group"'
_GROUPS: Final[dict[str, Sequence[PanelSpec]]] = {
    "What the schedulers move": (
        _rate("Delivered again", "reconsume_scheduler_records", "group", f'outcome="delivered",{_GROUP}'),
        _rate("Dead letters", "reconsume_scheduler_records", "group", f'outcome="dead_lettered",{_GROUP}'),
        _rate(
            "Quarantined and dropped",
            "reconsume_scheduler_records",
            "group, outcome",
            f'outcome=~"quarantined|dropped",{_GROUP}',
            "{{group}} {{outcome}}",
        ),
        PanelSpec(
            "Due and paused",
            "reconsume_scheduler_parked_records",
            {"{{group}}": f"sum by (group) (reconsume_scheduler_parked_records{{{_GROUP},SELECTOR}})"},
        ),
    ),
    "What the applications do": (
        _rate("Messages acknowledged", "reconsume_consumer_ok", "group", _GROUP),
        _rate("Messages failed on", "reconsume_consumer_failed", "group", _GROUP),
        _rate("Sent back, by level", "reconsume_consumer_sent_back", "group, level", _GROUP, "{{group}} {{level}}"),
        _rate("Given up for dead", "reconsume_consumer_dead_letters", "group", _GROUP),
        _rate("Send-backs that failed", "reconsume_consumer_send_backs_failed", "group", _GROUP),
        PanelSpec(
            "Waiting, as a share of the limit",
            "reconsume_consumer_waiting_ratio",
            {"{{group}}": f"max by (group) (reconsume_consumer_waiting_ratio{{{_GROUP},SELECTOR}})"},
            unit="percentunit",
        ),
        PanelSpec(
            "In flight",
            "reconsume_consumer_in_flight",
            {"{{group}}": f"sum by (group) (reconsume_consumer_in_flight{{{_GROUP},SELECTOR}})"},
        ),
        PanelSpec(
            "Time of a call",
            "reconsume_consumer_rt_seconds",
            {
                f"{{{{group}}}} p{percent}": f"histogram_quantile({percent / 100}, sum by (le, group) "
                f"(rate(reconsume_consumer_rt_seconds_bucket{{{_GROUP},SELECTOR}}[$__rate_interval])))"
                for percent in (50, 99)
            },
            unit="s",
        ),
        PanelSpec(
            "Circuit breaker",
            "reconsume_circuit_breaker_state",
            {"{{group}}": f"max by (group) (reconsume_circuit_breaker_state{{{_GROUP},SELECTOR}})"},
        ),
        _rate("Circuit breaker openings", "reconsume_circuit_breaker_openings", "group", _GROUP),
    ),
}

_SIDECARS: Final[dict[str, Sequence[PanelSpec]]] = {
    "Send-backs over HTTP": (
        _rate("Requests, by status", "reconsume_sidecar_requests", "route, status", legend="{{route}} {{status}}"),
        _quantiles("Time of a request", "reconsume_sidecar_request_duration_seconds", "route"),
        _rate(
            "Sent back, by outcome", "reconsume_sidecar_send_backs", "group, outcome", _GROUP, "{{group}} {{outcome}}"
        ),
        PanelSpec(
            "Not acknowledged yet",
            "reconsume_sidecar_waiting_send_backs",
            {"{{instance}}": "sum by (instance) (reconsume_sidecar_waiting_send_backs{SELECTOR})"},
        ),
    ),
    "Pushed to apps": (
        _rate("Answers, by meaning", "reconsume_push_deliveries", "group, outcome", _GROUP, "{{group}} {{outcome}}"),
        _quantiles("Time of the app", "reconsume_push_delivery_duration_seconds", "group"),
        PanelSpec(
            "In flight",
            "reconsume_push_in_flight",
            {"{{group}}": f"sum by (group) (reconsume_push_in_flight{{{_GROUP},SELECTOR}})"},
        ),
        PanelSpec(
            "App away since",
            "reconsume_push_app_down_since_timestamp_seconds",
            {
                "{{group}}": "max by (group) (time() - "
                f"(reconsume_push_app_down_since_timestamp_seconds{{{_GROUP},SELECTOR}} > 0))"
            },
            unit="s",
        ),
        _rate("Answers with an unknown status", "reconsume_push_unknown_statuses", "group", _GROUP),
        _rate("Let go by the app", "reconsume_push_discarded_messages", "group", _GROUP),
        _rate("Redirects", "reconsume_push_redirects", "group", _GROUP),
    ),
}

_CONSOLE: Final[dict[str, Sequence[PanelSpec]]] = {
    "Pages": (
        _rate("Requests, by status", "reconsume_console_requests", "page, status", legend="{{page}} {{status}}"),
        _quantiles("Time of a page", "reconsume_console_request_duration_seconds", "page"),
        _rate("Dead letters that jobs have handled, by outcome", "reconsume_console_job_records", "outcome"),
        PanelSpec(
            "Age of the oldest open dead letter",
            "reconsume_oldest_open_dead_letter_timestamp_seconds",
            {"{{group}}": "time() - min by (group) (reconsume_oldest_open_dead_letter_timestamp_seconds{SELECTOR})"},
            unit="s",
        ),
    ),
}

DASHBOARDS: Final = {
    "reconsume-scheduler": ("reconsume: schedulers", _SCHEDULER),
    "reconsume-groups": ("reconsume: groups", _GROUPS),
    "reconsume-sidecars": ("reconsume: sidecars", _SIDECARS),
    "reconsume-console": ("reconsume: console", _CONSOLE),
}
_ALWAYS_EXPORTED: Final = {
    "reconsume-scheduler": "reconsume_scheduler_partitions",
    "reconsume-groups": "reconsume_scheduler_partitions|reconsume_consumer_in_flight",
    "reconsume-sidecars": "reconsume_sidecar_waiting_send_backs",
    "reconsume-console": "reconsume_console_job_records_total",
}
"""What the processes of a dashboard, and no others, export from their start, consumers from their first message.

They may run in other namespaces than the workers, and counters with labels do not exist before the first count.
"""
_LABELLED_BY_GROUP: Final = {
    "reconsume-groups": "reconsume_scheduler_records_total|reconsume_consumer_in_flight",
    "reconsume-sidecars": "reconsume_sidecar_send_backs_total|reconsume_push_deliveries_total",
}


def dashboard_json(uid: str) -> str:
    """Return a dashboard in Grafana's import format."""
    title, rows = DASHBOARDS[uid]
    builder = (
        Dashboard(title)
        .uid(uid)
        .tags(["reconsume", "kafka"])
        .refresh("30s")
        .time("now-1h", "now")
        .timezone("browser")
        .tooltip(DashboardCursorSync.CROSSHAIR)
        .editable()
    )
    for variable in _variables(uid):
        builder = builder.with_variable(variable)
    for name, panels in rows.items():
        builder = builder.with_row(Row(name))
        for panel in panels:
            builder = builder.with_panel(_panel(panel))
    encoder = JSONEncoder(sort_keys=True, indent=1, ensure_ascii=False)
    return encoder.encode(builder.build()) + "\n"


def _variables(uid: str) -> Iterator[Any]:
    yield DatasourceVariable("datasource").label("Prometheus").type("prometheus")
    name = f'__name__=~"{_ALWAYS_EXPORTED[uid]}"'
    yield _choice("namespace", f"label_values({{{name}}}, namespace)")
    yield _choice("release", f'label_values({{{name},namespace=~"$namespace"}}, release)')
    if (names := _LABELLED_BY_GROUP.get(uid)) is not None:
        yield _choice("group", f'label_values({{__name__=~"{names}"}}, group)')


def _choice(name: str, query: str) -> Any:
    """Match all series unless a value is chosen, also those without the label."""
    return (
        QueryVariable(name)
        .label(name.capitalize())
        .datasource(_source())
        .query(query)
        .refresh(VariableRefresh.ON_TIME_RANGE_CHANGED)
        .include_all(True)
        .all_value(".*")
        .multi(True)
    )


def _source() -> DataSourceRef:
    return DataSourceRef(type_val="prometheus", uid="${datasource}")


def _panel(spec: PanelSpec) -> Any:
    if spec.single:
        panel: Any = Stat()
    else:
        legend = VizLegendOptions().display_mode(LegendDisplayMode.LIST).placement(LegendPlacement.BOTTOM)
        tooltip = VizTooltipOptions().mode(TooltipDisplayMode.MULTI)
        panel = Timeseries().legend(legend.show_legend(True)).tooltip(tooltip).fill_opacity(10).min(0)
    panel = panel.title(spec.title).description(metric(spec.metric).help).unit(spec.unit).datasource(_source())
    panel = panel.height(4 if spec.single else 8).span(spec.width)
    for number, (legend_text, query) in enumerate(spec.queries.items()):
        target = Dataquery().expr(query.replace("SELECTOR", _ALL)).legend_format(legend_text).ref_id(chr(65 + number))
        panel = panel.with_target(target.instant() if spec.single else target.range())
    return panel
