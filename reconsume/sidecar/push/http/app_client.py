"""HTTP/1.1 to the app, with keep-alive, over TCP, TLS or a Unix socket."""

from __future__ import annotations

import asyncio
import ssl
from collections import deque
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Final
from urllib.parse import quote, urlsplit

from reconsume.delay_levels.errors import IllegalSetting
from reconsume.sidecar.push.answers.answers import AppAnswer, NoAnswer
from reconsume.sidecar.push.http.http1_connection import BODY_LIMIT, ConnectionEnded, Http1Connection
from reconsume.sidecar.push.requests.cloud_events import parsed
from reconsume.sidecar.push.requests.message_headers import HttpHeaders
from reconsume.sidecar.push.requests.requests import AppRequest
from reconsume.sidecar.push.settings import Profile, PushSettings

__all__ = ["AppClient", "Token", "answer_of"]

_CONNECT_SECONDS: Final = 5.0
_KEEP_ALIVE_SECONDS: Final = 4.0
"""Less than the 5 s after which common servers hang up, which a request on its way would meet."""
_IN_A_PATH: Final = "%/:;,@&=+$!*'()?~#[]"


class AppClient:
    """Asks the app, in one event loop. Connections are made as they are needed, and used again while they are young.

    On httptools alone, because a request costs a tenth of the CPU that it costs with aiohttp: docs/sizing.md.
    """

    def __init__(self, settings: PushSettings) -> None:
        self._settings = settings
        self._base = _base_of(settings)
        self._tls = _tls_of(settings)
        self._token = None if settings.token_file is None else Token(settings.token_file, settings.profile)
        self._idle: deque[Http1Connection] = deque()
        self._begins: dict[tuple[str, str], str] = {}

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
        within = _connect_seconds(seconds)
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
        try:
            stat = self._file.stat()
            if (stat.st_mtime_ns, stat.st_size) != self._stamp:
                self._read()
        except (OSError, ValueError):
            pass  # a file that is just being replaced is read at the next request
        return self._headers

    def _read(self) -> None:
        stat = self._file.stat()
        token = self._file.read_text(encoding="ascii").strip()
        if not token or not all("!" <= one <= "~" for one in token):
            raise ValueError("must hold one token of printable ASCII")
        self._headers = [("dapr-api-token", token)] if self._dapr else [("authorization", f"Bearer {token}")]
        self._stamp = (stat.st_mtime_ns, stat.st_size)


def answer_of(status: int, headers: Mapping[str, str], body: bytes, cut_off: bool = False) -> AppAnswer:
    """An answer; a body that is a JSON object counts, whatever its type is said to be, as with Dapr.

    Args:
        status: of HTTP.
        headers: names in lower case.
        body: its beginning.
        cut_off: the rest of it did not come.
    """
    value = parsed(body) if body.lstrip()[:1] == b"{" and len(body) < BODY_LIMIT else None
    return AppAnswer(status, headers, body, value if isinstance(value, dict) else None, cut_off)


def _base_of(settings: PushSettings) -> str:
    """The URL that routes are put behind."""
    return settings.url if settings.profile is Profile.KNATIVE and settings.route is None else settings.url.rstrip("/")


def _connect_seconds(seconds: float) -> float:
    """How long a connection may take: less than the answer, or a dead host would look like a slow app."""
    return min(_CONNECT_SECONDS, seconds / 2)


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
    except (OSError, ssl.SSLError) as error:
        raise IllegalSetting(f"ca_file, cert_file, key_file: {error}") from None
    return context


class _NotConnected(Exception):
    """The app could not be reached; the text says why."""
