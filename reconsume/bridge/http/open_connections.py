"""Limits on the open connections of an HTTP server: their number and their times."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Protocol

from reconsume.bridge.process.safe_logger import LimitedLogger

_WARN_EVERY_MS: Final = 60_000


@dataclass(frozen=True)
class ConnectionLimits:
    """The limits of one server.

    Attributes:
        connections: maximum of open connections.
        idle_seconds: time until the first byte of a request.
        head_seconds: time from there to the end of the headers.
        body_seconds: time from there to the end of the body.
        write_seconds: time for the client to read an answer.
        header_bytes: maximum size of request line and headers.
    """

    connections: int = 256
    idle_seconds: float = 75.0
    head_seconds: float = 10.0
    body_seconds: float = 60.0
    write_seconds: float = 60.0
    header_bytes: int = 65_536


class ClientConnection(Protocol):
    """One open connection."""

    @property
    def is_waiting(self) -> bool:
        """Return whether the server waits for the client."""

    def abort(self) -> None:
        """Close it at once."""


class OpenConnections:
    """Open connections up to a maximum; one more closes the connection that has waited longest for its client.

    So a client that sends its request at once gets an answer, however many others are idle.

    Args:
        most: the maximum.
        server: the name in the log.
    """

    def __init__(self, most: int, server: str) -> None:
        self._most = most
        self._server = server
        self._open: dict[ClientConnection, None] = {}
        self._logger = LimitedLogger(__name__, lines=1, per_ms=_WARN_EVERY_MS)

    def add(self, connection: ClientConnection) -> None:
        """Add a connection; it is closed at once if all others are being answered."""
        self._open[connection] = None
        if len(self._open) > self._most:
            longest = next((one for one in self._open if one.is_waiting), connection)
            self.discard(longest)
            longest.abort()
            self._logger.warning(
                "%s: more than %d connections, closing the longest idle ones", self._server, self._most
            )

    def answered(self, connection: ClientConnection) -> None:
        """Note the end of an answer: the connection waits from now on."""
        if connection in self._open:
            self.discard(connection)
            self._open[connection] = None

    def discard(self, connection: ClientConnection) -> None:
        """Forget a closed connection."""
        self._open.pop(connection, None)
