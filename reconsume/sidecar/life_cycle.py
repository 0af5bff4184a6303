"""The life cycle of a sidecar process, and the interface of its parts."""

from __future__ import annotations

import enum
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol

from reconsume.bridge.process.safe_logger import SafeLogger

logger = SafeLogger(__name__)


class Phase(enum.Enum):
    """The phase of a process; it only moves forward."""

    STARTING = "starting"
    RUNNING = "running"
    QUIESCING = "quiescing"


class Life:
    """The life cycle. Safe to use from several threads.

    A quiescing process starts no more deliveries and finishes the running ones. It still accepts send-backs, because
    the app beside it needs them for its messages in progress.

    Attributes:
        phase: the current phase.
        in_flight: the number of running deliveries.
    """

    def __init__(self) -> None:
        self.phase = Phase.STARTING
        self.in_flight = 0
        self._changed = threading.Condition()

    def run(self) -> None:
        """Note that all parts have started; without effect while quiescing."""
        with self._changed:
            if self.phase is Phase.STARTING:
                self.phase = Phase.RUNNING

    def quiesce(self) -> None:
        """Start no more deliveries; repeated calls are harmless."""
        with self._changed:
            if self.phase is not Phase.QUIESCING:
                logger.info("quiescing: no new deliveries, %d in flight", self.in_flight)
            self.phase = Phase.QUIESCING

    @property
    def is_quiescing(self) -> bool:
        """Return whether the process is quiescing."""
        return self.phase is Phase.QUIESCING

    @contextmanager
    def delivery(self) -> Iterator[None]:
        """Count a delivery while the block runs."""
        with self._changed:
            self.in_flight += 1
        try:
            yield
        finally:
            with self._changed:
                self.in_flight -= 1
                self._changed.notify_all()

    def wait_drained(self, seconds: float) -> bool:
        """Wait until no delivery runs; False if some still run after `seconds`."""
        with self._changed:
            return self._changed.wait_for(lambda: self.in_flight == 0, max(0.0, seconds))


class ProcessPart(Protocol):
    """A part of the process, such as the API or a push subscription."""

    def start(self) -> None:
        """Start; return when the part works.

        Raises:
            ReconsumeError: it cannot start; the process ends.
        """

    def close(self, seconds: float) -> None:
        """End in order within `seconds`; unfinished messages stay uncommitted."""

    def is_alive(self) -> bool:
        """Return whether the part works or waits; False if only a restart of the process helps."""

    def checks(self) -> dict[str, str | None]:
        """Return problems by the name of the check, None for a passed check. An unhealthy app is not a problem."""
