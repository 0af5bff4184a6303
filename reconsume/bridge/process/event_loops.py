"""Event loops and the threads beside them."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from typing import TypeVar

__all__ = ["future_of", "takes_turns"]

T = TypeVar("T")


def takes_turns(loop: asyncio.AbstractEventLoop, seconds: float) -> bool:
    """Whether it gets to what is put into it, within so long; one that has ended does not."""
    turned = threading.Event()
    try:
        loop.call_soon_threadsafe(turned.set)
    except RuntimeError:  # it is closed
        return False
    return turned.wait(seconds)


def future_of(begin: Callable[[Callable[[T | Exception], None]], object]) -> asyncio.Future[T]:
    """Begin a call that tells its result later, in any thread; return a future of the running loop for it.

    An exception is told as it is. When the loop has ended nobody waits for the result any more.
    """
    loop = asyncio.get_running_loop()
    future: asyncio.Future[T] = loop.create_future()

    def settle(result: T | Exception) -> None:
        if future.done():
            return
        if isinstance(result, Exception):
            future.set_exception(result)
        else:
            future.set_result(result)

    def tell(result: T | Exception) -> None:
        if not loop.is_closed():
            loop.call_soon_threadsafe(settle, result)

    begin(tell)
    return future
