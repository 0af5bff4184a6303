"""A WSGI server with limits of threads, connections and times, on the standard library only."""

from __future__ import annotations

import asyncio
import io
import re
import socket
import sys
import threading
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from queue import SimpleQueue
from types import SimpleNamespace
from typing import Any, Final, NamedTuple, cast
from wsgiref.simple_server import WSGIRequestHandler

from reconsume.bridge.http.listening import shown_address
from reconsume.bridge.http.open_connections import ConnectionLimits, OpenConnections
from reconsume.bridge.process.safe_logger import SafeLogger

logger = SafeLogger(__name__)

Start = Callable[..., Any]
"""WSGI's `start_response`."""
WORKERS: Final = 8
"""Threads that answer; further requests wait."""
_LIMITS: Final = ConnectionLimits(idle_seconds=10.0, body_seconds=10.0, write_seconds=30.0)
_MOST_BYTES: Final = 65_536
"""The maximum size of a request."""
_CLOSE_SECONDS: Final = 1.0
"""Time for running answers when the server ends."""
_START_SECONDS: Final = 30.0
_DIGITS: Final = 19
"""The maximum digits of a content length; Python raises for numbers of thousands of digits."""
_END_OF_HEAD: Final = re.compile(rb"\r?\n\r?\n")
_LENGTH: Final = re.compile(rb"^content-length[ \t]*:(.*)$", re.IGNORECASE | re.MULTILINE)


class Refused(Exception):
    """A request that the application does not get; the text is the status."""


def size_of_request(received: bytes) -> int | None:
    """Return the size of the request that begins like this, None before its headers are complete.

    Raises:
        Refused: the request is too large, or has no size.
    """
    end = _END_OF_HEAD.search(received)
    if end is None:
        if len(received) > _MOST_BYTES:
            raise Refused("431 Request Header Fields Too Large")
        return None
    told = _LENGTH.search(received, 0, end.start())
    length = told.group(1).strip() if told else b"0"
    if not length.isdigit():
        raise Refused("400 Bad Request")
    if len(length) > _DIGITS or end.end() + int(length) > _MOST_BYTES:
        raise Refused("413 Content Too Large")
    return end.end() + int(length)


