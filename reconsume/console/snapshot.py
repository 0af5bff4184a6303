"""The state of the whole installation, read in the background, so that no page waits for Kafka."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from reconsume.bridge.groups.groups import Groups
from reconsume.bridge.process.safe_logger import SafeLogger
from reconsume.delay_levels.errors import ReconsumeError
from reconsume.operations.dead_letter_index.letters import OpenLetters
from reconsume.operations.jobs.records import Job
from reconsume.operations.status import Status

logger = SafeLogger(__name__)

_EVERY_SECONDS: Final = 2.0
_IDLE_EVERY_SECONDS: Final = 15.0
_IDLE_SECONDS: Final = 60.0
"""After this time without a page the installation is read less often."""
_LOAD: Final = 2.0
"""The pause as a multiple of the last reading's duration: a large installation is read less often."""
_FIRST_SECONDS: Final = 0.15
"""How long a page waits for the first reading: the first page takes less than 300 ms, whatever the cluster."""


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The installation at one moment.

    Attributes:
        open_letters: open dead letters by group; None while the index is incomplete.
        new_by_hour: dead letters of the last 24 hours by group and hour, oldest first; None while it is incomplete.
        jobs: the jobs, newest first.
        now_ms: the time of the reading, by the clock of this machine.
        schedulers: names of live workers; None if unknown.
        trouble: why it is not newer; empty if it is current.
    """

    status: Status
    groups: Groups
    open_letters: Mapping[str, OpenLetters] | None = None
    new_by_hour: Mapping[str, Sequence[int]] | None = None
    jobs: Sequence[Job] = ()
    now_ms: float = 0
    schedulers: Sequence[str] | None = None
    trouble: str = ""


class Snapshots:
    """Reads the installation repeatedly, more often while pages are requested.

    Args:
        read: reads Kafka and the index; may raise `ReconsumeError`.
        clock: monotonic seconds.
    """

    def __init__(self, read: Callable[[], Snapshot], clock: Callable[[], float] = time.monotonic) -> None:
        self._read = read
        self._clock = clock
        self._latest: Snapshot | None = None
        self._refused: ReconsumeError | None = None
        self._asked_at = float("-inf")
        self._looked_at = float("-inf")
        self._reading = threading.Lock()
        self._begun = threading.Event()
        self._wake = threading.Event()

    def run(self, stop: threading.Event) -> None:
        """Read until told to stop."""
        while not stop.is_set():
            begun = self._clock()
            self._wake.clear()
            self.look()
            took = self._clock() - begun
            is_idle = begun - self._asked_at > _IDLE_SECONDS
            self._wake.wait(max(_IDLE_EVERY_SECONDS if is_idle else _EVERY_SECONDS, _LOAD * took))

    def look(self) -> None:
        """Read once; after a failure the previous reading stays."""
        with self._reading:
            self._look()

    def fresh(self) -> Snapshot | None:
        """Return a reading that began at most two seconds before the call, for recent changes.

        Raises:
            ReconsumeError: no reading has succeeded.
        """
        asked_at = self._clock()
        with self._reading:
            if asked_at - self._looked_at > _EVERY_SECONDS:
                self._look()
        return self.latest()

    def _look(self) -> None:
        self._looked_at = self._clock()
        try:
            self._latest, self._refused = self._read(), None
        except ReconsumeError as error:
            if str(error) != str(self._refused):
                logger.warning("installation not read: %s", error)
            self._refused = error
        except Exception as error:
            # Without this thread the pages would show an old status as the current one.
            logger.exception("installation not read")
            self._refused = ReconsumeError(
                f"the installation was not read: {type(error).__name__}: {error}; see the log"
            )
        self._begun.set()

    def wake(self) -> None:
        """Read again soon, after a change or at the end of the process."""
        self._wake.set()

    def latest(self) -> Snapshot | None:
        """Return the last reading; None before the first one.

        Raises:
            ReconsumeError: no reading has succeeded.
        """
        if self._clock() - self._asked_at > _EVERY_SECONDS + _IDLE_SECONDS:
            self._wake.set()
        self._asked_at = self._clock()
        self._begun.wait(_FIRST_SECONDS)
        refused, latest = self._refused, self._latest
        if latest is None and refused is not None:
            # A new error each time: threads that raise the same one would add to its traceback.
            raise type(refused)(str(refused))
        return latest if latest is None or refused is None else replace(latest, trouble=str(refused))
