"""An app behind the sidecar: it answers as the message says, and remembers every request."""

from __future__ import annotations

import asyncio
import contextlib
import json
import ssl
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from aiohttp import web
from prometheus_client import CollectorRegistry

from reconsume.sidecar.life_cycle import Life, ProcessPart
from reconsume.sidecar.metrics import PushMetrics
from reconsume.sidecar.push.app_gate import AppGate
from reconsume.sidecar.push.settings import PushSettings
from reconsume.sidecar.push.subscription import PushSubscription
from tests.integration.installation import Installation
from tests.support.waiting import PATIENCE, wait_until

__all__ = ["App", "Delivered", "Push", "app", "pushing"]


@dataclass(frozen=True, slots=True)
class Delivered:
    """One message of one request.

    Attributes:
        value: of the record.
        times: how often it was sent back before.
        level: that it waited on, None on a first delivery.
    """

    path: str
    headers: Mapping[str, str]
    value: Any
    times: int
    level: str | None


Decide = Callable[[Delivered, int], Mapping[str, Any]]
"""Gives `status`, `json` or `body`, `headers`, `sleep`, `abort`; told how often this message came before."""


@dataclass
class App:
    """Runs in a thread of its own, on a port or a Unix socket; `stop` breaks its connections."""

    decide: Decide
    port: int = 0
    socket: Path | None = None
    tls: ssl.SSLContext | None = None
    subscriptions: list[dict[str, Any]] | None = None
    largest: int = 2**20
    healthy: bool = True
    seen: list[Delivered] = field(default_factory=list)
    batches: list[int] = field(default_factory=list)
    counts: Counter[str] = field(default_factory=Counter)

    def start(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._stopping = asyncio.Event()
        started = threading.Event()
        self._thread = threading.Thread(target=self._run, args=(started,), daemon=True)
        self._thread.start()
        assert started.wait(PATIENCE)

    def stop(self) -> None:
        self._loop.call_soon_threadsafe(self._stopping.set)
        asyncio.run_coroutine_threadsafe(self._runner.cleanup(), self._loop).result(PATIENCE)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(PATIENCE)
        self._loop.close()

    @property
    def url(self) -> str:
        return f"{'http' if self.tls is None else 'https'}://localhost:{self.port}"

    def times(self, value: Any) -> list[int]:
        """The counts with which a message came."""
        return [one.times for one in list(self.seen) if one.value == value]

    def _run(self, started: threading.Event) -> None:
        asyncio.set_event_loop(self._loop)
        self._loop.run_until_complete(self._listen())
        started.set()
        self._loop.run_forever()

    async def _listen(self) -> None:
        site = web.Application(client_max_size=self.largest)
        site.router.add_get("/{prefix:.*}dapr/subscribe", self._subscribe)
        site.router.add_get("/healthz", self._health)
        site.router.add_post("/{path:.*}", self._answer)
        self._runner = web.AppRunner(site, shutdown_timeout=0)
        await self._runner.setup()
        if self.socket is not None:
            await web.UnixSite(self._runner, str(self.socket)).start()
            return
        listener = web.TCPSite(self._runner, "127.0.0.1", self.port, ssl_context=self.tls, reuse_address=True)
        await listener.start()
        self.port = self._runner.addresses[0][1]

    async def _subscribe(self, _request: web.Request) -> web.Response:
        return web.Response(status=404) if self.subscriptions is None else web.json_response(self.subscriptions)

    async def _health(self, _request: web.Request) -> web.Response:
        return web.Response(status=200 if self.healthy else 500)

    async def _answer(self, request: web.Request) -> web.StreamResponse:
        delivered = _delivered(request.path, request.headers, await request.read())
        self.batches.append(len(delivered))
        says: Mapping[str, Any] = {}
        for one in delivered:
            before = self.counts[key := f"{one.path} {one.value!r}"]
            self.counts[key] += 1
            self.seen.append(one)
            says = says or self.decide(one, before)
        if sleep := says.get("sleep"):
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._stopping.wait(), sleep)
        if says.get("abort") or self._stopping.is_set():
            assert request.transport is not None
            request.transport.abort()
        body = json.dumps(says["json"]) if "json" in says else says.get("body")
        return web.Response(status=says.get("status", 200), text=body, headers=says.get("headers"))


def _delivered(path: str, headers: Mapping[str, str], body: bytes) -> list[Delivered]:
    found = {name.lower(): value for name, value in headers.items()}
    if "batch" in found.get("content-type", ""):
        return [
            Delivered(path, found, event.get("data"), int(event["reconsumetimes"]), event.get("reconsumedelaylevel"))
            for event in json.loads(body)
        ]
    value: Any = body.decode(errors="replace")
    if found.get("content-type", "").startswith("application/cloudevents"):
        value = json.loads(body).get("data")
    else:
        with contextlib.suppress(ValueError):  # or it is text
            value = json.loads(value)
    times = int(found["reconsume-times"])
    return [Delivered(path, found, value, times, found.get("reconsume-delay-level"))]


@contextmanager
def app(decide: Decide, **more: Any) -> Iterator[App]:
    """An app that runs."""
    one = App(decide, **more)
    one.start()
    try:
        yield one
    finally:
        one.stop()


@dataclass
class Push:
    """A subscription that runs."""

    part: ProcessPart
    life: Life

    @property
    def pause_ms(self) -> float:
        """Between two probes of an app that is down, 100 for the first; 0 before anything was delivered."""
        return 0 if self.gate.down_since is None else self.gate._pause_ms

    @property
    def gate(self) -> AppGate:
        """The gate of its deliveries."""
        return self.part._delivery._gate  # type: ignore[attr-defined,no-any-return]  # nobody else asks


@contextmanager
def pushing(here: Installation, group: str, topic: str | None, url: str, **more: Any) -> Iterator[Push]:
    """A subscription that has started, and is closed at the end."""
    life = Life()
    settings = PushSettings(group=group, topics={} if topic is None else {topic: "*"}, url=url, **more)
    own = {"auto.offset.reset": "earliest", "heartbeat.interval.ms": 500, "session.timeout.ms": 6_000}
    conf = here.settings.client_settings() | own
    part = PushSubscription(settings, conf, life, PushMetrics(CollectorRegistry()), here.settings.topic_prefix)
    part.start()
    try:
        wait_until(lambda: set(part.checks().values()) == {None}, "it has started")
        yield Push(part, life)
    finally:
        part.close(10)
