"""`/metrics`, `/livez`, `/readyz` and `/loglevel` on a port of their own."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from ipaddress import ip_address
from typing import Any, Final, Protocol
from wsgiref.simple_server import WSGIRequestHandler, make_server

from prometheus_client import CollectorRegistry, make_wsgi_app
from prometheus_client.exposition import ThreadingWSGIServer

from reconsume.delay_levels.errors import IllegalSetting

__all__ = ["Health", "HttpServer", "LogLevel", "ManagementServer", "Start"]

_LONGEST_LEVEL: Final = 20
Start = Callable[[str, list[tuple[str, str]]], Any]
"""WSGI's `start_response`."""


class Health(Protocol):
    """Who is asked."""

    def is_alive(self) -> bool:
        """False asks for a restart."""

    def is_ready(self) -> bool:
        """False asks for patience."""


class LogLevel(Protocol):
    """What the process logs."""

    def get(self) -> str:
        """The name of the level in force."""

    def set(self, name: str, /) -> None:
        """Change it; raises `IllegalSetting`."""


class _QuietHandler(WSGIRequestHandler):
    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the base class calls it so
        """A scrape or a probe every few seconds is no news."""


class HttpServer:
    """Serves a WSGI application, and `/loglevel`, in a thread of its own until closed.

    Args:
        host: where it listens.
        port: 0 takes a free one.
        answer: the application.
        log_level: what `/loglevel` shows and changes; None leaves that path to the application.

    Raises:
        IllegalSetting: the address cannot be used.
    """

    def __init__(
        self,
        host: str,
        port: int,
        answer: Callable[[dict[str, Any], Start], Iterable[bytes]],
        log_level: LogLevel | None = None,
    ) -> None:
        self._application = answer
        self._log_level = log_level
        try:
            self._server = make_server(host, port, self.answer, ThreadingWSGIServer, _QuietHandler)
        except OSError as error:
            raise IllegalSetting(
                f"setting management: {host}:{port} cannot be listened on ({error}); use another port, or 0 for any"
            ) from None
        self._thread = threading.Thread(target=self._server.serve_forever, name="reconsume-management", daemon=True)
        self._thread.start()

    def answer(self, environ: dict[str, Any], start: Start) -> Iterable[bytes]:
        """One request."""
        if environ["PATH_INFO"] != "/loglevel" or self._log_level is None:
            return self._application(environ, start)
        status, body = _change_level(self._log_level, environ)
        return _plain(start, status, body)

    @property
    def address(self) -> str:
        """`host:port`."""
        host, port = self._server.server_address[:2]
        return f"{host if isinstance(host, str) else host.decode()}:{port}"

    def close(self) -> None:
        """Stop serving."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


class ManagementServer(HttpServer):
    """The port of a scheduler worker.

    Raises:
        IllegalSetting: the address cannot be used.
    """

    def __init__(
        self, host: str, port: int, registry: CollectorRegistry, health: Health, log_level: LogLevel | None = None
    ) -> None:
        self._metrics = make_wsgi_app(registry)
        self._health = health
        super().__init__(host, port, self._answer, log_level)

    def _answer(self, environ: dict[str, Any], start: Start) -> Iterable[bytes]:
        path = environ["PATH_INFO"]
        if path == "/metrics":
            return self._metrics(environ, start)  # type: ignore[no-any-return]  # wsgiref has no types for apps
        checks = {"/livez": self._health.is_alive, "/readyz": self._health.is_ready}
        if path not in checks:
            return _plain(start, "404 Not Found", "try /metrics, /livez, /readyz or /loglevel\n")
        if checks[path]():
            return _plain(start, "200 OK", "ok\n")
        return _plain(start, "503 Service Unavailable", "not yet\n")


def _plain(start: Start, status: str, body: str) -> list[bytes]:
    start(status, [("Content-Type", "text/plain; charset=utf-8")])
    return [body.encode()]


def _change_level(level: LogLevel, environ: dict[str, Any]) -> tuple[str, str]:
    """GET shows the level; PUT changes it, from this machine alone (`kubectl port-forward` counts as such)."""
    method, body = environ["REQUEST_METHOD"], ""
    if method == "PUT":
        if not ip_address(environ["REMOTE_ADDR"]).is_loopback:
            return "403 Forbidden", "the log level is changed from this machine alone: kubectl port-forward, or curl\n"
        length = environ.get("CONTENT_LENGTH", "")
        body = environ["wsgi.input"].read(min(int(length), _LONGEST_LEVEL)).decode(errors="replace") if length else ""
        try:
            level.set(body.strip())
        except IllegalSetting as error:
            return "400 Bad Request", f"{error}\n"
    elif method != "GET":
        return "405 Method Not Allowed", "use GET or PUT\n"
    return "200 OK", f"{level.get()}\n"
