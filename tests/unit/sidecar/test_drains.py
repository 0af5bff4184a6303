"""Callers that wait until a sidecar has drained, on real sockets."""

from __future__ import annotations

import http.client
import json
import select
import threading
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from typing import Any

from prometheus_client import CollectorRegistry

from reconsume.bridge.http.wsgi_thread import WORKERS
from reconsume.sidecar.life_cycle import Life
from reconsume.sidecar.process.management import Management
from reconsume.sidecar.settings import ProcessSettings
from tests.support.waiting import PATIENCE, wait_until


@contextmanager
def serving(life: Life) -> Iterator[str]:
    server = Management(ProcessSettings(management={"port": 0}), CollectorRegistry(), life, [])
    try:
        yield server.address
    finally:
        server.close()


def asked(address: str, path: str) -> http.client.HTTPConnection:
    connection = http.client.HTTPConnection(address, timeout=PATIENCE)
    connection.request("GET", path)
    return connection


def answer(connection: http.client.HTTPConnection) -> tuple[int, Any]:
    with closing(connection):
        got = connection.getresponse()
        return got.status, json.loads(got.read())


def test_no_delivery_starts_after_a_drain() -> None:
    """Else the app, whose own hook asked, would get its SIGTERM between two of them."""
    life = Life()
    with serving(life) as address:
        assert answer(asked(address, "/drain?wait=soon"))[0] == 422
        assert not life.is_quiescing
        assert answer(asked(address, "/drain?wait=25")) == (200, {"drained": True, "inFlight": 0})
    assert life.is_quiescing


def test_probes_are_answered_while_any_number_of_callers_wait_for_a_drain() -> None:
    life, ended = Life(), threading.Event()

    def deliver() -> None:
        with life.delivery():
            assert ended.wait(PATIENCE)

    delivery = threading.Thread(target=deliver)
    delivery.start()
    wait_until(lambda: life.in_flight, "a delivery is in flight")
    with serving(life) as address, ExitStack() as stack:
        stack.callback(delivery.join)
        stack.callback(ended.set)
        waiting = [asked(address, "/drain?wait=3600") for _ in range(2 * WORKERS)]
        assert answer(asked(address, "/livez"))[0] == 200
        assert answer(asked(address, "/drain"))[0] == 503
        at_once = 2 * WORKERS - WORKERS // 2
        sockets = [one.sock for one in waiting]
        wait_until(lambda: len(select.select(sockets, [], [], 0)[0]) == at_once, "the others are answered")
        ended.set()
        answers = [answer(one) for one in waiting]
    assert sorted(status for status, _ in answers) == [200] * (WORKERS // 2) + [503] * at_once
