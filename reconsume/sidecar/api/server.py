"""The API's HTTP server."""

from __future__ import annotations

import json
import ssl
from pathlib import Path
from typing import Any, Final

from starlette.types import ASGIApp

from reconsume.bridge.http.open_connections import ConnectionLimits
from reconsume.bridge.http.uvicorn_thread import UvicornThread, raw_answer
from reconsume.delay_levels.errors import IllegalSetting
from reconsume.sidecar.problems import PROBLEM_JSON, Problem
from reconsume.sidecar.settings import SidecarSettings, TlsSettings

_TOO_LARGE: Final = Problem(
    "headers-too-large",
    "request line and headers are larger than sidecar.limits.header_kib allows; send fewer or shorter ones",
)
_NO_HTTP: Final = Problem("no-http", "what came is no request of HTTP/1.1; with TLS on, use https://")
_TOO_SLOW: Final = Problem("too-slow", "the request did not arrive in time; send it again on another connection")


def api_server(app: ASGIApp, settings: SidecarSettings) -> UvicornThread:
    """Make a listening server of HTTP, or HTTPS.

    Raises:
        IllegalSetting: the address or the certificates cannot be used.
    """
    limits, options = settings.limits, {} if settings.tls is None else _tls_options(settings.tls)
    try:
        return UvicornThread(
            app,
            "sidecar.listen",
            settings.listen.host,
            settings.listen.port,
            "reconsume-api",
            limits=ConnectionLimits(connections=limits.connections, header_bytes=limits.header_kib * 1024),
            refusals={one.status: _answer_of(one) for one in (_NO_HTTP, _TOO_SLOW, _TOO_LARGE)},
            loop="uvloop",
            **options,
        )
    except OSError as error:
        raise IllegalSetting(f"setting sidecar.tls: the certificates cannot be used: {error}") from None


def _answer_of(problem: Problem) -> bytes:
    return raw_answer(problem.status, PROBLEM_JSON, json.dumps(problem.body).encode())


def _tls_options(tls: TlsSettings) -> dict[str, Any]:
    options: dict[str, Any] = {"ssl_certfile": tls.certificate, "ssl_keyfile": tls.key}
    if tls.client_ca is not None:
        options |= {"ssl_ca_certs": tls.client_ca, "ssl_cert_reqs": ssl.CERT_REQUIRED}
    for file in filter(None, (tls.certificate, tls.key, tls.client_ca)):
        if not Path(file).is_file():
            raise IllegalSetting(f"setting sidecar.tls: file {file} does not exist; check the path")
    return options
