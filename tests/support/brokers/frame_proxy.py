"""A TCP proxy before a broker that sees whole requests and answers of Kafka's protocol."""

from __future__ import annotations

import asyncio
import struct
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any, Final, Self, TypeVar

from reconsume.cli.broker.jars import NEWEST_KAFKA_VERSION
from reconsume.cli.chaos.cluster.brokers import ChaosCluster
from tests.support.waiting import PATIENCE

__all__ = ["Connection", "FrameProxy", "api_and_correlation", "correlation", "proxied_cluster"]

_HOST: Final = "127.0.0.1"
_SIZE: Final = struct.Struct(">i")
_REQUEST: Final = struct.Struct(">hhi")
"""Api key, version, correlation id."""


class Connection:
    """A client's connection and its own to the broker; `asked` is for the proxy, by correlation id."""

    def __init__(self, client: _Streams, broker: _Streams) -> None:
        (self._from_client, self._to_client), (self._from_broker, self._to_broker) = client, broker
        self.asked: dict[int, Any] = {}
        self.answers: asyncio.Task[None] | None = None

    async def request(self) -> bytes:
        """Return the client's next request with its size."""
        return await _frame(self._from_client)

    async def answer(self) -> bytes:
        """Return the broker's next answer with its size."""
        return await _frame(self._from_broker)

    def pass_request(self, frame: bytes) -> None:
        """Give a request to the broker."""
        self._to_broker.write(frame)

    def pass_answer(self, frame: bytes) -> None:
        """Give an answer to the client."""
        self._to_client.write(frame)

    def reset_client(self) -> None:
        """Reset the client's connection; the broker's stays."""
        self._to_client.transport.abort()

    def reset_broker(self) -> None:
        """Reset the broker's connection; the client's stays."""
        self._to_broker.transport.abort()


class FrameProxy:
    """Such a proxy, in a background thread; use it as a context.

    Args:
        port: to listen on.
        target: port of the broker.
    """

    def __init__(self, port: int, target: int) -> None:
        self._port = port
        self._target = target
        self._loop = asyncio.new_event_loop()
        self._connections: list[Connection] = []
        self._listening = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"frames-{port}", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        assert self._listening.wait(PATIENCE)
        return self

    def __exit__(self, *_: object) -> None:
        self._do(self._stop.set)
        self._thread.join()

    async def pass_requests(self, one: Connection) -> None:
        """Read the client's requests until it ends."""
        raise NotImplementedError

    async def pass_answers(self, one: Connection) -> None:
        """Read the broker's answers until it ends."""
        raise NotImplementedError

    def is_needed(self, one: Connection) -> bool:  # noqa: ARG002 - for those that keep one
        """Return whether the connection to the broker stays when its client has ended."""
        return False

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
            one.reset_client()
            one.reset_broker()
        tasks = [one for one in asyncio.all_tasks() if one is not asyncio.current_task()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        one = Connection((reader, writer), await asyncio.open_connection(_HOST, self._target))
        self._connections.append(one)
        one.answers = asyncio.create_task(self._answers(one))
        with suppress(OSError, asyncio.IncompleteReadError, asyncio.CancelledError):
            await self.pass_requests(one)
        if not self.is_needed(one):
            one.reset_broker()

    async def _answers(self, one: Connection) -> None:
        with suppress(OSError, asyncio.IncompleteReadError):
            await self.pass_answers(one)
        one.reset_client()


def api_and_correlation(request: bytes) -> tuple[int, int]:
    """Return a request's api key and correlation id."""
    key, _, number = _REQUEST.unpack_from(request, _SIZE.size)
    return key, number


def correlation(answer: bytes) -> int:
    """Return an answer's correlation id."""
    (number,) = _SIZE.unpack_from(answer, _SIZE.size)
    return int(number)


P = TypeVar("P", bound=FrameProxy)


@contextmanager
def proxied_cluster(proxy: Callable[[int, int], P]) -> Iterator[tuple[ChaosCluster, P]]:
    """Run a broker of the newest Kafka behind such a proxy, made from its port and the broker's."""
    cluster = ChaosCluster(1, version=NEWEST_KAFKA_VERSION)
    (broker,) = cluster.brokers
    one = proxy(broker.proxied, broker.proxy._target)
    broker.proxy._loop.close()
    broker.proxy = one  # type: ignore[assignment]
    with cluster:
        yield cluster, one


_Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]


async def _frame(reader: asyncio.StreamReader) -> bytes:
    size = await reader.readexactly(_SIZE.size)
    return size + await reader.readexactly(_SIZE.unpack(size)[0])
