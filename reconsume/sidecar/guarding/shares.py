"""Places that all callers share: of threads, of reads, of bytes. One owner never gets all of them."""

from __future__ import annotations

import asyncio
from collections import Counter, deque
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Final, NamedTuple, TypeVar

from reconsume.sidecar.problems import AGAIN_SECONDS, Problem

__all__ = ["LARGEST_SHARE", "Shares", "Threads", "too_many_waiting"]

T = TypeVar("T")

_SHARE_OF_FREE: Final = 3
"""Places that an owner may have for each free one."""
LARGEST_SHARE: Final = _SHARE_OF_FREE / (_SHARE_OF_FREE + 1)
"""What an owner gets at most of the places that the others leave."""


class _Waiter(NamedTuple):
    places: int
    granted: asyncio.Future[None]


class Shares:
    """All methods are for the thread of one event loop.

    Args:
        most: how many places there are.
        has_one_owner: whether one owner may have them all, because no other calls.
    """

    def __init__(self, most: int, *, has_one_owner: bool = False) -> None:
        self._most = most
        self._has_one_owner = has_one_owner
        self._taken = 0
        self._of: Counter[str] = Counter()
        self._waiting: dict[str, deque[_Waiter]] = {}

    @property
    def free(self) -> int:
        """Places that nobody has."""
        return self._most - self._taken

    def taken_by(self, owner: str) -> int:
        """Places that an owner has."""
        return self._of[owner]

    def take(self, owner: str, count: int = 1) -> bool:
        """Take places now; False if the owner may not have so many."""
        left = self.free - count
        if left < 0 or (not self._has_one_owner and self._of[owner] + count > _SHARE_OF_FREE * (left + 1)):
            return False
        self._taken += count
        self._of[owner] += count
        return True

    async def wait(self, owner: str, count: int = 1) -> int:
        """Take places as soon as the owner may have them, in the order of its calls; gives how many.

        What can never be had is cut to what can.
        """
        count = min(count, int(self._most * LARGEST_SHARE))
        waiter = _Waiter(count, asyncio.get_running_loop().create_future())
        self._waiting.setdefault(owner, deque()).append(waiter)
        self._grant()
        try:
            await waiter.granted
        except asyncio.CancelledError:
            if waiter.granted.done() and not waiter.granted.cancelled():
                self.give_back(owner, count)
            else:
                self._waiting[owner].remove(waiter)
                self._grant()
            raise
        return count

    def give_back(self, owner: str, count: int = 1) -> None:
        """Places are free again; those who wait for them get them."""
        self._taken -= count
        self._of[owner] -= count
        if not self._of[owner]:
            del self._of[owner]
        self._grant()

    def _grant(self) -> None:
        for owner, waiters in list(self._waiting.items()):
            while waiters and self.take(owner, waiters[0].places):
                waiters.popleft().granted.set_result(None)
            del self._waiting[owner]
            if waiters:
                # Behind the other owners the next time.
                self._waiting[owner] = waiters


class Threads:
    """Threads for calls that block; calls of one owner leave threads for the calls of others.

    Args:
        most: how many threads.
        seconds: how long a call waits for one.
    """

    def __init__(self, most: int, seconds: float) -> None:
        self._places = Shares(most)
        self._seconds = seconds
        self._executor = ThreadPoolExecutor(most, "reconsume-api-call")

    async def run(self, owner: str, call: Callable[[], T]) -> T:
        """Run it; its thread is free when it has returned, whether somebody waits for it or not.

        Args:
            owner: the group or topic whose call it is.
            call: blocks.

        Raises:
            Problem: 503, no thread was free in time.
        """
        try:
            async with asyncio.timeout(self._seconds):
                await self._places.wait(owner)
        except TimeoutError:
            raise too_many_waiting(f"{self._places.taken_by(owner)} calls for {owner} wait for Kafka") from None
        loop = asyncio.get_running_loop()
        begun = self._executor.submit(call)

        def ended(_begun: Future[T]) -> None:
            if not loop.is_closed():
                loop.call_soon_threadsafe(self._places.give_back, owner)

        begun.add_done_callback(ended)
        return await asyncio.wrap_future(begun)

    def close(self) -> None:
        """Begin no further call; those that have begun end by themselves."""
        self._executor.shutdown(wait=False, cancel_futures=True)


def too_many_waiting(why: str) -> Problem:
    """Told to a caller for whom there is no room now."""
    return Problem(
        503, "too-many-waiting", "Too many calls wait for Kafka", f"{why}; make the call again later", AGAIN_SECONDS
    )
