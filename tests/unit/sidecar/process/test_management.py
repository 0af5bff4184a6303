"""Who may quiesce a sidecar from another machine."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from prometheus_client import CollectorRegistry

from reconsume.sidecar.life_cycle import Life
from reconsume.sidecar.process.management import Management
from reconsume.sidecar.settings import ProcessSettings

TOKEN = "0123456789abcdef"


@pytest.fixture(params=[TOKEN, None])
def management(request: pytest.FixtureRequest) -> Iterator[Management]:
    settings = ProcessSettings(management={"port": 0}, sidecar={"token": request.param})
    one = Management(settings, CollectorRegistry(), Life(), [])
    yield one
    one.close()


def status(management: Management, address: str, shown: str) -> str:
    answered: list[str] = []
    environ = {"REQUEST_METHOD": "GET", "PATH_INFO": "/quiesce", "REMOTE_ADDR": address, "HTTP_AUTHORIZATION": shown}
    list(management._answer(environ, lambda line, *_: answered.append(line)))
    return answered[0].partition(" ")[0]


def test_only_the_token_for_all_lets_others_quiesce(management: Management, request: pytest.FixtureRequest) -> None:
    with_token = "401" if "None" in request.node.name else "200"
    shown = ("", "Bearer ", "Bearer shop-0123456789abcdef", f"Bearer {TOKEN}")
    assert [status(management, "10.0.0.7", one) for one in shown] == [
        "401",
        "401",
        "401",
        with_token,
    ]
    assert [status(management, address, "") for address in ("127.0.0.1", "::1")] == ["200", "200"]
