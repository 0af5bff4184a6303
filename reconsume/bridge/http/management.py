"""The management port: `/metrics`, `/livez`, `/readyz` and `/loglevel`."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Final, Protocol

from prometheus_client import CollectorRegistry, make_wsgi_app

from reconsume.bridge.http.listening import is_loopback, listening_sockets
from reconsume.bridge.http.wsgi_thread import Start, WsgiThread
from reconsume.delay_levels.errors import IllegalSetting

_LONGEST_LEVEL: Final = 20


class Health(Protocol):
    """Answers the probes."""

    def is_alive(self) -> bool:
        """Return False to request a restart."""

    def is_ready(self) -> bool:
        """Return False while the process cannot work yet."""


class LogLevel(Protocol):
    """The log level of the process."""

    def get(self) -> str:
        """The name of the level in force."""

    def set(self, name: str, /) -> None:
        """Change it; raises `IllegalSetting`."""


class WsgiServer:
    """Serves a WSGI application, and `/loglevel`, until closed.

    Args:
        host: the listen address.
        port: 0 picks a free port; None picks the default port, or a free one if that is taken.
        answer: the application.
        log_level: serves `/loglevel`; None leaves that path to the application.
        default_port: the default port of the role.

    Raises:
        IllegalSetting: the address cannot be used.
    """

    def __init__(
        self,
        host: str,
        port: int | None,
        answer: Callable[[dict[str, Any], Start], Iterable[bytes]],
        log_level: LogLevel | None,
        default_port: int,
    ) -> None:
        self._application = answer
        self._log_level = log_level
        sockets = listening_sockets("management", host, port, default_port)
        self._server = WsgiThread(self.answer, sockets, "reconsume-management")

    def answer(self, environ: dict[str, Any], start: Start) -> Iterable[bytes]:
        """Answer one request."""
        if environ["PATH_INFO"] != "/loglevel" or self._log_level is None:
            return self._application(environ, start)
        status, body = _change_level(self._log_level, environ)
        return _plain(start, status, body)

    @property
    def address(self) -> str:
        """`host:port`."""
        return self._server.address

    def close(self) -> None:
        """Stop serving."""
        self._server.close()


class ManagementServer(WsgiServer):
    """The management port of a scheduler worker or a console.

    Raises:
        IllegalSetting: the address cannot be used.
    """

    def __init__(
        self,
        host: str,
        port: int | None,
        registry: CollectorRegistry,
        health: Health,
        log_level: LogLevel | None = None,
        default_port: int = 0,
    ) -> None:
        self._metrics = make_wsgi_app(registry)
        self._health = health
        super().__init__(host, port, self._answer, log_level, default_port)

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
    """Show the level for GET; change it for PUT, from this machine only, which includes `kubectl port-forward`."""
    method, body = environ["REQUEST_METHOD"], ""
    if method == "PUT":
        if not is_loopback(environ["REMOTE_ADDR"]):
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
