"""An HTTP/1.1 client for the app, with keep-alive, over TCP, TLS or a Unix socket, on httptools."""

from __future__ import annotations

import asyncio
import json
import zlib
from collections import deque
from collections.abc import Mapping
from contextlib import suppress
from typing import Any, Final, cast
from urllib.parse import quote, urlsplit

from httptools import HttpParserError, HttpParserUpgrade, HttpResponseParser

from reconsume.bridge.http.header_text import header_text
from reconsume.sidecar.push.answers import AppAnswer, NoAnswer
from reconsume.sidecar.push.credentials import watch_tls, watch_token
from reconsume.sidecar.push.requests.requests import AppRequest
from reconsume.sidecar.push.settings import PushSettings

_CONNECT_SECONDS: Final = 5.0
"""At most half of the time for an answer; otherwise a dead host would look like a slow app."""
_KEEP_ALIVE_SECONDS: Final = 4.0
"""Less than the 5 s after which common servers close connections, which might hit a request in flight."""
_IN_A_PATH: Final = "%/:;,@&=+$!*'()?~#[]"
BODY_LIMIT: Final = 1024 * 1024
"""The maximum that is read of an answer. A JSON object may have its status behind a long stack trace."""
_COMPRESSED: Final = frozenset({"gzip", "x-gzip", "deflate"})
_GZIP_OR_ZLIB: Final = zlib.MAX_WBITS | 32
_HEAD_LIMIT: Final = 64 * 1024
_ANSWER_LIMIT: Final = 8 * BODY_LIMIT
"""The maximum of an answer with its trailers and the sizes of its chunks: a chunk of one byte takes six."""
_FIRST_FINAL: Final = 200


