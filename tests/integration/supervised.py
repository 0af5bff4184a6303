"""Programs that are started again whenever they end, as a kubelet does, and can be killed."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from tests.support.waiting import PATIENCE

__all__ = ["Supervised", "supervised"]


class Supervised:
    """One program; what it prints in all its lives stands in its log."""

    def __init__(self, command: Sequence[str], log: Path, environment: Mapping[str, str]) -> None:
        self._command = list(command)
        self._environment = os.environ | dict(environment)
        self._log = log
        self._process: subprocess.Popen[bytes] | None = None
        self.lives = 0

    @property
    def printed(self) -> str:
        return self._log.read_text(errors="replace") if self._log.exists() else ""

    def keep_running(self) -> None:
        """Start it, or start it again if it has ended."""
        if self._process is not None and self._process.poll() is None:
            return
        with self._log.open("ab") as out:
            self._process = subprocess.Popen(
                self._command, stdin=subprocess.DEVNULL, stdout=out, stderr=out, env=self._environment
            )
        self.lives += 1

    def kill(self) -> None:
        """As `kill -9`."""
        if self._process is not None:
            self._process.send_signal(signal.SIGKILL)
            self._process.wait(PATIENCE)


@contextmanager
def supervised(command: Sequence[str], log: Path, **environment: str) -> Iterator[Supervised]:
    """A program that runs, and is killed at the end."""
    one = Supervised(command, log, environment)
    one.keep_running()
    try:
        yield one
    finally:
        one.kill()
