"""Whether the app is there: while it is not, nothing is delivered but one probe at a time."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Final, NamedTuple

from reconsume.bridge.process.clock import Clock, now_ms
from reconsume.consumers.listener import NotNow
from reconsume.sidecar.push.cut_offs import CutOffs

__all__ = ["AppGate", "Entry"]

logger = logging.getLogger(__name__)

_FIRST_PAUSE_MS: Final = 100
_LONGEST_PAUSE_MS: Final = 5_000
_RED_PAUSE_MS: Final = 500
_YIELD_MS: Final = 500


class Entry(NamedTuple):
    """How a delivery entered.

    Attributes:
        probe: it tries an app that is down.
        alone: the app has no other request until it leaves.
    """

    probe: bool
    alone: bool


class AppGate:
    """All of it in one event loop.

    Guarantees:
        1. While the app is down, one delivery at a time tries it; the pause between two doubles, up to 5 s.
        2. Any answer of the app opens it for all.
        3. A message that was cut off again and again is delivered alone, see `CutOffs`.

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
        self._cut_offs = CutOffs()
        self._in_flight = 0
        self._alone: asyncio.Future[None] | None = None
        self._empty: asyncio.Future[None] | None = None

    @property
    def down_since(self) -> float | None:
        """Since when the app could not be asked, in milliseconds; None if it can."""
        return self._down_since

    async def enter(self, message_id: Callable[[], str]) -> Entry:
        """Wait for a probe that is under way, or become the next one; `leave` must be told.

        Args:
            message_id: gives the id of the message, the same over all its retries.

        Raises:
            NotNow: the app is down.
        """
        while True:
            entry = await self._try_to_enter(message_id)
            if entry is not None:
                self._in_flight += 1
                return entry

    async def _try_to_enter(self, message_id: Callable[[], str]) -> Entry | None:
        """None after something has changed."""
        if self._down_since is not None:
            if self._probe is not None:
                await asyncio.shield(self._probe)
                return None
            return self._as_probe(message_id)
        if self._alone is not None:
            await asyncio.shield(self._alone)
            return None
        if self._cut_offs and self._cut_offs.goes_alone(message_id()):
            return await self._as_the_only_one()
        return Entry(probe=False, alone=False)

    def _as_probe(self, message_id: Callable[[], str]) -> Entry:
        if self._red is not None:
            raise NotNow(self._clock() + _RED_PAUSE_MS)
        earliest = self._next_probe
        if self._cut_offs and self._cut_offs.yields(message_id()):
            earliest += _YIELD_MS
        if self._clock() < earliest:
            raise NotNow(earliest)
        self._probe = asyncio.get_running_loop().create_future()
        return Entry(probe=True, alone=self._in_flight == 0)

    async def _as_the_only_one(self) -> Entry | None:
        """Let nobody in and wait until all others have left; None if the app has gone down meanwhile."""
        loop = asyncio.get_running_loop()
        self._alone = loop.create_future()
        try:
            while self._in_flight:
                self._empty = loop.create_future()
                await self._empty
        except BaseException:
            self._let_others_in()
            raise
        if self._down_since is None:
            return Entry(probe=False, alone=True)
        self._let_others_in()
        return None

    def leave(self, entry: Entry) -> None:
        """A delivery that entered has ended, whatever its outcome."""
        self._in_flight -= 1
        if entry.probe and self._probe is not None:
            ended, self._probe = self._probe, None
            ended.set_result(None)
        elif entry.alone:
            self._let_others_in()
        if self._empty is not None and not self._in_flight:
            if not self._empty.done():
                self._empty.set_result(None)
            self._empty = None

    def _let_others_in(self) -> None:
        if self._alone is not None:
            ended, self._alone = self._alone, None
            ended.set_result(None)

    def cut_off(self, message_id: str, entry: Entry) -> bool:
        """The app was asked for this message and ended without an answer; whether that is a failed attempt."""
        return self._cut_offs.cut_off(message_id, alone=entry.alone)

    def answered(self, message_id: Callable[[], str] | None = None) -> None:
        """The app is there: it has answered this message, or its own probe."""
        if self._cut_offs:
            self._cut_offs.answered(None if message_id is None else message_id())
        if self._down_since is None or self._red is not None:
            return
        seconds = (self._clock() - self._down_since) / 1000
        logger.warning("group %s: the app answers again, after %.1f s", self._group, seconds)
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
        elif self._cut_offs:
            self._cut_offs.answered()
