"""The API's HTTP server."""

from __future__ import annotations

import json
import ssl
from pathlib import Path
from typing import Any, Final

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from reconsume.bridge.uvicorn_thread import UvicornThread, uvicorn_config
from reconsume.consumers.sidecar.guard import App
from reconsume.consumers.sidecar.problems import PROBLEM_JSON, Problem
from reconsume.consumers.sidecar.settings import ListenSettings, TlsSettings
from reconsume.delay_levels.errors import IllegalSetting

__all__ = ["HttpServer"]

_END_SECONDS: Final = 5.0
"""For the thread, after the last request."""
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


class HttpServer(UvicornThread):
    """Serves plain HTTP, or TLS.

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
        options = {} if tls is None else _tls_options(tls)
        config = uvicorn_config(app, loop="uvloop", http=protocol, **options)
        try:
            config.load()
        except (OSError, ssl.SSLError) as error:
            raise IllegalSetting(f"setting sidecar.tls: the certificates cannot be used: {error}") from None
        super().__init__(config, "sidecar.listen", listen.host, listen.port, "reconsume-api")

    def close(self, seconds: float) -> None:
        """Take no further request; finish those that have begun, within so long."""
        self.end(seconds, seconds + _END_SECONDS)


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