class WsgiThread:
    """Serves until closed, one request on each connection.

    Guarantees: one thread reads all requests, so that idle and slow clients occupy no thread; eight others answer
    complete requests. A thread for each connection would mean 300 threads for 300 idle clients.
    Test: tests/unit/bridge/http/test_wsgi_thread.py.

    Args:
        application: the WSGI application.
        sockets: listening sockets.
        name: the name of the daemon threads.
        limits: limits of connections.
    """

    def __init__(
        self,
        application: Callable[[dict[str, Any], Start], Iterable[bytes]],
        sockets: Sequence[socket.socket],
        name: str,
        limits: ConnectionLimits = _LIMITS,
    ) -> None:
        self._sockets = sockets
        host, port = sockets[0].getsockname()[:2]
        environ = {"SERVER_NAME": host, "SERVER_PORT": str(port), "SCRIPT_NAME": "", "CONTENT_LENGTH": ""}
        self._wsgi = SimpleNamespace(base_environ=environ, get_app=lambda: self._whole_answer)
        self._application = application
        self.address = shown_address(sockets[0])
        self._limits = limits
        self._open = OpenConnections(limits.connections, name)
        self._asked: SimpleQueue[_Asked | None] = SimpleQueue()
        self._in_hand: set[asyncio.Task[Any]] = set()
        self._running = threading.Event()
        self._loop_thread = threading.Thread(target=lambda: asyncio.run(self._serve()), name=name, daemon=True)
        self._loop_thread.start()
        for number in range(WORKERS):
            threading.Thread(target=self._work, name=f"{name}-{number}", daemon=True).start()
        self._running.wait(_START_SECONDS)

    def close(self) -> None:
        """Stop serving; running answers get a moment."""
        with suppress(RuntimeError):  # the loop has ended
            self._loop.call_soon_threadsafe(self._stop.set)
        self._loop_thread.join()
        for _ in range(WORKERS):
            self._asked.put(None)

    async def _serve(self) -> None:
        self._loop, self._stop = asyncio.get_running_loop(), asyncio.Event()
        servers = [await asyncio.start_server(self._talk, sock=one) for one in self._sockets]
        self._running.set()
        await self._stop.wait()
        for one in servers:
            one.close()
        if self._in_hand:
            await asyncio.wait(self._in_hand, timeout=_CLOSE_SECONDS)

    async def _talk(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Read one request, write its answer, and close."""
        connection = _Connection(writer.transport)
        self._open.add(connection)
        try:
            writer.write(await self._answer(reader, connection))
            writer.close()
            async with asyncio.timeout(self._limits.write_seconds):
                await writer.wait_closed()
        except (TimeoutError, ConnectionError):
            pass  # the client has gone, or does not read
        finally:
            connection.abort()
            self._open.discard(connection)

    async def _answer(self, reader: asyncio.StreamReader, connection: _Connection) -> bytes:
        received = b""
        try:
            async with asyncio.timeout(self._limits.idle_seconds):
                while (size := size_of_request(received)) is None or len(received) < size:
                    more = await reader.read(_MOST_BYTES)
                    if not more:
                        return b""
                    received += more
        except Refused as refused:
            return _plain(str(refused))
        except TimeoutError:
            return _plain("408 Request Timeout") if received else b""
        asked = _Asked(received, connection.client, self._loop.create_future())
        task = cast("asyncio.Task[Any]", asyncio.current_task())
        self._in_hand.add(task)
        task.add_done_callback(self._in_hand.discard)
        connection.is_waiting = False
        self._asked.put(asked)
        try:
            return await asked.answer
        finally:
            connection.is_waiting = True

    def _whole_answer(self, environ: dict[str, Any], start: Start) -> list[bytes]:
        """Call the application; half of an answer would look like a whole one."""
        try:
            return [b"".join(self._application(environ, start))]
        except Exception:
            logger.exception("a request to %s failed", self.address)
            start("500 Internal Server Error", [("Content-Type", "text/plain")], sys.exc_info())
            return [b"500 Internal Server Error\n"]

    def _work(self) -> None:
        while (asked := self._asked.get()) is not None:
            try:
                answer = _Exchange(asked.request, asked.client, self._wsgi).answer
            except Exception:
                logger.exception("a request to %s failed", self.address)
                answer = _plain("500 Internal Server Error")
            with suppress(RuntimeError):  # the server is closed
                self._loop.call_soon_threadsafe(asked.give, answer)


class _Asked(NamedTuple):
    """A complete request for an answering thread."""

    request: bytes
    client: tuple[Any, ...]
    answer: asyncio.Future[bytes]

    def give(self, answer: bytes) -> None:
        if not self.answer.done():
            self.answer.set_result(answer)


class _Connection:
    """One open connection."""

    def __init__(self, transport: asyncio.WriteTransport) -> None:
        self.client: tuple[Any, ...] = transport.get_extra_info("peername") or ("", 0)
        self.abort = transport.abort
        self.is_waiting = True


class _Exchange(WSGIRequestHandler):
    """A complete request and its answer."""

    def __init__(self, request: bytes, client: tuple[Any, ...], server: Any) -> None:
        self.rfile = io.BytesIO(request)
        self.wfile = self._written = io.BytesIO()
        super().__init__(request, client, server)  # type: ignore[arg-type]  # no socket: it is read above

    @property
    def answer(self) -> bytes:
        return self._written.getvalue()

    def setup(self) -> None:
        """Do nothing: the streams exist."""

    def finish(self) -> None:
        """Do nothing: the answer is read from its stream."""

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the base class calls it so
        """Do nothing: scrapes and probes need no log lines."""


def _plain(status: str) -> bytes:
    return f"HTTP/1.0 {status}\r\nContent-Type: text/plain\r\nConnection: close\r\n\r\n{status}\n".encode()
