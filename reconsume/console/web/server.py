"""The console's HTTP server."""

from __future__ import annotations

from typing import Final

from starlette.types import ASGIApp

from reconsume.bridge.http.uvicorn_thread import UvicornThread
from reconsume.console.settings import ConsoleListenSettings

_TURN_SECONDS: Final = 5.0
_FINISH_SECONDS: Final = 1.0
_END_SECONDS: Final = 5.0


class PageServer(UvicornThread):
    """A server whose threads are daemons, so that the end of the process does not wait for Kafka.

    Args:
        app: the application.
        listen: the listen address.

    Raises:
        IllegalSetting: the address cannot be used.
    """

    def __init__(self, app: ASGIApp, listen: ConsoleListenSettings) -> None:
        super().__init__(app, "console.listen", listen.host, listen.port, "reconsume-console", loop="asyncio")

    def is_alive(self) -> bool:
        """Return whether the event loop makes progress; an unreachable Kafka is no reason for a restart."""
        return self.is_answering(_TURN_SECONDS)

    def is_ready(self) -> bool:
        """Return the same: without Kafka the pages explain that."""
        return self.is_alive()

    def close(self) -> None:
        """Accept no more requests, give running ones a second, and end."""
        self.end(_FINISH_SECONDS, _END_SECONDS)
