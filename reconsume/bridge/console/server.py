"""The console's HTTP server: uvicorn in a thread of its own."""

from __future__ import annotations

import asyncio
import threading
from typing import Final

import uvicorn
from starlette.types import ASGIApp

from reconsume.bridge.console.settings import ListenSettings
from reconsume.bridge.event_loops import takes_turns
from reconsume.bridge.listening import listening_socket

__all__ = ["PageServer"]

_IDLE_SECONDS: Final = 75
_START_SECONDS: Final = 30.0
_TURN_SECONDS: Final = 5.0
_HEAD_BYTES: Final = 65_536


class PageServer:
    """Listens from its construction on, so that an address that cannot be had is told at once.

    Its threads are daemons, those that ask Kafka too: the end of the process waits for no answer.

    Args:
        app: what answers.
        listen: where.

    Raises:
        IllegalSetting: the address cannot be used.
    """

    def __init__(self, app: ASGIApp, listen: ListenSettings) -> None:
        self._config = uvicorn.Config(
            app,
            loop="asyncio",
            http="h11",
            ws="none",
            lifespan="off",
            log_config=None,
            log_level="warning",
            access_log=False,
            proxy_headers=False,
            server_header=False,
            timeout_keep_alive=_IDLE_SECONDS,
            timeout_graceful_shutdown=1,
            h11_max_incomplete_event_size=_HEAD_BYTES,
        )
        self._socket = listening_socket("console", listen.host, listen.port)
        self._server = uvicorn.Server(self._config)
        self._loop: asyncio.AbstractEventLoop | None = None
        self._running = threading.Event()
        self._thread = threading.Thread(target=self._run, name="reconsume-console", daemon=True)

    @property
    def address(self) -> str:
        """`host:port`."""
        host, port = self._socket.getsockname()[:2]
        return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"

    def start(self) -> None:
        """Begin to answer."""
        self._thread.start()
        self._running.wait(_START_SECONDS)

    def is_alive(self) -> bool:
        """Whether its event loop takes turns; Kafka that is away is no reason for a restart."""
        loop = self._loop
        return loop is not None and self._thread.is_alive() and takes_turns(loop, _TURN_SECONDS)

    def is_ready(self) -> bool:
        """The same: without Kafka the pages say so, and where it was looked for."""
        return self._running.is_set() and self.is_alive()

    def close(self) -> None:
        """Take no further request, give those that are nearly done a second, and end."""
        self._server.should_exit = True
        if self._thread.is_alive():
            self._thread.join(5)
        self._socket.close()

    def _run(self) -> None:
        with asyncio.Runner(loop_factory=self._config.get_loop_factory()) as runner:
            self._loop = runner.get_loop()
            runner.run(self._serve())

    async def _serve(self) -> None:
        asyncio.get_running_loop().call_soon(self._running.set)
        await self._server.serve([self._socket])
