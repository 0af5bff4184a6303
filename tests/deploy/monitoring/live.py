"""Processes of reconsume that do everything a dashboard shows, and a Prometheus that asks them."""

from __future__ import annotations

import functools
import http.client
import json
import math
import os
import subprocess
import sys
import time
import urllib.parse
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from prometheus_client import CollectorRegistry, start_http_server

from reconsume.bridge.groups.groups import SubscriptionGroupConfig
from reconsume.cli.broker.ports import free_port
from reconsume.consumers import CircuitBreaker, CircuitMetrics, ConsumeConcurrentlyStatus, Message
from reconsume.consumers.observing.consumer_metrics import ConsumerMetrics
from tests.deploy.tools import prometheus
from tests.integration.installation import LATER, SUCCESS, Installation, settings_for
from tests.integration.push.push_app import Delivered, app
from tests.integration.sidecars import call
from tests.support.consoles import Browser
from tests.support.waiting import wait_until

__all__ = ["Prometheus", "busy_installation"]

_SUBSCRIPTION = """
[[subscriptions]]
group = "{group}"
topics = ["{topic}"]
url = "http://127.0.0.1:{port}"
drop = "{drop}"
max_reconsume_times = 1
"""
_ANSWERS: Mapping[str, Mapping[str, Any]] = {
    "odd": {"json": {"status": "PERHAPS"}},
    "drop": {"json": {"status": "DROP"}},
    "moved": {"status": 302, "headers": {"location": "/elsewhere"}},
    "broken": {"status": 500},
}


@dataclass(frozen=True, slots=True)
class Prometheus:
    """A Prometheus that runs.

    Attributes:
        began: Unix time in seconds.
        work: gives the processes that it asks something to do: a counter shows a rate when it grows before its eyes.
    """

    address: str
    work: Callable[[], None]
    began: float = field(default_factory=time.time)

    def values(self, query: str) -> list[float]:
        """All values that a query has had, one for each second and series.

        Raises:
            AssertionError: Prometheus refuses the query.
        """
        asked = {"query": query, "start": self.began, "end": time.time(), "step": 1}
        answered = call(self.address, "GET", f"/api/v1/query_range?{urllib.parse.urlencode(asked)}")
        assert answered.status == 200, f"{query}: {answered.body}"
        series = answered.body["data"]["result"]
        found = [float(value) for one in series for _, value in one["values"]]
        return [value for value in found if not math.isnan(value)]


@contextmanager
def busy_installation(bootstrap_servers: str, folder: Path) -> Iterator[Prometheus]:
    """A scheduler, a sidecar that pushes, consumers of the library, a console; in a round of work all goes wrong."""
    here = Installation(settings_for(bootstrap_servers))
    here.make_topics()
    here.write_groups(
        [
            SubscriptionGroupConfig(group_name=here.name("held-group"), retry_paused=True),
            SubscriptionGroupConfig(group_name=here.name("polled-group"), max_waiting=1_000_000),
        ]
    )
    with ExitStack() as stack:
        scheduler = stack.enter_context(
            _process(here, folder, "scheduler", "--instance-id", here.settings.topic_prefix)
        )
        away = stack.enter_context(_app_that_was())
        receiver = stack.enter_context(app(_answer))
        settings = folder / "sidecar.toml"
        topics = {name: here.topic(name) for name in ("pushed", "dropped", "away", "polled", "failing")}
        settings.write_text(
            "".join(
                _SUBSCRIPTION.format(group=here.name(f"{name}-group"), topic=topics[name], port=port, drop=drop)
                for name, port, drop in (
                    ("pushed", receiver.port, "dlq"),
                    ("dropped", receiver.port, "discard"),
                    ("away", away, "dlq"),
                )
            )
        )
        api = f"127.0.0.1:{free_port()}"
        sidecar = stack.enter_context(_process(here, folder, "sidecar", "--config", str(settings), "--listen", api))
        library = stack.enter_context(_library(here, topics["polled"], topics["failing"]))
        browser = Browser(f"127.0.0.1:{free_port()}")
        console = stack.enter_context(_process(here, folder, "console", "--listen", browser.address))
        address = stack.enter_context(_prometheus(folder, [scheduler, sidecar, library, console]))
        yield Prometheus(address, functools.partial(_work, here, list(topics.values()), api, browser))


