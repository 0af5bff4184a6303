"""Processes under test: start, kill, stop, and their logs."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Self

from reconsume.bridge.process.environment import without_settings

_END_SECONDS: Final = 60.0


@dataclass
class UnderTest:
    """A program that is restarted under one name.

    Attributes:
        name: its name, and that of its log.
        command: the command line.
        folder: the folder of the log.
    """

    name: str
    command: Sequence[str]
    folder: Path
    _process: subprocess.Popen[bytes] | None = None

    @property
    def log(self) -> Path:
        """The output of all its starts."""
        return self.folder / f"{self.name}.log"

    @property
    def pid(self) -> int | None:
        """The process id of its current start."""
        return None if self._process is None else self._process.pid

    @property
    def has_ended(self) -> bool:
        """Whether it was started and has ended by itself."""
        return self._process is not None and self._process.poll() is not None

    def start(self) -> None:
        """Start it; on Linux it dies with the calling thread."""
        guard = (sys.executable, "-P", "-m", "reconsume.cli.broker.guard", "--exec", str(os.getpid()))
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                [*guard, *self.command],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                env=without_settings(os.environ),
            )

    def kill(self) -> None:
        """Kill it (SIGKILL)."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def end(self) -> None:
        """Stop it (SIGTERM) and wait; after a minute kill it."""
        if self._process is not None:
            self._process.terminate()
            with suppress(subprocess.TimeoutExpired):
                self._process.wait(_END_SECONDS)
            self.kill()

    def stop(self) -> None:
        """Freeze it (SIGSTOP)."""
        if self._process is not None:
            self._process.send_signal(signal.SIGSTOP)

    def go_on(self) -> None:
        """Continue it (SIGCONT)."""
        if self._process is not None:
            self._process.send_signal(signal.SIGCONT)


@dataclass
class Processes:
    """All processes under test, which end with this context.

    Attributes:
        poisoned: the consumer of the poisoned group.
        ended: names of processes that ended by themselves; each was restarted.
    """

    schedulers: list[UnderTest]
    consumers: list[UnderTest]
    sidecars: list[UnderTest] = field(default_factory=list)
    apps: list[UnderTest] = field(default_factory=list)
    poisoned: list[UnderTest] = field(default_factory=list)
    ended: list[str] = field(default_factory=list)

    def __enter__(self) -> Self:
        for one in self.all():
            one.start()
        return self

    def __exit__(self, *_: object) -> None:
        for one in self.all():
            one.kill()

    def all(self) -> list[UnderTest]:
        """Return all processes under test."""
        return [*self.schedulers, *self.consumers, *self.sidecars, *self.apps, *self.poisoned]

    def revive(self) -> None:
        """Restart processes that have ended by themselves, and note them: a fault is no reason to end."""
        for one in self.all():
            if one.has_ended:
                self.ended.append(one.name)
                one.start()
