"""Who may quiesce a sidecar: callers on other machines, and web pages."""

from __future__ import annotations

import json
from collections.abc import Iterator
from http.client import HTTPConnection

import pytest
from prometheus_client import CollectorRegistry

from reconsume.sidecar.life_cycle import Life, Phase
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


@pytest.mark.parametrize("path", ["/quiesce", "/drain"])
def test_web_pages_of_other_sites_may_not_quiesce(management: Management, path: str) -> None:
    """As a browser on this machine, or behind `kubectl port-forward`, sends `<img src=...>`."""

    def call(fetch_site: str | None) -> tuple[int, bytes]:
        connection = HTTPConnection(management.address, timeout=10)
        connection.request("GET", path, headers={} if fetch_site is None else {"Sec-Fetch-Site": fetch_site})
        answer = connection.getresponse()
        found = answer.status, answer.read()
        connection.close()
        return found

    for site in ("cross-site", "same-site", ""):
        status, text = call(site)
        assert status == 403
        assert f"a web page of another site called {path}" in json.loads(text)["detail"]
    assert management._life.phase is Phase.STARTING
    assert [call(site)[0] for site in ("none", "same-origin", None)] == [200] * 3
