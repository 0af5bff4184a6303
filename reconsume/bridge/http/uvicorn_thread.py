"""uvicorn in a background thread, with limits of header size, connections and times of clients."""

from __future__ import annotations

import asyncio
import sys
import threading
from collections.abc import Mapping
from enum import Enum, auto
from functools import partial
from http import HTTPStatus
from typing import Any, Final

import uvicorn
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from reconsume.bridge.http.listening import listening_sockets, shown_address
from reconsume.bridge.http.open_connections import ConnectionLimits, OpenConnections
from reconsume.bridge.http.unread_bodies import UnreadBodies
from reconsume.bridge.process.event_loops import takes_turns

_IDLE_SECONDS: Final = 75
_START_SECONDS: Final = 30.0
_NO_HEAD: Final = -(1 << 62)
_OFFER: Final = frozenset({b"upgrade", b"http2-settings"})
_NO_HTTP: Final = 400
_TOO_SLOW: Final = 408
_TOO_LARGE: Final = 431


def raw_answer(status: int, kind: str, body: bytes) -> bytes:
    """Return the whole text of an answer that closes its connection."""
    reason = HTTPStatus(status).phrase
    head = f"HTTP/1.1 {status} {reason}\r\ncontent-type: {kind}\r\nconnection: close\r\ncontent-length: {len(body)}"
    return head.encode() + b"\r\n\r\n" + body


_LIMITS: Final = ConnectionLimits()
_REFUSALS: Final = {
    status: raw_answer(status, "text/plain", f"{HTTPStatus(status).phrase}\n".encode())
    for status in (_NO_HTTP, _TOO_SLOW, _TOO_LARGE)
}


class UvicornThread:
    """Serves HTTP/1.1 or HTTPS in a background thread, and logs like the rest of the process.

    The constructor binds the address, so that a bad address is reported at once.

    Args:
        app: the application.
        setting: the setting of the address, such as `sidecar.listen`.
        host: the listen address.
        port: 0 picks a free port.
        name: the name of the daemon thread.
        limits: limits of headers and connections.
        refusals: whole answers by status: 400 for invalid HTTP, 408 for a slow client, 431 for too large headers.
        options: further options of uvicorn, such as `loop`.

    Raises:
        IllegalSetting: the address cannot be used. uvicorn's own errors for unusable certificates pass through.
    """

    def __init__(
        self,
        app: Any,
        setting: str,
        host: str,
        port: int,
        name: str,
        *,
        limits: ConnectionLimits = _LIMITS,
        refusals: Mapping[int, bytes] = _REFUSALS,
        **options: Any,
    ) -> None:
        self._handshake_seconds = limits.head_seconds
        open_connections = OpenConnections(limits.connections, name)
        self._config = uvicorn.Config(
            UnreadBodies(app),
            http=partial(_LimitedProtocol, limits, refusals, open_connections),  # type: ignore[arg-type]  # it is called
            ws="none",
            lifespan="off",
            log_config=None,
            log_level="warning",
            access_log=False,
            proxy_headers=False,
            server_header=False,
            timeout_keep_alive=_IDLE_SECONDS,
            **options,
        )
        self._config.load()
        self._sockets = listening_sockets(setting, host, port)
        self._server = uvicorn.Server(self._config)
        self._loop: asyncio.AbstractEventLoop | None = None
        self._running = threading.Event()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    @property
    def address(self) -> str:
        """`host:port`."""
        return shown_address(self._sockets[0])

    def start(self) -> None:
        """Begin to answer."""
        self._thread.start()
        self._running.wait(_START_SECONDS)

    def is_answering(self, seconds: float) -> bool:
        """Return whether it has started and its event loop makes progress."""
        loop = self._loop
        return loop is not None and self._thread.is_alive() and takes_turns(loop, seconds)

    def end(self, finish_seconds: float, end_seconds: float) -> None:
        """Accept no more requests, finish the running ones, and end.

        Args:
            finish_seconds: time for running requests; at least 1.
            end_seconds: the thread is abandoned after this time.
        """
        self._config.timeout_graceful_shutdown = max(1, round(finish_seconds))
        self._server.should_exit = True
        if self._thread.is_alive():
            self._thread.join(end_seconds)
        for one in self._sockets:
            one.close()

    def _run(self) -> None:
        with asyncio.Runner(loop_factory=self._config.get_loop_factory()) as runner:
            self._loop = runner.get_loop()
            runner.run(self._serve())

    async def _serve(self) -> None:
        loop = asyncio.get_running_loop()
        if self._config.is_ssl:
            # uvicorn passes no time for the handshake, and a connection counts only after it.
            listen = partial(loop.create_server, ssl_handshake_timeout=self._handshake_seconds)
            loop.create_server = listen  # type: ignore[method-assign]
        loop.call_soon(self._running.set)
        await self._server.serve(self._sockets)


class _Stage(Enum):
    IDLE = auto()
    HEAD = auto()
    BODY = auto()
    ANSWER = auto()


