"""pytest looks through all loggers before each step of a test; meanwhile threads make new ones."""

from __future__ import annotations

import logging
from uuid import uuid4

import pytest
from _pytest.logging import catching_logs


class _Busy(logging.Logger):
    """Who looks at it finds one logger more."""

    @property
    def propagate(self) -> bool:
        logging.getLogger(f"of_a_thread.{uuid4()}")
        return True

    @propagate.setter
    def propagate(self, value: bool) -> None:
        pass


def test_a_logger_may_be_made_while_pytest_looks_through_them(monkeypatch: pytest.MonkeyPatch) -> None:
    busy = _Busy("busy")
    monkeypatch.setitem(logging.root.manager.loggerDict, "busy", busy)
    with catching_logs(logging.NullHandler()) as handler:
        assert handler in logging.root.handlers
