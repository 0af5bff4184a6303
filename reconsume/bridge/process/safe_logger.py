"""Loggers for background threads: no log handler may end them, and no flood of failures may fill the log."""

from __future__ import annotations

import logging
import threading
from typing import Any, Final

from reconsume.bridge.process.brokers_clock import monotonic_ms
from reconsume.bridge.process.clock import Clock

_LINES_A_SECOND: Final = 10


class SafeLogger(logging.LoggerAdapter[logging.Logger]):
    """Logs as `logging.Logger` does, and never raises what a handler, a filter or the text of an argument raises.

    The message is lost then: a program whose handlers fail cannot be told.
    Test: tests/unit/bridge/process/test_safe_logger.py.

    Args:
        name: the logger's name, as for `logging.getLogger`.
    """

    def __init__(self, name: str) -> None:
        super().__init__(logging.getLogger(name), {})

    def log(self, level: int, msg: object, *args: object, **kwargs: Any) -> None:
        """Log a message; all other methods call this one."""
        try:
            super().log(level, msg, *args, **kwargs | {"stacklevel": kwargs.get("stacklevel", 1) + 1})
        except KeyboardInterrupt:
            raise  # it concerns the program, not the handler
        except BaseException:  # noqa: BLE001, S110 - not even a SystemExit may end the thread
            pass


class LimitedLogger(SafeLogger):
    """Logs at most 10 lines of one kind a second; further lines are DEBUG, and the next line names their number.

    Args:
        name: the logger's name.
        clock: returns milliseconds.
    """

    def __init__(self, name: str, clock: Clock = monotonic_ms) -> None:
        super().__init__(name)
        self._clock = clock
        self._lock = threading.Lock()
        self._second, self._said, self._unsaid = -1, 0, 0

    def log(self, level: int, msg: object, *args: object, **kwargs: Any) -> None:
        """Log a message; all other methods call this one."""
        if not self.isEnabledFor(level):
            return
        unsaid = self._admit()
        if unsaid:
            msg, args = f"{msg}; %d more such lines were left out", (*args, unsaid)
        admitted = logging.DEBUG if unsaid is None else level
        super().log(admitted, msg, *args, **kwargs | {"stacklevel": kwargs.get("stacklevel", 1) + 1})

    def _admit(self) -> int | None:
        """Return None if the line exceeds the limit, else the number of suppressed lines before it."""
        second = int(self._clock() // 1_000)
        with self._lock:
            if second != self._second:
                self._second, self._said = second, 0
            self._said += 1
            if self._said > _LINES_A_SECOND:
                self._unsaid += 1
                return None
            unsaid, self._unsaid = self._unsaid, 0
            return unsaid
