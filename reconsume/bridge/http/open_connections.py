"""The connections that an HTTP server holds open: how many, and how long each may take."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from time import monotonic
from typing import Final, Protocol

logger = logging.getLogger(__name__)

_WARN_EVERY_SECONDS: Final = 60.0


@dataclass(frozen=True)
class ConnectionLimits:
    """The limits of one server.

    Attributes:
        connections: that are open at a time.
        idle_seconds: until the first byte of a request.
        head_seconds: from there to the end of its headers.
        body_seconds: from there to the end of its body.
        write_seconds: until the client has read an answer.
        header_bytes: of the largest request line with its headers.
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
        """Whether the server waits for its client."""

    def abort(self) -> None:
        """End it at once."""


class OpenConnections:
    """At most so many; one more ends the connection that has waited longest for its client.

    A client that sends its request at once is therefore answered, however many others are idle.

    Args:
        most: that are open at a time.
        server: its name in the log.
    """

    def __init__(self, most: int, server: str) -> None:
        self._most = most
        self._server = server
        self._open: dict[ClientConnection, None] = {}
        self._warned_at = -_WARN_EVERY_SECONDS

    def add(self, connection: ClientConnection) -> None:
        """Take a new connection; it is ended itself where all others are being answered."""
        self._open[connection] = None
        if len(self._open) > self._most:
            longest = next((one for one in self._open if one.is_waiting), connection)
            self.discard(longest)
            longest.abort()
            self._warn()

    def answered(self, connection: ClientConnection) -> None:
        """Make it the last one: it begins to wait."""
        if connection in self._open:
            self.discard(connection)
            self._open[connection] = None

    def discard(self, connection: ClientConnection) -> None:
        """Forget a connection that has ended."""
        self._open.pop(connection, None)

    def _warn(self) -> None:
        now = monotonic()
        if now >= self._warned_at + _WARN_EVERY_SECONDS:
            self._warned_at = now
            logger.warning("%s: more than %d connections, closing the longest idle ones", self._server, self._most)
