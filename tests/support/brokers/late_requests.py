"""A TCP proxy that keeps one request back, so that its client sends it again, and gives it to the broker later."""

from __future__ import annotations

import asyncio
import struct
import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Final, Self

__all__ = ["END_TXN", "PRODUCE", "TXN_OFFSET_COMMIT", "LateRequests"]

PRODUCE: Final = 0
END_TXN: Final = 26
TXN_OFFSET_COMMIT: Final = 28
_HOST: Final = "127.0.0.1"
_SIZE: Final = struct.Struct(">i")
_REQUEST: Final = struct.Struct(">hhi")
"""Api key, version, correlation id."""


@dataclass(eq=False)
class _Connection:
    client: tuple[asyncio.StreamReader, asyncio.StreamWriter]
    broker: tuple[asyncio.StreamReader, asyncio.StreamWriter]
    asked: dict[int, int] = field(default_factory=dict)
    answers: asyncio.Task[None] | None = None


class LateRequests:
    """Such a proxy; use it as a context. What real networks do with a packet, it does with a request.

    Args:
        port: to listen on.
        target: port of the broker.
        silent_seconds: from the moment that a request is kept until its client's connection is reset.
    """

    def __init__(self, port: int, target: int, silent_seconds: float) -> None:
        self._port = port
        self._target = target
        self._silent_seconds = silent_seconds
        self._loop = asyncio.new_event_loop()
        self._keep: int | None = None
        self._before: int | None = None
        self._kept: tuple[_Connection, bytes] | None = None
        self._ended = False
        self._produced = asyncio.Event()
        self._connections: list[_Connection] = []
        self._listening = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"late-requests-{port}", daemon=True)
        self.was_late = False

    def __enter__(self) -> Self:
        self._thread.start()
        assert self._listening.wait(10)
        return self

    def __exit__(self, *_: object) -> None:
        self._do(self._stop.set)
        self._thread.join()

    def keep_next(self, api_key: int, before: int) -> None:
        """Keep the next request of this kind; the other kind of the next transaction comes after it."""

        def arm() -> None:
            self._keep, self._before = api_key, before

        self._do(arm)

    def _do(self, act: Callable[[], object]) -> None:
        self._loop.call_soon_threadsafe(act)

    def _run(self) -> None:
        self._loop.run_until_complete(self._serve())
        self._loop.close()

    async def _serve(self) -> None:
        self._stop = asyncio.Event()
        server = await asyncio.start_server(self._connected, _HOST, self._port)
        self._listening.set()
        await self._stop.wait()
        server.close()
        for one in self._connections:
            one.client[1].transport.abort()
            one.broker[1].transport.abort()
        tasks = [one for one in asyncio.all_tasks() if one is not asyncio.current_task()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        one = _Connection((reader, writer), await asyncio.open_connection(_HOST, self._target))
        self._connections.append(one)
        one.answers = asyncio.create_task(self._pass_answers(one))
        with suppress(OSError, asyncio.IncompleteReadError, asyncio.CancelledError):
            await self._pass_requests(one)
        if self._kept is None or self._kept[0] is not one:
            one.broker[1].transport.abort()

    async def _pass_requests(self, one: _Connection) -> None:
        while True:
            frame = await _frame(one.client[0])
            key, _, correlation = _REQUEST.unpack_from(frame, _SIZE.size)
            one.asked[correlation] = key
            if key == self._keep:
                self._keep, self._kept, self._ended = None, (one, frame), False
                self._produced.clear()
                await asyncio.sleep(self._silent_seconds)
                assert one.answers is not None
                one.answers.cancel()
                one.client[1].transport.abort()
                return
            if key == self._before and self._kept is not None and self._ended:
                # What follows on this connection must pass: librdkafka sends offsets before it sends records.
                self._late = asyncio.create_task(self._give_late(*self._kept, one, frame))
                self._kept = None
            else:
                one.broker[1].write(frame)

    async def _give_late(self, kept: _Connection, late: bytes, one: _Connection, frame: bytes) -> None:
        await self._produced.wait()
        kept.broker[1].write(late)
        await _frame(kept.broker[0])
        kept.broker[1].transport.abort()
        self.was_late = True
        one.broker[1].write(frame)

    async def _pass_answers(self, one: _Connection) -> None:
        with suppress(OSError, asyncio.IncompleteReadError):
            while True:
                frame = await _frame(one.broker[0])
                (correlation,) = _SIZE.unpack_from(frame, _SIZE.size)
                one.client[1].write(frame)
                key = one.asked.pop(correlation, None)
                if key == END_TXN:
                    self._ended = True
                elif key == PRODUCE and self._ended:
                    self._produced.set()
        one.client[1].transport.abort()


async def _frame(reader: asyncio.StreamReader) -> bytes:
    size = await reader.readexactly(_SIZE.size)
    return size + await reader.readexactly(_SIZE.unpack(size)[0])
