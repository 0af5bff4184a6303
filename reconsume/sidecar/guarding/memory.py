"""How much memory callers may take: bodies in hand, and send-backs that Kafka has not acknowledged."""

from __future__ import annotations

from typing import Final

from reconsume.sidecar.guarding.shares import Shares, too_many_waiting
from reconsume.sidecar.problems import Problem

__all__ = ["BODY_TIMES", "Held", "Memory", "no_room"]

BODY_TIMES: Final = 4
"""A body, its text, what is decoded of it, and the producer's copy of a message."""
_WAITING_TIMES: Final = 2
"""What waits for Kafka is kept for the second way, and the producer has a copy."""
_OF_EACH: Final = 4_096
"""Headers, futures and what else each record in hand takes."""


class Held:
    """Bytes that are taken; they are given back once."""

    def __init__(self, shares: Shares, owner: str, count: int) -> None:
        self._shares = shares
        self._owner = owner
        self._count = count

    def take(self, count: int) -> bool:
        """Take more; False if the owner may not have so many."""
        if not self._shares.take(self._owner, count):
            return False
        self._count += count
        return True

    def pass_on(self) -> Held:
        """The same bytes for somebody else to give back; this one has none any more."""
        passed = Held(self._shares, self._owner, self._count)
        self._count = 0
        return passed

    def give_back(self) -> None:
        """All of them."""
        count, self._count = self._count, 0
        if count:
            self._shares.give_back(self._owner, count)


class Memory:
    """For the thread of one event loop; callers of one owner leave a part to the others.

    Args:
        most_bytes: of all.
        has_one_owner: whether one may have all.
    """

    def __init__(self, most_bytes: int, *, has_one_owner: bool = False) -> None:
        self._shares = Shares(most_bytes, has_one_owner=has_one_owner)

    def of_request(self, owner: str) -> Held:
        """For the body of a request, which takes as it comes."""
        return Held(self._shares, owner, 0)

    def of_record(self, owner: str, size: int) -> Held:
        """For a record in hand, until Kafka has acknowledged its send-back.

        Raises:
            Problem: 503, there is no room now.
        """
        held = Held(self._shares, owner, 0)
        if not held.take(_WAITING_TIMES * size + _OF_EACH):
            raise no_room(owner)
        return held

    async def wait_for_record(self, owner: str, size: int) -> Held:
        """The same for one that has been read; waits for room."""
        return Held(self._shares, owner, await self._shares.wait(owner, _WAITING_TIMES * size + _OF_EACH))


def no_room(owner: str) -> Problem:
    """Told to a caller whose body or record is not taken now."""
    return too_many_waiting(
        f"no memory is left for {owner}: send-backs that wait for Kafka, and bodies in hand, have taken what "
        "sidecar.limits.memory_mib allows"
    )
