"""What the dashboards ask is answered by a real Prometheus from real processes that have work to do."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest

from deploy.generate.dashboards import DASHBOARDS, dashboard_json
from tests.deploy.monitoring.live import Prometheus, busy_installation
from tests.deploy.tools import NotBrought, ToolMissing, prometheus
from tests.support.waiting import wait_until

pytestmark = pytest.mark.kafka

NOTHING_FAILS_SO: Final = {"Send-backs that failed"}
"""Panels that are empty until Kafka refuses something."""
CHOSEN: Final = {"$__rate_interval": "5s", "$namespace": "ns", "$release": "rel", "$group": ".*"}


def panels(uid: str) -> Iterator[tuple[str, str]]:
    """Title and query of every target, for all that was measured."""
    for panel in json.loads(dashboard_json(uid))["panels"]:
        for target in panel.get("targets", ()):
            query = target["expr"]
            for name, value in CHOSEN.items():
                query = query.replace(name, value)
            yield panel["title"], query


@pytest.fixture(scope="module")
def asked(bootstrap_servers: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Prometheus]:
    try:
        prometheus()
    except (ToolMissing, NotBrought) as missing:
        pytest.skip(str(missing))
    folder: Path = tmp_path_factory.mktemp("live")
    with busy_installation(bootstrap_servers, folder) as one:
        yield one


@pytest.mark.parametrize("uid", DASHBOARDS)
def test_every_panel_has_something_to_draw(uid: str, asked: Prometheus) -> None:
    left: Any = dict.fromkeys(panels(uid))

    def drawn() -> bool:
        asked.work()
        for one in list(left):
            if asked.values(one[1]):
                del left[one]
        return {title for title, _ in left} <= NOTHING_FAILS_SO

    try:
        wait_until(drawn, "all panels have something to draw")
    except AssertionError as late:
        raise AssertionError(f"{uid}: nothing to draw for {sorted(left)}") from late
