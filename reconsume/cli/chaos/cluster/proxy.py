"""A TCP proxy that delays, slows, cuts or silences connections."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Final, Self

_HOST: Final = "127.0.0.1"
_CHUNK: Final = 65_536
_PIECE_SECONDS: Final = 0.05
"""Size of a piece on a slow link, short enough to let heartbeats pass in between."""
_START_SECONDS: Final = 10.0


class Proxy:
    """Forwards bytes between clients and one address, in a background thread; a context manager.

    Args:
        port: the port to listen on.
        target: the port to forward to.
    """

    def __init__(self, port: int, target: int) -> None:
        self._port = port
        self._target = target
        self._delay = 0.0
        self._bytes_per_second = 0
        self._loop = asyncio.new_event_loop()
        self._passing = asyncio.Event()
        self._writers: set[asyncio.StreamWriter] = set()
        self._listening = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"proxy-{port}", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        if not self._listening.wait(_START_SECONDS):
            raise OSError(f"the proxy cannot listen on port {self._port}")
        return self

    def __exit__(self, *_: object) -> None:
        self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join()

    def slow_down(self, seconds: float) -> None:
        """Delay every piece of data by this time; 0 for none."""
        self._do(lambda: setattr(self, "_delay", seconds))

    def limit(self, bytes_per_second: int) -> None:
        """Limit each connection to this rate in each direction; 0 for no limit."""
        self._do(lambda: setattr(self, "_bytes_per_second", bytes_per_second))

    def silence(self) -> None:
        """Keep connections, and accept new ones, but forward nothing: neither side notices."""
        self._do(self._passing.clear)

    def speak(self) -> None:
        """Forward the withheld data."""
        self._do(self._passing.set)

    def cut(self) -> None:
        """Reset all connections."""
        self._do(self._abort_all)

    def _abort_all(self) -> None:
        for one in self._writers:
            one.transport.abort()

    def _do(self, act: Callable[[], object]) -> None:
        self._loop.call_soon_threadsafe(act)

    def _run(self) -> None:
        try:
            self._loop.run_until_complete(self._serve())
        finally:
            self._loop.close()

    async def _serve(self) -> None:
        self._stop = asyncio.Event()
        self._passing.set()
        server = await asyncio.start_server(self._connected, _HOST, self._port)
        self._listening.set()
        await self._stop.wait()
        server.close()
        self._passing.set()
        self._abort_all()
        tasks = [one for one in asyncio.all_tasks() if one is not asyncio.current_task()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            onward = await asyncio.open_connection(_HOST, self._target)
        except OSError:
            writer.transport.abort()  # the target is down, which the client shall see
            return
        both = {writer, onward[1]}
        self._writers |= both
        try:
            await asyncio.gather(self._pass(reader, onward[1]), self._pass(onward[0], writer))
        finally:
            self._writers -= both
            for one in both:
                one.transport.abort()

    async def _pass(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Forward until either side ends; then end both."""
        with suppress(OSError):
            while data := await reader.read(int(self._bytes_per_second * _PIECE_SECONDS) or _CHUNK):
                await self._passing.wait()
                if self._delay:
                    await asyncio.sleep(self._delay)
                if self._bytes_per_second:
                    await asyncio.sleep(len(data) / self._bytes_per_second)
                writer.write(data)
                await writer.drain()
        writer.transport.abort()
