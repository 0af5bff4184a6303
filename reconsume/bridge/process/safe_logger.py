"""A logger for background threads, which no log handler may end."""

from __future__ import annotations

import logging
from typing import Any


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
