"""Calls listeners one after the other, between two turns of a loop."""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import Awaitable, Callable, Iterator
from typing import Generic, TypeVar

from reconsume.consumers.listeners.listener_pool import survive

T = TypeVar("T")


class SteppedPool(Generic[T]):
    """Queues calls for later steps."""

    def __init__(self, work: deque[Callable[[], None]], consume: Callable[[T], None]) -> None:
        self._work = work
        self._consume = consume
        self._closed = False

    def submit(self, chunk: T) -> None:
        """Call the listener in a later step."""
        self._work.append(lambda: None if self._closed else self._consume(chunk))

    def submit_all(self, chunks: Iterator[T]) -> None:
        """Call the listener for each in a later step."""
        for chunk in chunks:
            self.submit(chunk)

    def wait_while(self, is_full: Callable[[], bool], seconds: float) -> None:
        """Return False at once: no listener runs in between."""

    def stop(self) -> None:
        """Call no more listeners."""
        self._closed = True

    def is_working(self) -> bool:
        """Return False: calls end before anything else begins."""
        return False

    def close(self, seconds: float) -> bool:
        """Call no more listeners."""
        del seconds
        self.stop()
        return True


class ListenerEventLoop:
    """One event loop, in its own thread, for all `async def` listeners, so that the test may have its own loop."""

    def __init__(self) -> None:
        self._is_over = False
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run, name="reconsume-listeners", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        survive(self._loop.run_forever, lambda: self._is_over)

    def run(self, coroutine: Awaitable[None]) -> None:
        """Run a coroutine to its end."""
        asyncio.run_coroutine_threadsafe(_awaited(coroutine), self._loop).result()

    def close(self) -> None:
        """End the thread."""
        self._is_over = True
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()


async def _awaited(one: Awaitable[None]) -> None:
    await one
