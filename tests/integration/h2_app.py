"""An app that speaks HTTP/2 alone, by prior knowledge."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from h2.config import H2Configuration
from h2.connection import H2Connection
from h2.events import DataReceived, RequestReceived, StreamEnded

__all__ = ["H2App", "h2_app"]


@dataclass
class H2App:
    """Answers 200 to all; a body that begins with `late` gets 429 the first time.

    Attributes:
        connections: how many were made.
        seen: the headers and body of each request.
    """

    connections: int = 0
    seen: list[tuple[dict[str, str], bytes]] = field(default_factory=list)
    port: int = 0

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        try:
            await self._converse(reader, writer)
        finally:
            writer.transport.abort()

    async def _converse(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        h2 = H2Connection(H2Configuration(client_side=False, header_encoding="utf-8"))
        h2.initiate_connection()
        requests: dict[int, tuple[dict[str, str], bytes]] = {}
        while True:
            writer.write(h2.data_to_send())
            data = await reader.read(65_536)
            if not data:
                return
            for event in h2.receive_data(data):
                if isinstance(event, RequestReceived):
                    requests[event.stream_id] = ({str(name): str(value) for name, value in event.headers}, b"")
                elif isinstance(event, DataReceived):
                    h2.acknowledge_received_data(event.flow_controlled_length, event.stream_id)
                    headers, body = requests[event.stream_id]
                    requests[event.stream_id] = (headers, body + event.data)
                elif isinstance(event, StreamEnded):
                    self._answer(h2, event.stream_id, *requests.pop(event.stream_id))

    def _answer(self, h2: H2Connection, stream: int, headers: dict[str, str], body: bytes) -> None:
        late = body.startswith(b"late") and not any(body == one for _, one in self.seen)
        self.seen.append((headers, body))
        h2.send_headers(stream, [(":status", "429" if late else "200"), ("content-length", "0")], end_stream=True)


@contextmanager
def h2_app(socket: Path | None = None) -> Iterator[H2App]:
    """It runs in a thread of its own."""
    one, loop, started = H2App(), asyncio.new_event_loop(), threading.Event()

    async def listen() -> asyncio.Server:
        if socket is not None:
            return await asyncio.start_unix_server(one.serve, str(socket))
        server = await asyncio.start_server(one.serve, "127.0.0.1", 0)
        one.port = server.sockets[0].getsockname()[1]
        return server

    async def end() -> None:
        others = asyncio.all_tasks() - {asyncio.current_task()}
        for task in others:
            task.cancel()
        await asyncio.gather(*others, return_exceptions=True)
        await asyncio.sleep(0)  # connections that were aborted are told so

    def run() -> None:
        server = loop.run_until_complete(listen())
        started.set()
        loop.run_forever()
        server.close()
        loop.run_until_complete(end())
        loop.close()

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    assert started.wait(20)
    try:
        yield one
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join(20)
