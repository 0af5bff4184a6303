"""Calls of user code from background threads, which must survive its exceptions."""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final

from reconsume.bridge.process.brokers_clock import monotonic_ms
from reconsume.bridge.process.clock import Clock
from reconsume.bridge.process.safe_logger import LimitedLogger

_QUIET_MS: Final = 60_000
"""The exceptions of a callback are logged once in this time."""


_here: Final = threading.local()


@contextmanager
def user_code() -> Iterator[None]:
    """Mark this thread while it calls code of a program, which must not wait for the end of this thread."""
    before = in_user_code()
    _here.calls = True
    try:
        yield
    finally:
        _here.calls = before


def in_user_code() -> bool:
    """Return whether one of our threads has called this code of a program."""
    return getattr(_here, "calls", False)


class UserCallbacks:
    """Calls user code; its exceptions are logged and change nothing.

    Args:
        kind: the kind of callback, such as `hook`.
        clock: returns milliseconds.
    """

    def __init__(self, kind: str, clock: Clock = monotonic_ms) -> None:
        self._kind = kind
        self._logger = LimitedLogger(__name__, clock, lines=1, per_ms=_QUIET_MS)

    def tell(self, name: str, call: Callable[[], object]) -> None:
        """Call a callback."""
        try:
            with user_code():
                call()
        except BaseException:  # not even a SystemExit may end a thread of the consumer
            self._logger.exception("%s %s raised, which changes nothing", self._kind, name)


def with_guarded(conf: Mapping[str, Any], names: Collection[str]) -> dict[str, Any]:
    """Return client settings with guarded callbacks, whose exceptions would otherwise leave the client's `poll`."""
    return dict(conf) | {name: _guarded(name, conf[name]) for name in names if callable(conf.get(name))}


def _guarded(name: str, callback: Callable[..., object]) -> Callable[..., None]:
    callbacks = UserCallbacks("conf's")
    return lambda *told: callbacks.tell(name, lambda: callback(*told))
