"""Child processes that no signal leaves behind."""

from __future__ import annotations

import signal
import subprocess
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from types import FrameType
from typing import Any, Final

_SIGNALS: Final = (signal.SIGINT, signal.SIGTERM)


@contextmanager
def child_process(command: Sequence[str], **options: Any) -> Iterator[subprocess.Popen[str]]:
    """Run a command during the block; kill it if the block raises, as handlers of signals do.

    A handler that raised within `Popen` would leave the process running, so handlers are called after the start.
    """
    child: subprocess.Popen[str] | None = None
    try:
        with _later_signals():
            child = subprocess.Popen(command, text=True, **options)
        yield child
    except BaseException:
        if child is not None:
            child.kill()
        raise
    finally:
        if child is not None:
            child.__exit__(None, None, None)  # closes the pipes and waits


@contextmanager
def _later_signals() -> Iterator[None]:
    """Call the handlers of signals after the block; only the main thread has any."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    came: list[tuple[int, FrameType | None]] = []
    handlers = {number: signal.getsignal(number) for number in _SIGNALS}
    handlers = {number: handler for number, handler in handlers.items() if callable(handler)}
    for one in handlers:
        signal.signal(one, lambda number, frame: came.append((number, frame)))
    try:
        yield
    finally:
        for one, handler in handlers.items():
            signal.signal(one, handler)
        for number, frame in came:
            handler = handlers[signal.Signals(number)]
            if callable(handler):
                handler(number, frame)