class _LimitedProtocol(HttpToolsProtocol):
    """One connection.

    uvicorn (0.54) limits only the time between two requests: a connection that never sends one, or sends it byte by
    byte, or does not read its answer, stays forever; and its parser keeps a head of any size.

    httptools (0.9) takes what follows a head with `Upgrade` for another protocol, and uvicorn drops it: a request of
    a client that offers HTTP/2, as Java's HttpClient does, loses its body (uvicorn #2722, httptools #124). Here such a
    request is parsed again without the offer, which RFC 9110 (7.8) lets a server ignore.

    Tests: tests/unit/bridge/http/test_uvicorn_thread.py, tests/integration/sidecar/test_guard.py.
    Remove when: uvicorn limits the size of a head, and the time for a request, for reading its answer and for the TLS
    handshake (in `UvicornThread._serve`); the part for upgrades when uvicorn passes on the body of a request whose
    upgrade it ignores.
    """

    def __init__(
        self, limits: ConnectionLimits, refusals: Mapping[int, bytes], connections: OpenConnections, **kwargs: Any
    ) -> None:
        super().__init__(**kwargs)
        self._limits, self._refusals, self._open = limits, refusals, connections
        self._of_this_head = 0
        self._fed = self._unparsed = b""
        self._refusal = _NO_HTTP
        self._stage = self._timed = _Stage.IDLE
        self._timer: asyncio.TimerHandle | None = None
        self._writing: asyncio.TimerHandle | None = None

    @property
    def is_waiting(self) -> bool:
        """Return whether the client must send a request, or the rest of one."""
        return self._stage is not _Stage.ANSWER

    def abort(self) -> None:
        """Close the connection at once, with unsent data."""
        self.transport.abort()

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as the base class
        """Count the connection, and start the time for its first request."""
        super().connection_made(transport)
        self._timer = self.loop.call_later(self._limits.idle_seconds, self._too_slow)
        self._open.add(self)

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget the connection."""
        for timer in filter(None, (self._timer, self._writing)):
            timer.cancel()
        self._open.discard(self)
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Count bytes until the headers are complete."""
        self._of_this_head += len(data)
        self._unparsed = data
        while self._unparsed:  # no recursion: each request of a pipeline may offer an upgrade
            self._fed, self._unparsed = self._unparsed, b""
            super().data_received(self._fed)
        if self._of_this_head > self._limits.header_bytes and not self.transport.is_closing():
            self._refuse(_TOO_LARGE)
        self._set_timer()

    def on_message_begin(self) -> None:
        """Note the first byte of a request."""
        self._stage = _Stage.HEAD
        super().on_message_begin()

    def on_headers_complete(self) -> None:
        """Check the size of complete headers."""
        if self._offers_upgrade:
            return
        if len(self.url) + sum(len(name) + len(value) for name, value in self.headers) > self._limits.header_bytes:
            self._refusal = _TOO_LARGE
            raise ValueError  # the parser stops, and the base class answers by `send_400_response`
        super().on_headers_complete()
        self._of_this_head, self._stage = _NO_HEAD, _Stage.BODY

    def on_message_complete(self) -> None:
        """Allow the next request on this connection."""
        if self._offers_upgrade:
            return
        self._of_this_head = 0
        super().on_message_complete()
        if not self.cycle.response_complete:
            self._stage = _Stage.ANSWER

    def on_response_complete(self) -> None:
        """Note the end of an answer; a pipelined request is next."""
        super().on_response_complete()
        if self.cycle.response_complete:
            self._stage = _Stage.IDLE
            self._open.answered(self)
        self._set_timer()

    def pause_writing(self) -> None:
        """Note that the client reads slower than it is answered."""
        super().pause_writing()
        self._writing = self.loop.call_later(self._limits.write_seconds, self.abort)

    def resume_writing(self) -> None:
        """Note that the client has caught up."""
        super().resume_writing()
        if self._writing is not None:
            self._writing.cancel()

    def send_400_response(self, msg: str) -> None:  # noqa: ARG002 - the base class has it
        """Answer bytes that are not an HTTP request; the application cannot."""
        self._refuse(self._refusal)

    @property
    def _offers_upgrade(self) -> bool:
        """Return whether the parser stops after this head for an upgrade; CONNECT has no request after it."""
        return self.parser.should_upgrade() and self.parser.get_method() != b"CONNECT"

    def _unsupported_upgrade_warning(self) -> None:
        """Let the head be parsed again without its offer to upgrade, and with its body."""
        if not self._offers_upgrade:
            super()._unsupported_upgrade_warning()
            return
        version = self.parser.get_http_version().encode()
        lines = [b"%s %s HTTP/%s" % (self.parser.get_method(), self.url, version)]
        lines += [b"%s: %s" % one for one in self.headers if one[0] not in _OFFER]
        stop: Any = sys.exception()  # the parser's, which the base class handles: it names the end of the head
        self._unparsed = b"\r\n".join(lines) + b"\r\n\r\n" + self._fed[stop.args[0] :]

    def _refuse(self, status: int) -> None:
        """Close the connection, with an answer if clients cannot take it for that of another request."""
        is_open = self.cycle is not None and not self.cycle.response_complete
        if self._of_this_head >= 0:  # the refused request has no headers yet, and `cycle` is the one before it
            may_answer = not is_open
        else:
            may_answer = is_open and not self.cycle.response_started and not self.pipeline
        if may_answer:
            if is_open:
                self.cycle.disconnected = True  # the application's own answer would be a second one
            self.transport.write(self._refusals[status])
        self.transport.close()

    def _set_timer(self) -> None:
        if self._stage is self._timed:
            return
        self._timed = self._stage
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        seconds = {
            _Stage.IDLE: self._limits.idle_seconds,
            _Stage.HEAD: self._limits.head_seconds,
            _Stage.BODY: self._limits.body_seconds,
        }
        if self._stage in seconds and not self.transport.is_closing():
            self._timer = self.loop.call_later(seconds[self._stage], self._too_slow)

    def _too_slow(self) -> None:
        """Answer a slow client if it has begun a request; close the connection."""
        if self._stage in (_Stage.HEAD, _Stage.BODY):
            self._refuse(_TOO_SLOW)
        else:
            self.abort()
