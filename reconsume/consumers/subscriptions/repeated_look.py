"""Repeats a request to the cluster in a background thread."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Final, Generic, TypeVar

from reconsume.bridge.process.safe_logger import SafeLogger
from reconsume.delay_levels.errors import KafkaNotReachable, ReconsumeError, TopicNotReady

logger = SafeLogger(__name__)

T = TypeVar("T")

EVERY_SECONDS: Final = 10.0
"""The interval at which our consumers refresh their metadata."""
_AGAIN_SECONDS: Final = 2.0
_WAIT_SECONDS: Final = 0.5


class RepeatedLook(Generic[T]):
    """The latest answer to a repeated request; waits for an unreachable cluster, and logs that.

    Args:
        look: asks the cluster; may block.
        what: the subject, for the log.
        stop: set by `close`; ends the request in flight, as that of a `KafkaAdmin` with this event.
    """

    def __init__(self, look: Callable[[], T], what: str, stop: threading.Event) -> None:
        self._look = look
        self._what = what
        self._answered = threading.Event()
        self._stop = stop
        self._failure: ReconsumeError | None = None
        self._latest: T | None = None
        self._thread = threading.Thread(target=self._run, name="reconsume-lookout", daemon=True)

    @property
    def latest(self) -> T | None:
        """Return the last answer; the same object until there is a new one, None before the first."""
        return self._latest

    def start(self, stop: threading.Event) -> None:
        """Start, and wait for the first answer or for `stop`.

        Raises:
            ReconsumeError: the cluster refused the first request.
        """
        self._thread.start()
        while not stop.is_set() and not self._answered.wait(_WAIT_SECONDS):
            pass
        if self._failure is not None:
            raise self._failure

    def close(self) -> None:
        """Stop; wait for the thread, but not for Kafka."""
        self._stop.set()
        if self._thread.is_alive():
            self._thread.join()

    def _run(self) -> None:
        while not self._stop.is_set():
            try:
                self._latest = self._look()
                self._answered.set()
            except (KafkaNotReachable, TopicNotReady) as error:  # a leader may not know a new topic for a moment
                if self._stop.is_set():
                    return
                logger.warning("%s: waiting for Kafka: %s", self._what, error)
            except ReconsumeError as error:
                if not self._answered.is_set():
                    self._failure = error
                    self._answered.set()
                    return
                logger.warning("%s: %s; using earlier values", self._what, error)
            except Exception:
                # Without this line nobody would notice that new ones are no longer found.
                logger.exception("%s: trying again", self._what)
            self._stop.wait(EVERY_SECONDS if self._answered.is_set() else _AGAIN_SECONDS)
