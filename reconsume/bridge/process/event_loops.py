"""Whether an event loop takes turns, asked from another thread."""

from __future__ import annotations

import asyncio
import threading

__all__ = ["takes_turns"]


def takes_turns(loop: asyncio.AbstractEventLoop, seconds: float) -> bool:
    """Whether it gets to what is put into it, within so long; one that has ended does not."""
    turned = threading.Event()
    try:
        loop.call_soon_threadsafe(turned.set)
    except RuntimeError:  # it is closed
        return False
    return turned.wait(seconds)
