"""Resources that all callers share: threads, reads, bytes of memory. One owner never gets all of them."""

from __future__ import annotations

import asyncio
from collections import Counter, deque
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from typing import Final, NamedTuple, TypeVar

from reconsume.sidecar.problems import Problem

T = TypeVar("T")

_SHARE_OF_FREE: Final = 3
"""Resources that an owner may hold for each free one."""
LARGEST_SHARE: Final = _SHARE_OF_FREE / (_SHARE_OF_FREE + 1)
"""The maximum share of an owner, of the resources that the others leave."""
_SHARE_OF_A_CALL: Final = 1 / 16
"""What the largest wait leaves unclaimed. The waiting call may hold a quarter of it, such as for its body.

`take` counts the units of that body four times: once as held, and three times as not free.
"""
BODY_TIMES: Final = 4
"""Factor for a request body: its text, the decoded parts, and the producer's copy of a message."""
MOST_RECORDS: Final = 1_000
"""The maximum of records in a call."""
_WAITING_TIMES: Final = 2
"""Factor for a waiting record: it is kept for the second way, and the producer has a copy."""
_OF_EACH: Final = 4_096
"""Bytes for headers, futures and other overhead of each record."""


class _Waiter(NamedTuple):
    places: int
    granted: asyncio.Future[None]


class Shares:
    """Units of a resource, divided among owners. All methods are for the thread of one event loop.

    Args:
        most: the number of units.
        has_one_owner: whether one owner may have all units, because it is the only one.
    """

    def __init__(self, most: int, *, has_one_owner: bool = False) -> None:
        self._most = most
        self._has_one_owner = has_one_owner
        self._taken = 0
        self._of: Counter[str] = Counter()
        self._waiting: dict[str, deque[_Waiter]] = {}

    @property
    def free(self) -> int:
        """The number of free units."""
        return self._most - self._taken

    def taken_by(self, owner: str) -> int:
        """Return the number of units that an owner holds."""
        return self._of[owner]

    def take(self, owner: str, count: int = 1) -> bool:
        """Take units now; False if the owner may not have that many."""
        left = self.free - count
        if left < 0 or (not self._has_one_owner and self._of[owner] + count > _SHARE_OF_FREE * (left + 1)):
            return False
        if count:  # an owner of nothing returns nothing, and callers make up any number of owners
            self._taken += count
            self._of[owner] += count
        return True

    async def wait(self, owner: str, count: int = 1) -> int:
        """Take units as soon as the owner may have them, in the order of its calls; return how many.

        A count above the possible maximum is reduced to it. The maximum leaves room for what the same call holds
        already, such as its body, because the call would wait for itself otherwise.
        """
        count = min(count, int(self._most * (LARGEST_SHARE - _SHARE_OF_A_CALL)))
        waiter = _Waiter(count, asyncio.get_running_loop().create_future())
        self._waiting.setdefault(owner, deque()).append(waiter)
        self._grant()
        try:
            await waiter.granted
        except asyncio.CancelledError:
            if waiter.granted.done() and not waiter.granted.cancelled():
                self.give_back(owner, count)
            else:
                with suppress(KeyError, ValueError):  # `_grant` has passed it over
                    self._waiting[owner].remove(waiter)
                self._grant()
            raise
        return count

    def give_back(self, owner: str, count: int = 1) -> None:
        """Return units, which go to waiting callers."""
        self._taken -= count
        self._of[owner] -= count
        if not self._of[owner]:
            del self._of[owner]
        self._grant()

    def _grant(self) -> None:
        for owner, waiters in list(self._waiting.items()):
            while waiters:
                if not waiters[0].granted.cancelled():  # its caller gives up, and has not run since
                    if not self.take(owner, waiters[0].places):
                        break
                    waiters[0].granted.set_result(None)
                waiters.popleft()
            del self._waiting[owner]
            if waiters:
                # The other owners come first next time.
                self._waiting[owner] = waiters


class Held:
    """Units of one owner, such as bytes of memory; they are returned once."""

    def __init__(self, shares: Shares, owner: str) -> None:
        self._shares = shares
        self.owner: Final = owner
        self._count = 0

    def take(self, count: int) -> bool:
        """Take more; False if the owner may not have that many."""
        if not self._shares.take(self.owner, count):
            return False
        self._count += count
        return True

    async def wait(self, count: int) -> None:
        """Take more as soon as the owner may have them."""
        self._count += await self._shares.wait(self.owner, count)

    def pass_on(self) -> Held:
        """Move the units to a new object, whose holder returns them; this one is empty afterwards."""
        passed = Held(self._shares, self.owner)
        passed._count, self._count = self._count, 0
        return passed

    def give_back(self) -> None:
        """Return all units."""
        count, self._count = self._count, 0
        if count:
            self._shares.give_back(self.owner, count)


class Threads:
    """Threads for blocking calls; calls of one owner leave threads for calls of others.

    Args:
        most: the number of threads.
        seconds: how long a call waits for a free thread.
    """

    def __init__(self, most: int, seconds: float) -> None:
        self._places = Shares(most)
        self._seconds = seconds
        self._executor = ThreadPoolExecutor(most, "reconsume-api-call")

    async def run(self, owner: str, call: Callable[[], T]) -> T:
        """Run a call in a thread, which is free again when the call has returned, even if nobody waits for it.

        Args:
            owner: the group or topic whose call it is.
            call: the blocking function.

        Raises:
            Problem: 503, no thread became free in time.
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
        """Start no more calls; running ones end by themselves."""
        self._executor.shutdown(wait=False, cancel_futures=True)


def too_many_waiting(why: str) -> Problem:
    """Return the problem for a caller that finds no free place."""
    return Problem("too-many-waiting", f"{why}; make the call again later")


def no_room(owner: str) -> Problem:
    """Return the problem for a body or record without memory."""
    return too_many_waiting(
        f"no memory is left for {owner}: send-backs that wait for Kafka, and bodies in hand, have taken what "
        "sidecar.limits.memory_mib allows"
    )


def record_bytes(size: int) -> int:
    """Return the memory that a record of this size takes until its send-back is acknowledged."""
    return _WAITING_TIMES * size + _OF_EACH


def call_bytes(body: int) -> int:
    """Return the maximum memory that a call with a body of this size takes; base64 is a third longer than its bytes."""
    return BODY_TIMES * body + record_bytes(body * 3 // 4) + (MOST_RECORDS - 1) * _OF_EACH


def group_owner(group: str) -> str:
    """Return the owner for the calls of a group."""
    return f"group {group}"
