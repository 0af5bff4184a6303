"""HTTP/1.1 to the app, with keep-alive, over TCP, TLS or a Unix socket."""

from __future__ import annotations

import asyncio
import ssl
from collections import deque
from functools import partial
from typing import Final
from urllib.parse import quote, urlsplit

from reconsume.sidecar.push.answers.answers import AppAnswer, NoAnswer
from reconsume.sidecar.push.http.app_client import Token, answer_of, base_of, connect_seconds, tls_of
from reconsume.sidecar.push.http.http1_connection import ConnectionEnded, Http1Connection
from reconsume.sidecar.push.requests.requests import AppRequest
from reconsume.sidecar.push.settings import PushSettings

__all__ = ["Http1Client"]

_KEEP_ALIVE_SECONDS: Final = 4.0
"""Less than the 5 s after which common servers hang up, which a request on its way would meet."""
_IN_A_PATH: Final = "%/:;,@&=+$!*'()?~#[]"


class Http1Client:
    """Connections are made as they are needed, and used again while they are young.

    On httptools alone, because a request costs a tenth of the CPU that it costs with aiohttp: docs/sizing.md.
    """

    def __init__(self, settings: PushSettings) -> None:
        self._settings = settings
        self._base = base_of(settings)
        self._tls = tls_of(settings)
        self._token = None if settings.token_file is None else Token(settings.token_file, settings.profile)
        self._idle: deque[Http1Connection] = deque()
        self._begins: dict[tuple[str, str], str] = {}

    async def send(self, method: str, request: AppRequest, seconds: float) -> AppAnswer | NoAnswer:
        """As the protocol says."""
        connection: Http1Connection | None = None
        try:
            head = self._head(method, request)
            async with asyncio.timeout(seconds):
                connection = self._take() or await self._connect(seconds)
                answer = await connection.ask(head, request.body)
        except _NotConnected as error:
            return NoAnswer(str(error))
        except TimeoutError:
            begun = None if connection is None else connection.cut_off()
            if begun is not None:
                return answer_of(*begun)
            return NoAnswer(f"consume timeout: no answer within {seconds:g} s", timed_out=True)
        except ConnectionEnded as error:
            return NoAnswer(f"{self._base}: {error}", cut_off=error.asked)
        else:
            if connection.reusable:
                self._idle.append(connection)
                connection = None
            return answer_of(*answer)
        finally:
            if connection is not None:
                connection.close()

    async def aclose(self) -> None:
        """Close its connections."""
        while self._idle:
            self._idle.pop().close()

    def _take(self) -> Http1Connection | None:
        """The youngest; those that nobody needed for long are closed."""
        oldest = asyncio.get_running_loop().time() - _KEEP_ALIVE_SECONDS
        while self._idle and (self._idle[0].idle_since < oldest or not self._idle[0].reusable):
            self._idle.popleft().close()
        while self._idle:
            connection = self._idle.pop()
            if connection.reusable:
                return connection
        return None

    async def _connect(self, seconds: float) -> Http1Connection:
        loop, parts, path = asyncio.get_running_loop(), urlsplit(self._base), self._settings.unix_socket
        within = connect_seconds(seconds)
        name = parts.hostname if self._tls is not None else None
        if path is not None:
            connect = partial(loop.create_unix_connection, path=str(path), ssl=self._tls, server_hostname=name)
        else:
            port = parts.port or (80 if self._tls is None else 443)
            connect = partial(
                loop.create_connection, host=parts.hostname, port=port, ssl=self._tls, server_hostname=name
            )
        try:
            async with asyncio.timeout(within):
                _, connection = await connect(Http1Connection)
        except TimeoutError:
            raise _NotConnected(f"no connection to {self._base} within {within:g} s") from None
        except (OSError, ssl.SSLError) as error:
            raise _NotConnected(f"no connection to {self._base}: {error}") from None
        return connection

    def _head(self, method: str, request: AppRequest) -> bytes:
        """The request line and headers.

        Raises:
            ConnectionEnded: a header would break out of its line; whoever made it has not encoded it.
        """
        begin = self._begins.get((method, request.path))
        if begin is None:
            begin = self._begins[method, request.path] = self._begin(method, request.path)
        headers = request.headers if self._token is None else [*request.headers, *self._token.headers()]
        lines = [f"{name}: {value}\r\n" for name, value in headers]
        if method != "GET":
            lines.append(f"content-length: {len(request.body)}\r\n")
        text = "".join(lines)
        if text.count("\n") != len(lines) or text.count("\r") != len(lines):
            raise ConnectionEnded("a header of the request has a line break", asked=False)
        return f"{begin}{text}\r\n".encode("latin-1")

    def _begin(self, method: str, path: str) -> str:
        parts = urlsplit(self._base)
        target = quote(parts.path + path, safe=_IN_A_PATH) or "/"
        host = parts.netloc.encode("idna").decode()
        return f"{method} {target} HTTP/1.1\r\nhost: {host}\r\nuser-agent: reconsume\r\naccept-encoding: identity\r\n"


class _NotConnected(Exception):
    """The app could not be reached; the text says why."""
