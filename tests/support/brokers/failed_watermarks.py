"""A TCP proxy that lets one of a client's two requests for the offsets of a partition fail."""

from __future__ import annotations

import socket
import struct
import threading
from contextlib import suppress
from typing import Final, Self

__all__ = ["FailedWatermarks"]

_HOST: Final = "127.0.0.1"
_LIST_OFFSETS: Final = 2
_STORAGE_ERROR: Final = 56
_SIZE: Final = struct.Struct(">i")
_REQUEST: Final = struct.Struct(">hhi")
"""Api key, version, correlation id."""


class FailedWatermarks:
    """Such a proxy; use it as a context.

    The brokers' answers to ListOffsets reach the client two at a time, as they do while a broker has more to do.

    Args:
        port: to listen on.
        target: port of the broker.
    """

    def __init__(self, port: int, target: int) -> None:
        self._target = target
        self._server = socket.create_server((_HOST, port))
        self._failing: int | None = None
        self._threads = [threading.Thread(target=self._accept, daemon=True)]
        self._sockets: list[socket.socket] = []
        self.failed = 0

    def __enter__(self) -> Self:
        self._threads[0].start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown(socket.SHUT_RDWR)
        self._server.close()
        for one in self._sockets:
            with suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)
        for thread in self._threads:
            thread.join()
        for one in self._sockets:
            one.close()

    def fail(self, timestamp: int | None) -> None:
        """From now on each request for this timestamp gets an error; with None no request."""
        self._failing = timestamp

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                client, _ = self._server.accept()
                broker = socket.create_connection((_HOST, self._target))
                self._sockets += [client, broker]
                asked: dict[int, bytes] = {}
                for thread in (
                    threading.Thread(target=self._pass_requests, args=(client, broker, asked), daemon=True),
                    threading.Thread(target=self._pass_answers, args=(broker, client, asked), daemon=True),
                ):
                    self._threads.append(thread)
                    thread.start()

    def _pass_requests(self, client: socket.socket, broker: socket.socket, asked: dict[int, bytes]) -> None:
        with suppress(OSError, EOFError):
            while True:
                frame = _frame(client)
                key, _, correlation = _REQUEST.unpack_from(frame, _SIZE.size)
                if key == _LIST_OFFSETS:
                    asked[correlation] = frame
                broker.sendall(frame)

    def _pass_answers(self, broker: socket.socket, client: socket.socket, asked: dict[int, bytes]) -> None:
        held = b""
        with suppress(OSError, EOFError):
            while True:
                frame = _frame(broker)
                (correlation,) = _SIZE.unpack_from(frame, _SIZE.size)
                if (request := asked.pop(correlation, None)) is None:
                    client.sendall(frame)
                    continue
                held += self._answer(request, frame)
                if not asked:
                    client.sendall(held)
                    held = b""

    def _answer(self, request: bytes, answer: bytes) -> bytes:
        timestamp = self._failing
        if timestamp is None or struct.pack(">q", timestamp) not in request:
            return answer
        self.failed += 1
        # Size, correlation id, tags, throttle time, one topic, its name, one partition, its number.
        name = _SIZE.size + 4 + 1 + 4 + 1
        error = name + answer[name] + 1 + 4
        return answer[:error] + struct.pack(">h", _STORAGE_ERROR) + answer[error + 2 :]


def _frame(connection: socket.socket) -> bytes:
    size = _exactly(connection, _SIZE.size)
    return size + _exactly(connection, _SIZE.unpack(size)[0])


def _exactly(connection: socket.socket, size: int) -> bytes:
    found = b""
    while len(found) < size:
        part = connection.recv(size - len(found))
        if not part:
            raise EOFError
        found += part
    return found
