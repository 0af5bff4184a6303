"""HTTP/2 to the app."""

from __future__ import annotations

import asyncio

from reconsume.sidecar.push.answers.answers import AppAnswer, NoAnswer
from reconsume.sidecar.push.http.app_client import Token, answer_of, base_of, connect_seconds, tls_of
from reconsume.sidecar.push.http.http1_connection import BODY_LIMIT
from reconsume.sidecar.push.requests.requests import AppRequest
from reconsume.sidecar.push.settings import PushSettings

try:
    import h2  # noqa: F401 - httpx2 imports it only when it is used
    import httpx2
except ImportError as error:  # pragma: no cover - an extra
    raise ImportError("http2 = true needs httpx2 with HTTP/2: pip install 'httpx2[http2]'") from error

__all__ = ["Http2Client"]


class Http2Client:
    """One connection for all deliveries: by prior knowledge over http, by ALPN over https, also on a Unix socket."""

    def __init__(self, settings: PushSettings) -> None:
        self._settings = settings
        self._base = base_of(settings)
        self._tls = tls_of(settings)
        self._token = None if settings.token_file is None else Token(settings.token_file, settings.profile)
        self._client: httpx2.AsyncClient | None = None

    async def send(self, method: str, request: AppRequest, seconds: float) -> AppAnswer | NoAnswer:
        """As the protocol says."""
        client = self._client or self._open(seconds)
        headers = request.headers if self._token is None else [*request.headers, *self._token.headers()]
        response: httpx2.Response | None = None
        body = b""
        try:
            async with (
                asyncio.timeout(seconds),
                client.stream(
                    method, self._base + request.path, content=request.body, headers=headers, follow_redirects=False
                ) as response,
            ):
                async for chunk in response.aiter_raw():
                    body += chunk
                    if len(body) >= BODY_LIMIT:
                        break
        except httpx2.ConnectTimeout:
            return NoAnswer(f"no connection to {self._base} within {connect_seconds(seconds):g} s")
        except TimeoutError:
            if response is None:
                return NoAnswer(f"consume timeout: no answer within {seconds:g} s", timed_out=True)
            return _answer(response, body, cut_off=True)
        except (httpx2.HTTPError, OSError) as error:
            if response is not None:
                return _answer(response, body, cut_off=True)
            connected = not isinstance(error, httpx2.ConnectError)
            text = "" if connected else f": {error}"
            return NoAnswer(f"{self._base}: {type(error).__name__}{text}", cut_off=connected)
        return _answer(response, body)

    async def aclose(self) -> None:
        """Close its connection."""
        client, self._client = self._client, None
        if client is not None:
            await client.aclose()

    def _open(self, seconds: float) -> httpx2.AsyncClient:
        socket = self._settings.unix_socket
        self._client = httpx2.AsyncClient(
            transport=httpx2.AsyncHTTPTransport(
                http1=False,
                http2=True,
                uds=None if socket is None else str(socket),
                verify=True if self._tls is None else self._tls,
                trust_env=False,
            ),
            timeout=httpx2.Timeout(None, connect=connect_seconds(seconds)),
            headers={"user-agent": "reconsume", "accept-encoding": "identity"},
            trust_env=False,
        )
        return self._client


def _answer(response: httpx2.Response, body: bytes, *, cut_off: bool = False) -> AppAnswer:
    found = {name.lower(): value for name, value in response.headers.items()}
    return answer_of(response.status_code, found, body[:BODY_LIMIT], cut_off)
