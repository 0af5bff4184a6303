"""The management port: probes, metrics, quiesce, drain and log level."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterable, Mapping, Sequence
from http import HTTPStatus
from typing import Any, Final
from urllib.parse import parse_qs

from prometheus_client import CollectorRegistry, make_wsgi_app

from reconsume.bridge.http.listening import is_loopback
from reconsume.bridge.http.management import LogLevel, WsgiServer
from reconsume.bridge.http.wsgi_thread import WORKERS, Start
from reconsume.bridge.process.ports import SIDECAR_MANAGEMENT
from reconsume.sidecar.guarding.callers import ANYBODY, Callers, unauthorized
from reconsume.sidecar.life_cycle import Life, Phase, ProcessPart
from reconsume.sidecar.problems import Problem
from reconsume.sidecar.settings import ProcessSettings

_LONGEST_DRAIN_SECONDS: Final = 3600.0
_MOST_DRAINS: Final = WORKERS // 2
"""Maximum of waiting `/drain` calls: the other threads answer probes."""
_OK: Final = 200
_NOT_NOW: Final = 503


class Management(WsgiServer):
    """The port of a sidecar.

    `/startupz`, `/livez` and `/readyz` are for the probes of Kubernetes. `/startupz` succeeds for good once the parts
    have started, so the app may start. `/livez` fails only if a restart helps; an unreachable Kafka is not such a case.
    A failing app never makes the process unready.

    `/quiesce` and `/drain` answer callers on this machine; others need the token, or the setting that lets them. Web
    pages of other sites are refused.
    `/loglevel` is a scheduler's.

    Args:
        settings: the settings of the process.
        registry: the Prometheus registry.
        life: the life cycle of the process.
        parts: the parts whose health is reported.
        log_level: serves `/loglevel`; None omits that path.

    Raises:
        IllegalSetting: the address cannot be used.
    """

    def __init__(
        self,
        settings: ProcessSettings,
        registry: CollectorRegistry,
        life: Life,
        parts: Sequence[ProcessPart],
        log_level: LogLevel | None = None,
    ) -> None:
        self._metrics = make_wsgi_app(registry)
        self._life = life
        self._parts = parts
        self._token = settings.sidecar.read_token()
        self._from_network = settings.sidecar.quiesce_from_network
        self._drains = threading.BoundedSemaphore(_MOST_DRAINS)
        own = settings.management
        super().__init__(own.host, own.port, self._answer, log_level, SIDECAR_MANAGEMENT)

    def _answer(self, environ: dict[str, Any], start: Start) -> Iterable[bytes]:
        if environ["REQUEST_METHOD"] not in ("GET", "HEAD", "POST"):
            return _json(start, 405, {"error": "use GET"})
        path = environ["PATH_INFO"]
        if path == "/metrics":
            return self._metrics(environ, start)  # type: ignore[no-any-return]  # wsgiref has no types for apps
        query = parse_qs(environ.get("QUERY_STRING", ""), keep_blank_values=True)
        if path in ("/startupz", "/livez", "/readyz"):
            return self._probe(start, path, verbose="verbose" in query)
        if path in ("/quiesce", "/drain"):
            refusal = self._refusal(environ)
            if refusal is not None:
                return _json(start, refusal.status, refusal.body)
            return self._end(start, path, query)
        paths = "/startupz, /livez, /readyz, /metrics, /loglevel, /quiesce and /drain"
        return _json(start, 404, {"error": f"there are {paths}"})

    def _probe(self, start: Start, path: str, *, verbose: bool) -> Iterable[bytes]:
        phase = self._life.phase
        body: dict[str, Any] = {"phase": phase.value}
        if path == "/startupz":
            well = phase is not Phase.STARTING
        elif path == "/livez":
            well = all(part.is_alive() for part in self._parts)
        else:
            checks = {name: wrong for part in self._parts for name, wrong in part.checks().items()}
            well = phase is Phase.RUNNING and not any(checks.values())
            if verbose:
                body["checks"] = {name: wrong or "ok" for name, wrong in checks.items()}
        return _json(start, _OK if well else _NOT_NOW, {"status": "ok" if well else "not yet"} | body)

    def _end(self, start: Start, path: str, query: Mapping[str, list[str]]) -> Iterable[bytes]:
        if path == "/quiesce":
            self._life.quiesce()
            return _json(start, _OK, {"phase": self._life.phase.value, "inFlight": self._life.in_flight})
        text = query.get("wait", ["0"])[-1]
        try:
            seconds = float(text)
        except ValueError:
            seconds = -1.0
        if not 0 <= seconds <= _LONGEST_DRAIN_SECONDS:
            return _json(start, 422, {"error": "wait takes seconds, from 0 to 3600, as in /drain?wait=25"})
        # Kubernetes runs the preStop hooks of app and sidecar at once: this caller may be the first.
        self._life.quiesce()
        # Callers beyond the maximum get an answer at once.
        may_wait = self._drains.acquire(blocking=False)
        try:
            drained = self._life.wait_drained(seconds if may_wait else 0)
        finally:
            if may_wait:
                self._drains.release()
        return _json(start, _OK if drained else _NOT_NOW, {"drained": drained, "inFlight": self._life.in_flight})

    def _refusal(self, environ: Mapping[str, Any]) -> Problem | None:
        # Browsers send it to this machine, also through `kubectl port-forward`; the kubelet and curl do not.
        site = environ.get("HTTP_SEC_FETCH_SITE", "none")
        if site not in ("none", "same-origin"):
            return Problem(
                "other-site",
                f"a web page of another site called {environ['PATH_INFO']} (sec-fetch-site: {site}); call it with "
                "curl, or type its address in the browser",
            )
        if self._from_network or is_loopback(environ.get("REMOTE_ADDR", "")):
            return None
        if self._token is None:
            return Problem(
                "unauthorized",
                "quiesce and drain are for this machine; from another one they need the token, or the setting "
                "sidecar.quiesce_from_network",
            )
        known = Callers({self._token: ANYBODY}).of(environ.get("HTTP_AUTHORIZATION", "").encode())
        return unauthorized() if known is None else None


def _json(start: Start, status: int, body: Mapping[str, Any]) -> list[bytes]:
    start(f"{status} {HTTPStatus(status).phrase}", [("Content-Type", "application/json")])
    return [json.dumps(body).encode() + b"\n"]
