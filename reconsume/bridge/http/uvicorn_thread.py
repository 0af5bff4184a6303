"""uvicorn in a thread of its own, with limits: of a head's size, of connections, and of the time a client may take."""

from __future__ import annotations

import asyncio
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
from reconsume.bridge.process.event_loops import takes_turns

_IDLE_SECONDS: Final = 75
_START_SECONDS: Final = 30.0
_NO_HEAD: Final = -(1 << 62)
_NO_HTTP: Final = 400
_TOO_SLOW: Final = 408
_TOO_LARGE: Final = 431


def raw_answer(status: int, kind: str, body: bytes) -> bytes:
    """Return the whole text of an answer that ends its connection."""
    reason = HTTPStatus(status).phrase
    head = f"HTTP/1.1 {status} {reason}\r\ncontent-type: {kind}\r\nconnection: close\r\ncontent-length: {len(body)}"
    return head.encode() + b"\r\n\r\n" + body


_LIMITS: Final = ConnectionLimits()
_REFUSALS: Final = {
    status: raw_answer(status, "text/plain", f"{HTTPStatus(status).phrase}\n".encode())
    for status in (_NO_HTTP, _TOO_SLOW, _TOO_LARGE)
}


class UvicornThread:
    """Serves HTTP/1.1 behind its caller, or TLS, and logs where this process does.

    Listens from its construction on, so that an address that cannot be had is told at once.

    Args:
        app: what answers.
        setting: that names the address, such as `sidecar.listen`.
        host: to listen on.
        port: 0 takes a free one.
        name: of the thread, a daemon.
        limits: of heads and connections.
        refusals: whole answers by status: 400 for no HTTP, 408 for a slow client, 431 for a head that is too large.
        options: further ones of uvicorn, such as `loop`.

    Raises:
        IllegalSetting: the address cannot be used. Also what uvicorn raises for certificates that it cannot use.
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
        open_connections = OpenConnections(limits.connections, name)
        self._config = uvicorn.Config(
            app,
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
        """Whether it has begun, and its event loop takes turns."""
        loop = self._loop
        return loop is not None and self._thread.is_alive() and takes_turns(loop, seconds)

    def end(self, finish_seconds: float, end_seconds: float) -> None:
        """Take no further request; finish those that have begun, within so long, and end.

        Args:
            finish_seconds: at least 1.
            end_seconds: the thread is left behind after so long.
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
        asyncio.get_running_loop().call_soon(self._running.set)
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

    Tests: tests/unit/bridge/http/test_uvicorn_thread.py, tests/integration/test_sidecar_guard.py.
    Remove when: uvicorn limits the size of a head, and the time for a request and for reading its answer.
    """

    def __init__(
        self, limits: ConnectionLimits, refusals: Mapping[int, bytes], connections: OpenConnections, **kwargs: Any
    ) -> None:
        super().__init__(**kwargs)
        self._limits, self._refusals, self._open = limits, refusals, connections
        self._of_this_head = 0
        self._refusal = _NO_HTTP
        self._stage = self._timed = _Stage.IDLE
        self._timer: asyncio.TimerHandle | None = None
        self._writing: asyncio.TimerHandle | None = None

    @property
    def is_waiting(self) -> bool:
        """Whether a request, or more of one, is expected of the client."""
        return self._stage is not _Stage.ANSWER

    def abort(self) -> None:
        """End the connection at once, whatever was still to be sent."""
        self.transport.abort()

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as the base class
        """Count it, and wait for its first request for so long."""
        super().connection_made(transport)
        self._timer = self.loop.call_later(self._limits.idle_seconds, self._too_slow)
        self._open.add(self)

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget it."""
        for timer in filter(None, (self._timer, self._writing)):
            timer.cancel()
        self._open.discard(self)
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Count what comes until a head is complete."""
        self._of_this_head += len(data)
        super().data_received(data)
        if self._of_this_head > self._limits.header_bytes and not self.transport.is_closing():
            self._refuse(_TOO_LARGE)
        self._set_timer()

    def on_message_begin(self) -> None:
        """The first byte of a request has come."""
        self._stage = _Stage.HEAD
        super().on_message_begin()

    def on_headers_complete(self) -> None:
        """A head has ended, and its own size is known."""
        self._of_this_head = _NO_HEAD
        if len(self.url) + sum(len(name) + len(value) for name, value in self.headers) > self._limits.header_bytes:
            self._refusal = _TOO_LARGE
            raise ValueError  # the parser stops, and the base class answers by `send_400_response`
        self._stage = _Stage.BODY
        super().on_headers_complete()

    def on_message_complete(self) -> None:
        """Another head may begin on this connection."""
        self._of_this_head = 0
        super().on_message_complete()
        if not self.cycle.response_complete:
            self._stage = _Stage.ANSWER

    def on_response_complete(self) -> None:
        """An answer was given; what stands in the pipeline is next."""
        super().on_response_complete()
        if self.cycle.response_complete:
            self._stage = _Stage.IDLE
            self._open.answered(self)
        self._set_timer()

    def pause_writing(self) -> None:
        """The client does not read as fast as it is answered."""
        super().pause_writing()
        self._writing = self.loop.call_later(self._limits.write_seconds, self.abort)

    def resume_writing(self) -> None:
        """It has read."""
        super().resume_writing()
        if self._writing is not None:
            self._writing.cancel()

    def send_400_response(self, msg: str) -> None:  # noqa: ARG002 - the base class has it
        """Answer bytes that are no request; no application can."""
        self._refuse(self._refusal)

    def _refuse(self, status: int) -> None:
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
        """Say so to a client that has begun a request and has no answer; end the connection."""
        if self._stage in (_Stage.HEAD, _Stage.BODY) and not self._is_answered():
            self._refuse(_TOO_SLOW)
        else:
            self.abort()

    def _is_answered(self) -> bool:
        return self._stage is _Stage.BODY and self.cycle.response_started
