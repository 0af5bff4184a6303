"""A workaround for pytest: a test fails if another thread makes a logger while pytest looks through all of them.

It can go when `catching_logs.__enter__` of _pytest/logging.py goes through a copy (9.2.0 does not).
"""

from __future__ import annotations

import logging
from typing import Any

__all__ = ["let_threads_make_loggers"]


class _Loggers(dict[str, Any]):
    """Python's loggers by name, whose values are those of one moment."""

    def values(self) -> Any:
        return self.copy().values()


def let_threads_make_loggers() -> None:
    """From now on whoever goes through all loggers goes through a copy."""
    manager = logging.root.manager
    if not isinstance(manager.loggerDict, _Loggers):
        manager.loggerDict = _Loggers(manager.loggerDict)
