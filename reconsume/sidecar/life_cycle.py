"""The life of one sidecar process: starting, running, quiescing; and what its parts have to be able to do."""

from __future__ import annotations

import enum
import logging
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol

logger = logging.getLogger(__name__)


class Phase(enum.Enum):
    """Where a process is in its life; it never goes back."""

    STARTING = "starting"
    RUNNING = "running"
    QUIESCING = "quiescing"


class Life:
    """Safe to use from several threads.

    A quiescing process begins no delivery any more and finishes those that have begun; it still takes send-backs,
    because the app beside it needs them for what it has in hand.

    Attributes:
        phase: where it is now.
        in_flight: how many deliveries have begun and not ended.
    """

    def __init__(self) -> None:
        self.phase = Phase.STARTING
        self.in_flight = 0
        self._changed = threading.Condition()

    def run(self) -> None:
        """All parts have started; without effect once it quiesces."""
        with self._changed:
            if self.phase is Phase.STARTING:
                self.phase = Phase.RUNNING

    def quiesce(self) -> None:
        """Begin no further delivery; it may be said again and again."""
        with self._changed:
            if self.phase is not Phase.QUIESCING:
                logger.info("quiescing: no new deliveries, %d in flight", self.in_flight)
            self.phase = Phase.QUIESCING

    @property
    def is_quiescing(self) -> bool:
        """Whether the end has begun."""
        return self.phase is Phase.QUIESCING

    @contextmanager
    def delivery(self) -> Iterator[None]:
        """Around each delivery."""
        with self._changed:
            self.in_flight += 1
        try:
            yield
        finally:
            with self._changed:
                self.in_flight -= 1
                self._changed.notify_all()

    def wait_drained(self, seconds: float) -> bool:
        """Wait until no delivery is in flight; False if some still are after so long."""
        with self._changed:
            return self._changed.wait_for(lambda: self.in_flight == 0, max(0.0, seconds))


class ProcessPart(Protocol):
    """Anything that the process runs: the API, a push subscription."""

    def start(self) -> None:
        """Begin; returns when it is begun.

        Raises:
            ReconsumeError: it cannot; the process ends.
        """

    def close(self, seconds: float) -> None:
        """End in order, within so long; unfinished messages stay uncommitted then."""

    def is_alive(self) -> bool:
        """Whether it works or waits; False if only a restart of the process would make it go on."""

    def checks(self) -> dict[str, str | None]:
        """Return the problems by the name of the check; None where all is well. A red app is no problem."""
