"""Event loops and threads."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import TypeVar

T = TypeVar("T")


def takes_turns(loop: asyncio.AbstractEventLoop, seconds: float) -> bool:
    """Return whether the loop runs a callback within `seconds`; False for a closed loop."""
    turned = threading.Event()
    try:
        loop.call_soon_threadsafe(turned.set)
    except RuntimeError:  # the loop is closed
        return False
    return turned.wait(seconds)


def future_of(begin: Callable[[Callable[[T | Exception], None]], object]) -> asyncio.Future[T]:
    """Start a call that reports its result later, in any thread; return a future of the running loop for it.

    An exception is passed on. A result after the end of the loop is ignored.
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
        with suppress(RuntimeError):  # the loop is closed
            loop.call_soon_threadsafe(settle, result)

    begin(tell)
    return future