def _work(here: Installation, topics: Sequence[str], api: str, browser: Browser) -> None:
    """Messages that succeed, fail, die, are sent again, are undeliverable and wait for the end of a pause."""
    for topic in topics:
        here.produce(topic, *(value.encode() for value in ("good", *_ANSWERS)))
    here.produce(here.settings.names.send_back, b"nobody's")
    held = f"%RETRY%{here.name('held-group')}".encode()
    here.produce(here.settings.names.delay(0), b"held", headers=[("REAL_TOPIC", held)])
    body = {"topic": topics[0], "partition": 0, "offset": 0}
    assert call(api, "POST", f"/v1/groups/{here.name('by-hand')}/send-back", body).status == 200
    _resend(browser, here.name("pushed-group"))


def _resend(browser: Browser, group: str) -> None:
    """All dead letters of a group that a page shows, by its forms; the first round finds none yet."""
    page = browser.get(f"/groups/{group}/dead-letters")
    if page.status == 200 and page.seen.places:
        plan = browser.send(page.seen.form("/job"), ("all", "1")).seen
        for form in [one for one in plan.forms if one.action.endswith("/jobs")]:
            assert browser.send(form).status == 303


def _answer(one: Delivered, _before: int) -> Mapping[str, Any]:
    return _ANSWERS.get(str(one.value), {})


@contextmanager
def _app_that_was() -> Iterator[int]:
    """The port of an app that has ended."""
    with app(_answer) as one:
        port = one.port
    yield port


@contextmanager
def _process(here: Installation, folder: Path, command: str, *options: str) -> Iterator[str]:
    """A process of ours that is ready; gives its management address."""
    address = f"127.0.0.1:{free_port()}"
    given = ["--bootstrap-servers", here.settings.bootstrap_servers, "--management", address, *options]
    environment = os.environ | {"RECONSUME_TOPIC_PREFIX": here.settings.topic_prefix}
    log = folder / f"{command}.log"
    with (
        log.open("wb") as out,
        subprocess.Popen(
            [sys.executable, "-m", "reconsume", command, *given], stdout=out, stderr=out, env=environment
        ) as process,
    ):
        try:
            wait_until(lambda: _answers(address, "/readyz"), f"{command} is ready")
            yield address
        finally:
            process.terminate()


@contextmanager
def _library(here: Installation, topic: str, failing: str) -> Iterator[str]:
    """Two consumers in this process, one with a circuit breaker that opens."""
    registry = CollectorRegistry()
    metrics, circuits = ConsumerMetrics(registry), CircuitMetrics(registry)
    server, thread = start_http_server(0, "127.0.0.1", registry)
    breaker = CircuitBreaker(minimum_calls=2, on_change=circuits.changed)
    consumers = [
        here.consumer(here.name("polled-group"), topic, _listener, max_reconsume_times=1),
        here.consumer(here.name("failing-group"), failing, lambda *_: LATER, circuit_breaker=breaker),
    ]
    for one in consumers:
        one.register_consume_message_hook(metrics)
        one.start()
    try:
        yield f"127.0.0.1:{server.server_port}"
    finally:
        for one in consumers:
            one.shutdown()
        server.shutdown()
        server.server_close()
        thread.join()


def _listener(messages: Sequence[Message], _context: Any) -> ConsumeConcurrentlyStatus:
    return LATER if any(one.body in (b"broken", b"drop") for one in messages) else SUCCESS


@contextmanager
def _prometheus(folder: Path, targets: Sequence[str]) -> Iterator[str]:
    address = f"127.0.0.1:{free_port()}"
    labels = {"namespace": "ns", "release": "rel"}
    config = folder / "prometheus.yml"
    jobs = [{"job_name": "reconsume", "static_configs": [{"targets": list(targets), "labels": labels}]}]
    # JSON is YAML.
    config.write_text(json.dumps({"global": {"scrape_interval": "1s"}, "scrape_configs": jobs}))
    command = [
        *(str(prometheus()), f"--config.file={config}", f"--storage.tsdb.path={folder / 'tsdb'}"),
        *(f"--web.listen-address={address}", "--log.level=warn"),
    ]
    with (folder / "prometheus.log").open("wb") as log, subprocess.Popen(command, stdout=log, stderr=log) as process:
        try:
            wait_until(lambda: _answers(address, "/-/ready"), "Prometheus is ready")
            yield address
        finally:
            process.terminate()


def _answers(address: str, path: str) -> bool:
    with suppress(OSError, http.client.HTTPException):
        return call(address, "GET", path).status == 200
    return False
