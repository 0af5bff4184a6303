"""The console's HTTP server."""

from __future__ import annotations

from typing import Final

from starlette.types import ASGIApp

from reconsume.bridge.http.uvicorn_thread import UvicornThread
from reconsume.console.settings import ConsoleListenSettings

__all__ = ["PageServer"]

_TURN_SECONDS: Final = 5.0
_FINISH_SECONDS: Final = 1.0
_END_SECONDS: Final = 5.0


class PageServer(UvicornThread):
    """Its threads are daemons, those that ask Kafka too: the end of the process waits for no answer.

    Args:
        app: what answers.
        listen: where.

    Raises:
        IllegalSetting: the address cannot be used.
    """

    def __init__(self, app: ASGIApp, listen: ConsoleListenSettings) -> None:
        super().__init__(app, "console.listen", listen.host, listen.port, "reconsume-console", loop="asyncio")

    def is_alive(self) -> bool:
        """Whether its event loop takes turns; Kafka that is away is no reason for a restart."""
        return self.is_answering(_TURN_SECONDS)

    def is_ready(self) -> bool:
        """The same: without Kafka the pages say so, and where it was looked for."""
        return self.is_alive()

    def close(self) -> None:
        """Take no further request, give those that are nearly done a second, and end."""
        self.end(_FINISH_SECONDS, _END_SECONDS)
