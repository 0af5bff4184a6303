"""uvicorn's HTTP/1.1 with limits: of a head's size, of connections, and of the time that a client may take."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from enum import Enum, auto
from typing import Any, ClassVar, Final

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from reconsume.bridge.http.open_connections import ConnectionLimits, OpenConnections

__all__ = ["LimitedProtocol", "limited_protocol", "raw_answer"]

_NO_HEAD: Final = -(1 << 62)
_NO_HTTP: Final = 400
_TOO_SLOW: Final = 408
_TOO_LARGE: Final = 431


def raw_answer(status: int, reason: str, kind: str, body: bytes) -> bytes:
    """Return the whole text of an answer that ends its connection."""
    head = f"HTTP/1.1 {status} {reason}\r\ncontent-type: {kind}\r\nconnection: close\r\ncontent-length: {len(body)}"
    return head.encode() + b"\r\n\r\n" + body


def limited_protocol(
    name: str, header_bytes: int, refusals: Mapping[int, bytes], limits: ConnectionLimits
) -> type[LimitedProtocol]:
    """Return the protocol of one server.

    Args:
        name: of the server, for its log.
        header_bytes: the largest request line with its headers.
        refusals: whole answers by status: 400 for no HTTP, 408 for a slow client, 431 for a head that is too large.
        limits: of connections.
    """
    open_connections = OpenConnections(limits.connections, name)
    members = {
        "header_bytes": header_bytes,
        "refusals": refusals,
        "limits": limits,
        "open": open_connections,
    }
    return type("ServersProtocol", (LimitedProtocol,), members)


class _Stage(Enum):
    IDLE = auto()
    HEAD = auto()
    BODY = auto()
    ANSWER = auto()


class LimitedProtocol(HttpToolsProtocol):
    """One connection.

    uvicorn (0.54) limits only the time between two requests: a connection that never sends one, or sends it byte by
    byte, or does not read its answer, stays for ever; and its parser keeps a head of any size.

    Tests: tests/unit/bridge/http/test_uvicorn_protocol.py, tests/integration/test_sidecar_guard.py.
    Remove when: uvicorn limits the size of a head, and the time for a request and for reading its answer.
    """

    header_bytes: ClassVar[int]
    refusals: ClassVar[Mapping[int, bytes]]
    limits: ClassVar[ConnectionLimits]
    open: ClassVar[OpenConnections]

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
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
        self._timer = self.loop.call_later(self.limits.idle_seconds, self._too_slow)
        self.open.add(self)

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget it."""
        for timer in filter(None, (self._timer, self._writing)):
            timer.cancel()
        self.open.discard(self)
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Count what comes until a head is complete."""
        self._of_this_head += len(data)
        super().data_received(data)
        if self._of_this_head > self.header_bytes and not self.transport.is_closing():
            self._refuse(_TOO_LARGE)
        self._set_timer()

    def on_message_begin(self) -> None:
        """The first byte of a request has come."""
        self._stage = _Stage.HEAD
        super().on_message_begin()

    def on_headers_complete(self) -> None:
        """A head has ended, and its own size is known."""
        self._of_this_head = _NO_HEAD
        if len(self.url) + sum(len(name) + len(value) for name, value in self.headers) > self.header_bytes:
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
            self.open.answered(self)
        self._set_timer()

    def pause_writing(self) -> None:
        """The client does not read as fast as it is answered."""
        super().pause_writing()
        self._writing = self.loop.call_later(self.limits.write_seconds, self.abort)

    def resume_writing(self) -> None:
        """It has read."""
        super().resume_writing()
        if self._writing is not None:
            self._writing.cancel()

    def send_400_response(self, msg: str) -> None:  # noqa: ARG002 - the base class has it
        """What no application can answer, because no request came of it."""
        self._refuse(self._refusal)

    def _refuse(self, status: int) -> None:
        self.transport.write(self.refusals[status])
        self.transport.close()

    def _set_timer(self) -> None:
        if self._stage is self._timed:
            return
        self._timed = self._stage
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        seconds = {
            _Stage.IDLE: self.limits.idle_seconds,
            _Stage.HEAD: self.limits.head_seconds,
            _Stage.BODY: self.limits.body_seconds,
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
