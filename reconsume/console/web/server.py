"""The console's HTTP server."""

from __future__ import annotations

from typing import Final

from starlette.types import ASGIApp

from reconsume.bridge.http.open_connections import ConnectionLimits
from reconsume.bridge.http.uvicorn_protocol import limited_protocol, raw_answer
from reconsume.bridge.http.uvicorn_thread import UvicornThread, uvicorn_config
from reconsume.console.settings import ConsoleListenSettings

__all__ = ["PageServer"]

_TURN_SECONDS: Final = 5.0
_HEAD_BYTES: Final = 65_536
_REFUSALS: Final = {
    status: raw_answer(status, reason, "text/plain", f"{reason}\n".encode())
    for status, reason in ((400, "Bad Request"), (408, "Request Timeout"), (431, "Request Header Fields Too Large"))
}
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
        protocol = limited_protocol("the console", _HEAD_BYTES, _REFUSALS, ConnectionLimits())
        config = uvicorn_config(app, loop="asyncio", http=protocol)
        super().__init__(config, "console.listen", listen.host, listen.port, "reconsume-console")

    def is_alive(self) -> bool:
        """Whether its event loop takes turns; Kafka that is away is no reason for a restart."""
        return self.is_answering(_TURN_SECONDS)

    def is_ready(self) -> bool:
        """The same: without Kafka the pages say so, and where it was looked for."""
        return self.is_alive()

    def close(self) -> None:
        """Take no further request, give those that are nearly done a second, and end."""
        self.end(_FINISH_SECONDS, _END_SECONDS)
