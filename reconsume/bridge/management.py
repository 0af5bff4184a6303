"""`/metrics`, `/livez` and `/readyz` on a port of their own."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from typing import Any, Protocol
from wsgiref.simple_server import WSGIRequestHandler, make_server

from prometheus_client import CollectorRegistry, make_wsgi_app
from prometheus_client.exposition import ThreadingWSGIServer

from reconsume.delay_levels.errors import IllegalSetting

__all__ = ["Health", "ManagementServer"]

_Start = Callable[[str, list[tuple[str, str]]], Any]


class Health(Protocol):
    """Who is asked."""

    def is_alive(self) -> bool:
        """False asks for a restart."""

    def is_ready(self) -> bool:
        """False asks for patience."""


class _QuietHandler(WSGIRequestHandler):
    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the base class calls it so
        """A scrape every few seconds is no news."""


class ManagementServer:
    """Serves in a thread of its own until closed.

    Raises:
        IllegalSetting: the address cannot be used.
    """

    def __init__(self, host: str, port: int, registry: CollectorRegistry, health: Health) -> None:
        self._metrics = make_wsgi_app(registry)
        self._health = health
        try:
            self._server = make_server(host, port, self._answer, ThreadingWSGIServer, _QuietHandler)
        except OSError as error:
            raise IllegalSetting(
                f"setting management: {host}:{port} cannot be listened on ({error}); use another port, or 0 for any"
            ) from None
        self._thread = threading.Thread(target=self._server.serve_forever, name="reconsume-management", daemon=True)
        self._thread.start()

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

    def _answer(self, environ: dict[str, Any], start: _Start) -> Iterable[bytes]:
        path = environ["PATH_INFO"]
        if path == "/metrics":
            return self._metrics(environ, start)  # type: ignore[no-any-return]  # wsgiref has no types for apps
        checks = {"/livez": self._health.is_alive, "/readyz": self._health.is_ready}
        if path not in checks:
            status, body = "404 Not Found", "try /metrics, /livez or /readyz\n"
        elif checks[path]():
            status, body = "200 OK", "ok\n"
        else:
            status, body = "503 Service Unavailable", "not yet\n"
        start(status, [("Content-Type", "text/plain; charset=utf-8")])
        return [body.encode()]