class AppClient:
    """Sends requests in one event loop. Connections are opened on demand and reused while they are young.

    It uses only httptools, because a request then costs a tenth of the CPU of one with aiohttp: docs/sizing.md.
    """

    def __init__(self, settings: PushSettings) -> None:
        self._base = settings.url
        self._url = urlsplit(self._base)
        host = self._url.netloc.encode("idna").decode()
        self._every = f"host: {host}\r\nuser-agent: reconsume\r\naccept-encoding: identity\r\n"
        self._unix_socket = settings.unix_socket
        self._tls = watch_tls(settings) if self._url.scheme == "https" else None
        self._token = None if settings.token_file is None else watch_token(settings.token_file, settings.profile)
        self._idle: deque[Http1Connection] = deque()

    async def send(self, method: str, request: AppRequest, seconds: float) -> AppAnswer | NoAnswer:
        """Return the app's answer, or why none arrived within `seconds`; redirects are answers. Raises nothing.

        Once a status has arrived it is the answer, even if the rest is cut off.
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
        """Close the connections."""
        while self._idle:
            self._idle.pop().close()

    def _take(self) -> Http1Connection | None:
        """Take the youngest connection; connections that were idle for long are closed."""
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
        tls = None if self._tls is None else self._tls.value()
        name = None if tls is None else host
        try:
            async with asyncio.timeout(within):
                if self._unix_socket is not None:
                    _, connection = await loop.create_unix_connection(
                        Http1Connection, str(self._unix_socket), ssl=tls, server_hostname=name
                    )
                else:
                    _, connection = await loop.create_connection(
                        Http1Connection, host, port, ssl=tls, server_hostname=name
                    )
        except TimeoutError:
            raise ConnectionEnded(f"no connection within {within:g} s", asked=False) from None
        except OSError as error:
            raise ConnectionEnded(f"no connection: {error}", asked=False) from None
        return connection

    def _head(self, method: str, request: AppRequest) -> bytes:
        """Return the request line and headers.

        Raises:
            ConnectionEnded: a header contains a line break or other illegal characters.
        """
        # Without a path the URL is used as it is, as for a knative app.
        base = self._url.path.rstrip("/") if request.path else self._url.path
        target = quote(base + request.path, safe=_IN_A_PATH, errors="replace") or "/"
        headers = request.headers if self._token is None else [*request.headers, *self._token.value()]
        lines = [f"{name}: {value}\r\n" for name, value in headers]
        if method != "GET":
            lines.append(f"content-length: {len(request.body)}\r\n")
        text = "".join(lines)
        if text.count("\n") != len(lines) or text.count("\r") != len(lines):
            raise ConnectionEnded("a header of the request has a line break", asked=False)
        return f"{method} {target} HTTP/1.1\r\n{self._every}{text}\r\n".encode("latin-1")


class ConnectionEnded(ConnectionError):
    """No answer; the text gives the reason, and never received data.

    Attributes:
        asked: whether the request was sent.
    """

    def __init__(self, why: str, *, asked: bool = True) -> None:
        super().__init__(why)
        self.asked = asked


class Http1Connection(asyncio.Protocol):
    """A connection, for the thread of one event loop.

    Attributes:
        idle_since: when the last answer was complete, by the loop's clock.
        reusable: whether another request may be sent.
    """

    def __init__(self) -> None:
        self.idle_since = 0.0
        self.reusable = True
        self._transport: asyncio.Transport
        self._loop = asyncio.get_running_loop()
        self._answer: asyncio.Future[AppAnswer] | None = None

    async def ask(self, head: bytes, body: bytes) -> AppAnswer:
        """Send a request and wait for the answer; with a status it counts, even if the rest is cut off.

        Raises:
            ConnectionEnded: no status arrived.
        """
        self._answer = self._loop.create_future()
        self._parser = HttpResponseParser(self)
        self._headers: dict[str, str] = {}
        self._body = bytearray()
        self._received = 0
        self._head_is_complete = False
        if self._transport.is_closing():
            raise ConnectionEnded("the app has closed the connection", asked=False)
        self._transport.write(head + body)
        return await self._answer

    def cut_off(self) -> AppAnswer | None:
        """Return the received part of an answer that is no longer awaited; None without a status."""
        status = self._parser.get_status_code()
        return None if status < _FIRST_FINAL else answer_of(status, self._headers, bytes(self._body), cut_off=True)

    def close(self) -> None:
        """Close at once."""
        self.reusable = False
        self._transport.abort()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Called by asyncio."""
        self._transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        """Called by asyncio."""
        if self._answer is None or self._answer.done():
            self.close()  # unsolicited data
            return
        self._received += len(data)
        try:
            self._parser.feed_data(data)
        except (HttpParserError, HttpParserUpgrade) as error:
            if not self._answer.done():
                self._fail(f"no HTTP ({type(error).__name__})")
            self.close()
        else:
            if self._received > (_ANSWER_LIMIT if self._head_is_complete else _HEAD_LIMIT):
                self._fail("the head of its answer is too large")  # otherwise its status counts

    def connection_lost(self, exc: Exception | None) -> None:
        """Called by asyncio."""
        self.reusable = False
        if self._answer is None or self._answer.done():
            return
        length, coding = self._headers.get("content-length"), self._headers.get("transfer-encoding")
        if self._head_is_complete and exc is None and length is None and coding is None:
            self._complete()  # a body without a length ends with its connection
        else:
            self._fail("cut off" if exc is None else f"cut off ({type(exc).__name__})")

    def on_message_begin(self) -> None:
        """Called by httptools."""
        if self._head_is_complete:  # a second answer to the same request
            self.close()

    def on_header(self, name: bytes, value: bytes) -> None:
        """Called by httptools."""
        if not self._head_is_complete:  # trailers, and headers of a second answer, do not count
            self._headers[name.decode("latin-1").lower()] = header_text(value)

    def on_headers_complete(self) -> None:
        """Called by httptools."""
        self._head_is_complete = self._head_is_complete or self._parser.get_status_code() >= _FIRST_FINAL

    def on_body(self, body: bytes) -> None:
        """Called by httptools."""
        if len(self._body) < BODY_LIMIT:
            self._body += body[: BODY_LIMIT - len(self._body)]
            if len(self._body) >= BODY_LIMIT:
                self._complete()
                self.close()

    def on_message_complete(self) -> None:
        """Called by httptools."""
        if self._head_is_complete:
            if not self._parser.should_keep_alive():
                self.close()
            self._complete()
        else:  # 100 and the like precede the answer
            self._headers = {}

    def _complete(self) -> None:
        if self._transport.get_write_buffer_size():
            self.reusable = False  # the app answered before it had read the request
        if self._answer is not None and not self._answer.done():
            self._answer.set_result(answer_of(self._parser.get_status_code(), self._headers, bytes(self._body)))
        self.idle_since = self._loop.time()

    def _fail(self, why: str) -> None:
        if self._answer is not None and not self._answer.done():
            begun = self.cut_off()
            if begun is None:
                self._answer.set_exception(ConnectionEnded(why))
            else:
                self._answer.set_result(begun)
        self.close()


def answer_of(status: int, headers: Mapping[str, str], body: bytes, *, cut_off: bool = False) -> AppAnswer:
    """Return an answer; a body that is a JSON object counts, whatever its declared type, as with Dapr.

    An object that is longer than the limit counts as cut off: it may have asked for a retry.

    Args:
        status: the HTTP status.
        headers: names in lower case.
        body: the beginning of the body.
        cut_off: whether the rest is missing.
    """
    is_too_long = len(body) >= BODY_LIMIT
    if headers.get("content-encoding", "").strip().lower() in _COMPRESSED:
        with suppress(zlib.error):  # a body that is not compressed is taken as it is
            body = zlib.decompressobj(_GZIP_OR_ZLIB).decompress(body, BODY_LIMIT)
        is_too_long = is_too_long or len(body) >= BODY_LIMIT
    text = body.decode("utf-8-sig", errors="replace").lstrip()
    if not text.startswith("{"):
        return AppAnswer(status, headers, body, None, cut_off)
    return AppAnswer(status, headers, body, None if is_too_long else _object(text), cut_off or is_too_long)


def _object(text: str) -> Mapping[str, Any] | None:
    """Return the JSON object at the beginning of a text; None if it is malformed.

    As Dapr does, this accepts bytes that are not UTF-8 and text behind the object: the status counts.
    """
    try:
        value, _ = json.JSONDecoder().raw_decode(text)
    except (ValueError, RecursionError):
        return None
    return cast("Mapping[str, Any]", value)
