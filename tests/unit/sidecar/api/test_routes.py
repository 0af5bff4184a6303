"""Routes that are not there, and those that are not ready yet, are answered with a problem."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, cast
from urllib.parse import unquote

import pytest
from prometheus_client import CollectorRegistry

from reconsume.sidecar.api.api import Backend, make_api
from reconsume.sidecar.api.models import GroupView
from reconsume.sidecar.guarding.callers import Caller
from reconsume.sidecar.guarding.guard import marking_slashes
from reconsume.sidecar.metrics import SidecarMetrics
from reconsume.sidecar.problems import Problem

VIEW = GroupView(
    group="departures",
    retry_topic="reconsume.RETRY.departures",
    retry_topic_exists=False,
    dead_letter_topic="reconsume.DLQ.departures",
    retry_max_times=16,
    retry_queue_nums=1,
    consume_enable=True,
    waits="10s",
    consumer_settings={},
)


def starting() -> Backend:
    """A backend that has not read the groups yet, and would show the default of each setting."""

    def require_ready() -> None:
        raise Problem("starting", "the groups are not read yet; make the same call again")

    async def run(_owner: str, work: Callable[[], object]) -> object:
        return work()

    views = SimpleNamespace(view=lambda _group: VIEW, prepare=lambda _group: VIEW, config_of=lambda _group: None)
    return Backend(require_ready, *cast("Any", (views, None, None, SimpleNamespace(run=run))))


def answered(method: str, path: str, backend: Backend | None = None) -> tuple[int, dict[str, str], Any]:
    """The status, the headers and the problem of a call by a caller who may do anything."""
    api = make_api(cast("Any", backend), SidecarMetrics(CollectorRegistry()))
    head = {"type": "http", "method": method, "scheme": "http", "server": ("sidecar", 1), "query_string": b""}
    kind = [(b"content-type", b"application/json")]
    scope = head | {"path": unquote(path), "raw_path": path.encode(), "headers": kind, "caller": Caller("anyone")}
    sent: list[Any] = []

    async def receive() -> dict[str, Any]:
        body = b'{"topic": "t", "partition": 0, "offset": 0}' if method == "POST" else b""
        return {"type": "http.request", "body": body, "more_body": False}

    async def send(message: Any) -> None:
        sent.append(message)

    asyncio.run(api(marking_slashes(scope), receive, send))
    headers = {name.decode(): value.decode() for name, value in sent[0]["headers"]}
    return sent[0]["status"], headers, json.loads(sent[1]["body"] or b"{}")


@pytest.mark.parametrize("path", ["/v1/groups/a/send-back/", "/v1/groups/a%2Fb/send-back/", "/v1/messages/", "/a%2Fb/"])
def test_a_path_with_a_slash_too_many_is_no_route(path: str) -> None:
    status, _, problem = answered("POST", path)
    assert (status, problem["type"]) == (404, "urn:reconsume:problem:no-such-route")


@pytest.mark.parametrize(("method", "path"), [("GET", ""), ("PUT", ""), ("POST", "/send-back")])
def test_no_group_is_told_of_before_the_groups_are_read(method: str, path: str) -> None:
    """Defaults would be told of a group that has settings, and 404 of one that is registered."""
    status, headers, problem = answered(method, f"/v1/groups/departures{path}", starting())
    assert (status, problem.get("type")) == (503, "urn:reconsume:problem:starting")
    assert int(headers["retry-after"]) > 0
