"""uvicorn in a thread of its own."""

from __future__ import annotations

import asyncio
import threading
from typing import Any, Final

import uvicorn

from reconsume.bridge.http.listening import listening_sockets, shown_address
from reconsume.bridge.process.event_loops import takes_turns

__all__ = ["UvicornThread", "uvicorn_config"]

_IDLE_SECONDS: Final = 75
_START_SECONDS: Final = 30.0


def uvicorn_config(app: Any, **options: Any) -> uvicorn.Config:
    """What all our servers want: plain HTTP behind whoever calls, and the logs of this process."""
    common: dict[str, Any] = {
        "ws": "none",
        "lifespan": "off",
        "log_config": None,
        "log_level": "warning",
        "access_log": False,
        "proxy_headers": False,
        "server_header": False,
        "timeout_keep_alive": _IDLE_SECONDS,
    }
    return uvicorn.Config(app, **(common | options))


class UvicornThread:
    """Listens from its construction on, so that an address that cannot be had is told at once.

    Args:
        config: uvicorn's.
        setting: that names the address, such as `sidecar.listen`.
        host: to listen on.
        port: 0 takes a free one.
        name: of the thread, a daemon.

    Raises:
        IllegalSetting: the address cannot be used.
    """

    def __init__(self, config: uvicorn.Config, setting: str, host: str, port: int, name: str) -> None:
        self._sockets = listening_sockets(setting, host, port)
        self._config = config
        self._server = uvicorn.Server(config)
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
