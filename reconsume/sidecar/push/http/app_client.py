"""HTTP/1.1 to the app, with keep-alive, over TCP, TLS or a Unix socket."""

from __future__ import annotations

import asyncio
import ssl
from collections import deque
from contextlib import suppress
from pathlib import Path
from typing import Final
from urllib.parse import quote, urlsplit

from reconsume.delay_levels.errors import IllegalSetting
from reconsume.sidecar.push.answers import AppAnswer, NoAnswer
from reconsume.sidecar.push.http.http1_connection import ConnectionEnded, Http1Connection
from reconsume.sidecar.push.requests.requests import AppRequest, HttpHeaders
from reconsume.sidecar.push.settings import Profile, PushSettings

__all__ = ["AppClient", "Token"]

_CONNECT_SECONDS: Final = 5.0
"""At most half of the time for an answer, or a dead host would look like a slow app."""
_KEEP_ALIVE_SECONDS: Final = 4.0
"""Less than the 5 s after which common servers hang up, which a request on its way would meet."""
_IN_A_PATH: Final = "%/:;,@&=+$!*'()?~#[]"


class AppClient:
    """Asks the app, in one event loop. Connections are made as they are needed, and used again while they are young.

    On httptools alone, because a request costs a tenth of the CPU that it costs with aiohttp: docs/sizing.md.
    """

    def __init__(self, settings: PushSettings) -> None:
        # A knative app is asked at the URL as it is, unless there is a route.
        self._base = settings.url.rstrip("/") if settings.route_template else settings.url
        self._url = urlsplit(self._base)
        host = self._url.netloc.encode("idna").decode()
        self._every = f"host: {host}\r\nuser-agent: reconsume\r\naccept-encoding: identity\r\n"
        self._unix_socket = settings.unix_socket
        self._tls = _tls_of(settings)
        self._token = None if settings.token_file is None else Token(settings.token_file, settings.profile)
        self._idle: deque[Http1Connection] = deque()

    async def send(self, method: str, request: AppRequest, seconds: float) -> AppAnswer | NoAnswer:
        """The app's answer, or why there is none within so long; redirects are answers. Raises nothing.

        Once a status has come it is the answer, whatever becomes of the rest.
        """
        connection: Http1Connection | None = None
        try:
            head = self._head(method, request)
            async with asyncio.timeout(seconds):
                connection = self._take() or await self._connect(seconds)
                answer = await connection.ask(head, request.body)
        except TimeoutError:
            begun = None if connection is None else connection.cut_off()
            return begun or NoAnswer(f"consume timeout: no answer within {seconds:g} s", timed_out=True)
        except ConnectionEnded as error:
            return NoAnswer(f"{self._base}: {error}", cut_off=error.asked)
        else:
            if connection.reusable:
                self._idle.append(connection)
                connection = None
            return answer
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
        loop, within = asyncio.get_running_loop(), min(_CONNECT_SECONDS, seconds / 2)
        host, port = self._url.hostname or "", self._url.port or (80 if self._tls is None else 443)
        name = None if self._tls is None else host
        try:
            async with asyncio.timeout(within):
                if self._unix_socket is not None:
                    _, connection = await loop.create_unix_connection(
                        Http1Connection, str(self._unix_socket), ssl=self._tls, server_hostname=name
                    )
                else:
                    _, connection = await loop.create_connection(
                        Http1Connection, host, port, ssl=self._tls, server_hostname=name
                    )
        except TimeoutError:
            raise ConnectionEnded(f"no connection within {within:g} s", asked=False) from None
        except OSError as error:
            raise ConnectionEnded(f"no connection: {error}", asked=False) from None
        return connection

    def _head(self, method: str, request: AppRequest) -> bytes:
        """The request line and headers.

        Raises:
            ConnectionEnded: a header would break out of its line; whoever made it has not encoded it.
        """
        target = quote(self._url.path + request.path, safe=_IN_A_PATH) or "/"
        headers = request.headers if self._token is None else [*request.headers, *self._token.headers()]
        lines = [f"{name}: {value}\r\n" for name, value in headers]
        if method != "GET":
            lines.append(f"content-length: {len(request.body)}\r\n")
        text = "".join(lines)
        if text.count("\n") != len(lines) or text.count("\r") != len(lines):
            raise ConnectionEnded("a header of the request has a line break", asked=False)
        return f"{method} {target} HTTP/1.1\r\n{self._every}{text}\r\n".encode("latin-1")


class Token:
    """The text of a file, read again when the file changes; an unreadable one keeps what was read.

    Raises:
        IllegalSetting: it cannot be read, or no HTTP header could carry it.
    """

    def __init__(self, file: Path, profile: Profile) -> None:
        self._file = file
        self._dapr = profile is Profile.DAPR
        self._stamp: tuple[int, int] | None = None
        self._headers: HttpHeaders = []
        try:
            self._read()
        except (OSError, ValueError) as error:
            raise IllegalSetting(f"token_file {file}: {error}") from None

    def headers(self) -> HttpHeaders:
        """For each request."""
        with suppress(OSError, ValueError):  # a file that is just being replaced is read at the next request
            self._read()
        return self._headers

    def _read(self) -> None:
        stat = self._file.stat()
        if (stat.st_mtime_ns, stat.st_size) == self._stamp:
            return
        token = self._file.read_text(encoding="ascii").strip()
        if not token or not all("!" <= one <= "~" for one in token):
            raise ValueError("must hold one token of printable ASCII")
        self._headers = [("dapr-api-token", token)] if self._dapr else [("authorization", f"Bearer {token}")]
        self._stamp = (stat.st_mtime_ns, stat.st_size)


def _tls_of(settings: PushSettings) -> ssl.SSLContext | None:
    """For https URLs, None for others.

    Raises:
        IllegalSetting: a file cannot be used.
    """
    if urlsplit(settings.url).scheme != "https":
        return None
    try:
        context = ssl.create_default_context(cafile=settings.ca_file)
        if settings.cert_file is not None:
            context.load_cert_chain(settings.cert_file, settings.key_file)
    except OSError as error:
        raise IllegalSetting(f"ca_file, cert_file, key_file: {error}") from None
    return context
