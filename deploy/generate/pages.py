"""The pages of `docs/` that are generated from the code, so that they cannot be out of date."""

from __future__ import annotations

import json
from typing import Final

from prometheus_client import CollectorRegistry

from benchmarks.pages import PAGES as BENCHMARKS
from deploy.generate.rocketmq_names import ROCKETMQ_NAMES
from deploy.generate.settings_page import settings_page
from reconsume.bridge.metrics.catalogue import BY_ROLE, MOST_GROUPS
from reconsume.bridge.metrics.spec import MetricSpec
from reconsume.bridge.process.clock import now_ms
from reconsume.console.api.api import make_api as make_console_api
from reconsume.console.changes import Changes
from reconsume.console.cluster import ConsoleCluster
from reconsume.console.settings import ConsoleProcessSettings
from reconsume.sidecar.api.api import make_api
from reconsume.sidecar.metrics import SidecarMetrics

__all__ = ["PAGES", "metrics_page"]

_MADE: Final = "<!-- made by `make docs` from {source}; do not edit -->\n"
_ROLES: Final = {
    "scheduler": "Scheduler workers, on `/metrics` of their management address, with `process_*` of the process",
    "consumer": "Consumers, where the program serves its registry (see [hooks](hooks.md))",
    "sidecar": "Sidecars, on `/metrics` of their management address",
    "console": "Consoles, on `/metrics` of their management address, with `reconsume_build_info`, and `process_*` of "
    "the process",
}
_CARDINALITY: Final = f"""\
## How many time series

With 200 groups, each with all outcomes, and the 18 levels of the default table, one scheduler worker has 2,006 time
series: 340 of `reconsume_delivery_lateness_seconds`, 60 for waiting records, 1,600 of
`reconsume_scheduler_records_total`, and 6 others. They do not grow with partitions, keys, topics or records. Beyond
{MOST_GROUPS:,} groups, the further ones share the label `(other)`. A consumer that reads one topic and its retries
has 57 with every level in use.
`tests/unit/bridge/metrics/test_catalogue.py` counts them.

`level` is a delay topic without the prefix, such as `DELAY.10s`, or `SEND_BACK` for the inbox.
"""


def metrics_page() -> str:
    """Return `docs/metrics.md`."""
    parts = [
        "# Metrics\n",
        _MADE.format(source="reconsume/bridge/metrics/catalogue.py"),
        "This page is a reference of every metric, for authors of dashboards and alerts.\n",
    ]
    for role, where in _ROLES.items():
        parts.append(f"## {role.capitalize()}\n\n{where}.\n")
        rows = [_row(one) for one in BY_ROLE[role]]
        parts.append("\n".join(["| metric | kind | unit | labels | meaning |", "|---|---|---|---|---|", *rows]) + "\n")
    parts.append(_CARDINALITY)
    parts.append(
        "## RocketMQ's names\n\nThe queries of dashboards for RocketMQ 5, as PromQL over the metrics above; the\n"
        "chart has them as recording rules.\n"
    )
    rows = [
        f"| `{one.name}` | {_code(one.expression) if one.expression else '–'} | {one.note} |" for one in ROCKETMQ_NAMES
    ]
    parts.append("\n".join(["| RocketMQ | here | note |", "|---|---|---|", *rows]) + "\n")
    return "\n".join(parts)


def _row(one: MetricSpec) -> str:
    labels = ", ".join(f"`{label}`" for label in one.labels)
    return f"| `{one.exported}` | {one.kind.value} | {one.unit} | {labels} | {one.help} |"


def _code(expression: str) -> str:
    return "`" + expression.replace("|", "\\|") + "`"


def openapi_text() -> str:
    """Return `docs/openapi.json`."""
    api = make_api(None, SidecarMetrics(CollectorRegistry()))  # type: ignore[arg-type]  # nothing of it is called
    return json.dumps(api.openapi(), indent=1, ensure_ascii=False) + "\n"


def console_openapi_text() -> str:
    """Return `docs/openapi-console.json`."""
    settings = ConsoleProcessSettings()
    cluster = ConsoleCluster(settings)
    api = make_console_api(settings, cluster, Changes(cluster), now_ms, None)
    return json.dumps(api.openapi(), indent=1, ensure_ascii=False) + "\n"


PAGES: Final = {
    "metrics.md": metrics_page,
    "openapi.json": openapi_text,
    "openapi-console.json": console_openapi_text,
    "settings.md": settings_page,
    **BENCHMARKS,
}
