"""Carry out each call once: one that comes again waits for the first one, or gets its answer."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Hashable
from typing import Final, Generic, NamedTuple, TypeVar

from reconsume.bridge.process.clock import Clock
from reconsume.sidecar.guarding.shares import Shares, too_many_waiting
from reconsume.sidecar.problems import Problem
from reconsume.sidecar.repeats.remembered import Remembered

__all__ = ["Once"]

T = TypeVar("T")

_MOST_ANSWERS: Final = 50_000
"""80 MB of them."""


class _Call(NamedTuple, Generic[T]):
    subject: Hashable
    answer: asyncio.Future[T]


class Once(Generic[T]):
    """All methods are for the thread of one event loop.

    Guarantees: calls of one owner that Kafka does not answer leave places for the calls of others. A call that gave up
    waiting leaves its send-back waiting for Kafka, and the next call of the same attempt joins it: an answer of 503
    says nothing of whether it was stored. Test: tests/integration/test_sidecar_process.py.

    Args:
        keep_ms: how long an answer is remembered; an error is not.
        most_running: how many calls may wait at a time.
        clock: gives the time in milliseconds.
        has_one_owner: whether all places are for one owner, because no other may call.
    """

    def __init__(self, keep_ms: float, most_running: int, clock: Clock, *, has_one_owner: bool = False) -> None:
        self._running: dict[Hashable, _Call[T]] = {}
        self._places = Shares(most_running, has_one_owner=has_one_owner)
        self._done: Remembered[_Call[T]] = Remembered(keep_ms, _MOST_ANSWERS)
        self._clock = clock

    @property
    def running(self) -> int:
        """How many calls have begun and not ended, whether somebody waits for them or not."""
        return len(self._running)

    async def run(self, owner: str, key: Hashable, subject: Hashable, begin: Callable[[], asyncio.Future[T]]) -> T:
        """Begin, or join the call of the same key; a waiter that gives up ends nothing.

        Args:
            owner: the group or topic whose places it takes.
            key: what is the same in a call that comes again.
            subject: what a call is about; a key stands for one subject.
            begin: gives a future that is not done yet.

        Raises:
            Problem: 409, the key was used for something else; 503, too many wait.
            ReconsumeError: what the call ended with.
        """
        call = self._running.get(key) or self._done.get(key, self._clock())
        if call is None:
            call = self._begin(owner, key, subject, begin)
        if call.subject != subject:
            raise Problem(
                "idempotency-key-reused",
                "the header idempotency-key holds what an earlier call for another record or message had; take a new "
                "one",
            )
        return await asyncio.shield(call.answer)

    def _begin(self, owner: str, key: Hashable, subject: Hashable, begin: Callable[[], asyncio.Future[T]]) -> _Call[T]:
        self._take_place(owner)
        try:
            call = _Call(subject, begin())
        except BaseException:
            self._places.give_back(owner)
            raise

        def ended(answer: asyncio.Future[T]) -> None:
            del self._running[key]
            self._places.give_back(owner)
            if not answer.cancelled() and answer.exception() is None:
                self._done.put(key, call, self._clock())

        self._running[key] = call
        call.answer.add_done_callback(ended)
        return call

    def _take_place(self, owner: str) -> None:
        if self._places.take(owner):
            return
        if self._places.free:
            raise too_many_waiting(
                f"{self._places.taken_by(owner)} calls for {owner} wait for Kafka; the {self._places.free} places that "
                "are left of sidecar.limits.records_in_flight are kept for others"
            )
        raise too_many_waiting(
            f"{len(self._running)} calls wait for Kafka, the most that sidecar.limits.records_in_flight allows"
        )
