"""One HTTP/1.1 connection to the app: one request at a time, its answer read by httptools."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Final, cast

from httptools import HttpParserError, HttpParserUpgrade, HttpResponseParser

from reconsume.sidecar.push.answers import AppAnswer
from reconsume.sidecar.push.requests.cloud_events import parsed

__all__ = ["BODY_LIMIT", "ConnectionEnded", "Http1Connection", "answer_of"]

BODY_LIMIT: Final = 64 * 1024
"""Nobody looks further into an app's answer; the rest of a longer one is not read."""
_HEAD_LIMIT: Final = 64 * 1024
_FIRST_FINAL: Final = 200


class ConnectionEnded(ConnectionError):
    """There is no answer; the text says why, and never what was sent instead of one.

    Attributes:
        asked: whether the request was sent.
    """

    def __init__(self, why: str, *, asked: bool = True) -> None:
        super().__init__(why)
        self.asked = asked


class Http1Connection(asyncio.Protocol):
    """All of it in one event loop.

    Attributes:
        idle_since: of the loop's clock, when the last answer was complete.
        reusable: whether another request may be sent.
    """

    def __init__(self) -> None:
        self.idle_since = 0.0
        self.reusable = True
        self._transport: asyncio.Transport
        self._loop = asyncio.get_running_loop()
        self._answer: asyncio.Future[AppAnswer] | None = None

    async def ask(self, head: bytes, body: bytes) -> AppAnswer:
        """Send a request and wait for the answer; once its status is there, it is one, also if the rest is cut off.

        Raises:
            ConnectionEnded: no status came.
        """
        self._answer = self._loop.create_future()
        self._parser = HttpResponseParser(self)
        self._headers: dict[str, str] = {}
        self._body = b""
        self._head_bytes = 0
        self._head_is_complete = False
        if self._transport.is_closing():
            raise ConnectionEnded("the app has hung up", asked=False)
        self._transport.write(head + body)
        return await self._answer

    def cut_off(self) -> AppAnswer | None:
        """What has come of an answer that is not waited for any longer; None without a status."""
        status = self._parser.get_status_code()
        return None if status < _FIRST_FINAL else answer_of(status, self._headers, self._body, cut_off=True)

    def close(self) -> None:
        """At once."""
        self.reusable = False
        self._transport.abort()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Of `asyncio.Protocol`."""
        self._transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        """Of `asyncio.Protocol`."""
        if self._answer is None or self._answer.done():
            self.close()  # nobody has asked for it
            return
        if not self._head_is_complete:
            self._head_bytes += len(data)
        try:
            self._parser.feed_data(data)
        except (HttpParserError, HttpParserUpgrade) as error:
            if not self._answer.done():
                self._fail(f"no HTTP ({type(error).__name__})")
            self.close()
        else:
            if self._head_bytes > _HEAD_LIMIT and not self._head_is_complete:
                self._fail("the head of its answer is too large")

    def connection_lost(self, exc: Exception | None) -> None:
        """Of `asyncio.Protocol`."""
        self.reusable = False
        if self._answer is None or self._answer.done():
            return
        length, coding = self._headers.get("content-length"), self._headers.get("transfer-encoding")
        if self._head_is_complete and exc is None and length is None and coding is None:
            self._complete()  # such a body ends with its connection
        else:
            self._fail("cut off" if exc is None else f"cut off ({type(exc).__name__})")

    def on_header(self, name: bytes, value: bytes) -> None:
        """Of httptools."""
        self._headers[name.decode("latin-1").lower()] = value.decode("latin-1")

    def on_headers_complete(self) -> None:
        """Of httptools."""
        self._head_is_complete = self._parser.get_status_code() >= _FIRST_FINAL

    def on_body(self, body: bytes) -> None:
        """Of httptools."""
        if len(self._body) < BODY_LIMIT:
            self._body += body[: BODY_LIMIT - len(self._body)]
            if len(self._body) >= BODY_LIMIT:
                self._complete()
                self.close()

    def on_message_complete(self) -> None:
        """Of httptools."""
        if self._head_is_complete:
            if not self._parser.should_keep_alive():
                self.close()
            self._complete()
        else:  # 100 and the like come before the answer
            self._headers = {}

    def _complete(self) -> None:
        if self._transport.get_write_buffer_size():
            self.reusable = False  # the app has answered before it has read the request
        if self._answer is not None and not self._answer.done():
            self._answer.set_result(answer_of(self._parser.get_status_code(), self._headers, self._body))
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
    """An answer; a body that is a JSON object counts, whatever its type is said to be, as with Dapr.

    Args:
        status: of HTTP.
        headers: names in lower case.
        body: its beginning.
        cut_off: the rest of it did not come.
    """
    value = parsed(body) if body.lstrip()[:1] == b"{" and len(body) < BODY_LIMIT else None
    return AppAnswer(status, headers, body, value if isinstance(value, dict) else None, cut_off)
