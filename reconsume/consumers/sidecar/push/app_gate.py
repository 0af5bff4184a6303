"""Whether the app is there: while it is not, nothing is delivered but one probe at a time."""

from __future__ import annotations

import asyncio
import logging
from typing import Final

from reconsume.bridge.clock import Clock, now_ms
from reconsume.consumers.outcomes import NotNow

__all__ = ["AppGate"]

logger = logging.getLogger(__name__)

_FIRST_PAUSE_MS: Final = 100
_LONGEST_PAUSE_MS: Final = 5_000
_RED_PAUSE_MS: Final = 500


class AppGate:
    """All of it in one event loop.

    Guarantees:
        1. While the app is down, one delivery at a time tries it; the pause between two doubles, up to 5 s.
        2. Any answer of the app opens it for all.

    Args:
        group: for the log.
        clock: gives milliseconds.
    """

    def __init__(self, group: str, clock: Clock = now_ms) -> None:
        self._group = group
        self._clock = clock
        self._down_since: float | None = None
        self._pause_ms = _FIRST_PAUSE_MS
        self._next_probe = 0.0
        self._probe: asyncio.Future[None] | None = None
        self._red: str | None = None

    @property
    def down_since(self) -> float | None:
        """Since when the app could not be asked, in milliseconds; None if it can."""
        return self._down_since

    async def enter(self) -> bool:
        """Wait for a probe that is under way, or become the next one; whether it has, `leave` must be told.

        Raises:
            NotNow: the app is down.
        """
        while self._down_since is not None:
            if self._probe is not None:
                await asyncio.shield(self._probe)
            elif self._red is None and self._clock() >= self._next_probe:
                self._probe = asyncio.get_running_loop().create_future()
                return True
            else:
                raise NotNow(self._next_probe if self._red is None else self._clock() + _RED_PAUSE_MS)
        return False

    def leave(self, *, probe: bool) -> None:
        """A delivery that entered has ended, whatever its outcome."""
        if probe and self._probe is not None:
            ended, self._probe = self._probe, None
            ended.set_result(None)

    def answered(self) -> None:
        """The app is there."""
        if self._down_since is None or self._red is not None:
            return
        logger.warning("group %s: the app answers again, after %.1f s", self._group, self._seconds_down())
        self._down_since, self._pause_ms = None, _FIRST_PAUSE_MS

    def is_away(self, reason: str, *, probe: bool) -> NotNow:
        """The app could not be asked; gives when the message is tried again."""
        now = self._clock()
        if self._down_since is None:
            self._down_since, self._pause_ms = now, _FIRST_PAUSE_MS
            logger.warning("group %s: the app does not answer, deliveries wait: %s", self._group, reason)
        elif probe:
            self._pause_ms = min(self._pause_ms * 2, _LONGEST_PAUSE_MS)
        else:  # one of those that were under way when it went
            return NotNow(self._next_probe)
        self._next_probe = now + self._pause_ms
        return NotNow(self._next_probe)

    def turned_red(self, reason: str) -> None:
        """The app's own probe says that it is not ready; only that makes it green again."""
        self._red = reason
        if self._down_since is None:
            self.is_away(reason, probe=False)

    def turned_green(self) -> None:
        """The app's own probe says that it is ready."""
        if self._red is not None:
            self._red = None
            self.answered()

    def _seconds_down(self) -> float:
        return 0.0 if self._down_since is None else (self._clock() - self._down_since) / 1000
