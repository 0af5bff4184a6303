"""Paths that are no routes are answered with a problem, whatever their names hold."""

from __future__ import annotations

import asyncio
import json
from typing import Any, cast
from urllib.parse import unquote

import pytest
from prometheus_client import CollectorRegistry

from reconsume.sidecar.api.api import make_api
from reconsume.sidecar.guarding.guard import marking_slashes
from reconsume.sidecar.metrics import SidecarMetrics


def asked(path: str) -> tuple[int, Any]:
    """The status and the problem of a POST."""
    api = make_api(cast("Any", None), SidecarMetrics(CollectorRegistry()))
    head = {"type": "http", "method": "POST", "scheme": "http", "server": ("sidecar", 1), "query_string": b""}
    scope = head | {"path": unquote(path), "raw_path": path.encode(), "headers": []}
    sent: list[Any] = []

    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": b"{}", "more_body": False}

    async def send(message: Any) -> None:
        sent.append(message)

    asyncio.run(api(marking_slashes(scope), receive, send))
    return sent[0]["status"], json.loads(sent[1]["body"] or b"{}")


@pytest.mark.parametrize("path", ["/v1/groups/a/send-back/", "/v1/groups/a%2Fb/send-back/", "/v1/messages/", "/a%2Fb/"])
def test_a_path_with_a_slash_too_many_is_no_route(path: str) -> None:
    status, problem = asked(path)
    assert (status, problem["type"]) == (404, "urn:reconsume:problem:no-such-route")
