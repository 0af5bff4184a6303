"""The end of a sidecar whose parts fail."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from reconsume.sidecar.process.process import Sidecar
from reconsume.sidecar.settings import ProcessSettings


class Part:
    def __init__(self, name: str, closed: list[str], error: Exception | None = None) -> None:
        self.name = name
        self.closed = closed
        self.error = error

    def start(self) -> None:
        """Nothing to start."""

    def close(self, seconds: float) -> None:
        assert seconds > 0
        self.closed.append(self.name)
        if self.error is not None:
            raise self.error


def test_a_part_that_fails_at_its_end_keeps_no_other_one_open() -> None:
    settings = ProcessSettings(
        bootstrap_servers="127.0.0.1:1",
        management={"port": 0},
        sidecar={"listen": {"port": 0}},
    )
    sidecar, closed, stop = Sidecar(settings), list[str](), threading.Event()
    real = sidecar._api
    parts: Any = [Part("api", closed), Part("first", closed), Part("second", closed, RuntimeError("a defect"))]
    sidecar._parts = parts
    stop.set()
    try:
        with pytest.raises(RuntimeError, match="a defect"):
            sidecar.run(stop)
    finally:
        real.close(0)
    assert closed == ["second", "first", "api"]
