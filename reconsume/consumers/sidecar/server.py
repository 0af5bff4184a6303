"""The API's HTTP server: uvicorn in a thread of its own."""

from __future__ import annotations

import asyncio
import json
import logging
import ssl
import threading
from pathlib import Path
from typing import Any, Final

import uvicorn
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from reconsume.bridge.event_loops import takes_turns
from reconsume.bridge.listening import listening_socket
from reconsume.consumers.sidecar.guard import App
from reconsume.consumers.sidecar.problems import PROBLEM_JSON, Problem
from reconsume.consumers.sidecar.settings import ListenSettings, TlsSettings
from reconsume.delay_levels.errors import IllegalSetting

__all__ = ["HttpServer"]

logger = logging.getLogger(__name__)

_IDLE_SECONDS: Final = 75
_START_SECONDS: Final = 30.0
_NO_HEAD: Final = -(1 << 62)
_TOO_LARGE: Final = Problem(
    431,
    "headers-too-large",
    "Request Header Fields Too Large",
    "request line and headers are larger than sidecar.limits.header_kib allows; send fewer or shorter ones",
)
_NO_HTTP: Final = Problem(
    400, "no-http", "Bad Request", "what came is no request of HTTP/1.1; with TLS on, use https://"
)


class HttpServer:
    """Listens from its construction on, so that an address that cannot be had is told at once.

    Args:
        app: what answers.
        listen: where.
        tls: None serves plain HTTP.
        header_bytes: the largest request line with its headers.

    Raises:
        IllegalSetting: the address, or the certificates, cannot be used.
    """

    def __init__(self, app: App, listen: ListenSettings, tls: TlsSettings | None, header_bytes: int) -> None:
        protocol = type("LimitedProtocol", (_LimitedProtocol,), {"header_bytes": header_bytes})
        config = uvicorn.Config(
            app,
            loop="uvloop",
            http=protocol,
            ws="none",
            lifespan="off",
            log_config=None,
            log_level="warning",
            access_log=False,
            proxy_headers=False,
            server_header=False,
            timeout_keep_alive=_IDLE_SECONDS,
            **({} if tls is None else _tls_options(tls)),
        )
        try:
            config.load()
        except (OSError, ssl.SSLError) as error:
            raise IllegalSetting(f"setting sidecar.tls: the certificates cannot be used: {error}") from None
        self._socket = listening_socket("sidecar", listen.host, listen.port)
        self._config = config
        self._server = uvicorn.Server(config)
        self._loop: asyncio.AbstractEventLoop | None = None
        self._running = threading.Event()
        self._thread = threading.Thread(target=self._run, name="reconsume-api", daemon=True)

    @property
    def address(self) -> str:
        """`host:port`."""
        host, port = self._socket.getsockname()[:2]
        return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"

    def start(self) -> None:
        """Begin to answer."""
        self._thread.start()
        self._running.wait(_START_SECONDS)

    def is_answering(self, seconds: float) -> bool:
        """Whether its event loop takes turns."""
        loop = self._loop
        return loop is not None and self._thread.is_alive() and takes_turns(loop, seconds)

    def close(self, seconds: float) -> None:
        """Take no further request; finish those that have begun, within so long."""
        self._config.timeout_graceful_shutdown = max(1, round(seconds))
        self._server.should_exit = True
        if self._thread.is_alive():
            self._thread.join(seconds + 5)
        self._socket.close()

    def _run(self) -> None:
        with asyncio.Runner(loop_factory=self._config.get_loop_factory()) as runner:
            self._loop = runner.get_loop()
            runner.run(self._serve())

    async def _serve(self) -> None:
        asyncio.get_running_loop().call_soon(self._running.set)
        await self._server.serve([self._socket])


class _LimitedProtocol(HttpToolsProtocol):
    """The parser keeps what it is sent of a head until its end, however large; here it ends at a limit."""

    header_bytes = 0

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._of_this_head = 0
        self._too_large = False

    def data_received(self, data: bytes) -> None:
        """Count what comes until a head is complete."""
        self._of_this_head += len(data)
        super().data_received(data)
        if self._of_this_head > self.header_bytes and not self.transport.is_closing():
            self._too_large = True
            self.send_400_response("")

    def on_headers_complete(self) -> None:
        """A head has ended, and its own size is known."""
        self._of_this_head = _NO_HEAD
        if len(self.url) + sum(len(name) + len(value) for name, value in self.headers) > self.header_bytes:
            self._too_large = True
            raise ValueError  # the parser stops, and the base class answers by the method below
        super().on_headers_complete()

    def on_message_complete(self) -> None:
        """Another head may begin on this connection."""
        self._of_this_head = 0
        super().on_message_complete()

    def send_400_response(self, msg: str) -> None:  # noqa: ARG002 - the base class has it
        """What no application can answer, because no request came of it."""
        problem = _TOO_LARGE if self._too_large else _NO_HTTP
        body = json.dumps(problem.body).encode()
        self.transport.write(
            b"HTTP/1.1 %d %s\r\ncontent-type: %s\r\nconnection: close\r\ncontent-length: %d\r\n\r\n%s"
            % (problem.status, problem.title.encode(), PROBLEM_JSON.encode(), len(body), body)
        )
        self.transport.close()


def _tls_options(tls: TlsSettings) -> dict[str, Any]:
    options: dict[str, Any] = {"ssl_certfile": tls.certificate, "ssl_keyfile": tls.key}
    if tls.client_ca is not None:
        options |= {"ssl_ca_certs": tls.client_ca, "ssl_cert_reqs": ssl.CERT_REQUIRED}
    for file in filter(None, (tls.certificate, tls.key, tls.client_ca)):
        if not Path(file).is_file():
            raise IllegalSetting(f"setting sidecar.tls: there is no file {file}")
    return options
