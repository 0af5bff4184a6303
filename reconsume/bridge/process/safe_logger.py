"""Loggers for background threads: no log handler may end them, and no flood of failures may fill the log."""

from __future__ import annotations

import logging
import threading
from typing import Any

from reconsume.bridge.process.brokers_clock import monotonic_ms
from reconsume.bridge.process.clock import Clock


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
    """Limits lines of one kind in each period; further lines are DEBUG, and the next line names their number.

    Args:
        name: the logger's name.
        clock: returns milliseconds.
        lines: maximum of lines in a period.
        per_ms: length of a period; periods begin at multiples of it.
    """

    def __init__(self, name: str, clock: Clock = monotonic_ms, *, lines: int = 10, per_ms: int = 1_000) -> None:
        super().__init__(name)
        self._clock = clock
        self._lines = lines
        self._per_ms = per_ms
        self._lock = threading.Lock()
        self._period, self._said, self._unsaid = -1, 0, 0

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
        period = int(self._clock() // self._per_ms)
        with self._lock:
            if period != self._period:
                self._period, self._said = period, 0
            self._said += 1
            if self._said > self._lines:
                self._unsaid += 1
                return None
            unsaid, self._unsaid = self._unsaid, 0
            return unsaid
