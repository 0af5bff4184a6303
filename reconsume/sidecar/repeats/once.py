"""Carry out each call once: one that comes again waits for the first one, or gets its answer."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Hashable
from typing import Final, Generic, NamedTuple, TypeVar

from reconsume.bridge.process.clock import Clock
from reconsume.delay_levels.errors import ReconsumeError
from reconsume.sidecar.guarding.shares import Shares, too_many_waiting
from reconsume.sidecar.problems import Problem
from reconsume.sidecar.repeats.remembered import Remembered

__all__ = ["Once", "Tell"]

T = TypeVar("T")

Tell = Callable[[T | ReconsumeError | Problem], None]
"""To be called once, in any thread, with the answer or the error; an error is not remembered."""

_MOST_ANSWERS: Final = 50_000
"""80 MB of them."""


class _Call(NamedTuple, Generic[T]):
    owner: str
    subject: Hashable
    future: asyncio.Future[T | ReconsumeError | Problem]


class _Done(NamedTuple, Generic[T]):
    subject: Hashable
    answer: T


class Once(Generic[T]):
    """All methods are for the thread of one event loop.

    Guarantees: calls of one owner that Kafka does not answer leave places for the calls of others. A call that gave up
    waiting leaves its send-back waiting for Kafka, and the next call of the same attempt joins it: an answer of 503
    says nothing of whether it was stored. Test: tests/integration/test_sidecar_process.py.

    Args:
        keep_ms: how long an answer is remembered.
        most_running: how many calls may wait at a time.
        clock: gives the time in milliseconds.
        has_one_owner: whether all places are for one owner, because no other may call.
    """

    def __init__(self, keep_ms: float, most_running: int, clock: Clock, *, has_one_owner: bool = False) -> None:
        self._running: dict[Hashable, _Call[T]] = {}
        self._places = Shares(most_running, has_one_owner=has_one_owner)
        self._done: Remembered[_Done[T]] = Remembered(keep_ms, _MOST_ANSWERS)
        self._clock = clock

    @property
    def running(self) -> int:
        """How many calls have begun and not ended, whether somebody waits for them or not."""
        return len(self._running)

    def answer_of(self, key: Hashable, subject: Hashable) -> T | None:
        """The answer that this call has got before.

        Raises:
            Problem: 409, the key was used for something else.
        """
        done = self._done.get(key, self._clock())
        if done is None:
            return None
        _check(done.subject, subject)
        return done.answer

    async def run(self, owner: str, key: Hashable, subject: Hashable, begin: Callable[[Tell[T]], None]) -> T:
        """Begin, or wait for the call of the same key that has begun; a waiter that gives up ends nothing.

        Args:
            owner: the group or topic whose places it takes.
            key: what is the same in a call that comes again.
            subject: what a call is about; a key stands for one subject.
            begin: starts it and tells later.

        Raises:
            Problem: 409, the key was used for something else; 503, too many wait.
            ReconsumeError: what was told.
        """
        call = self._running.get(key)
        if call is None:
            call = self._begin(owner, key, subject, begin)
        _check(call.subject, subject)
        told = await asyncio.shield(call.future)
        if isinstance(told, ReconsumeError | Problem):
            raise told
        return told

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

    def _begin(self, owner: str, key: Hashable, subject: Hashable, begin: Callable[[Tell[T]], None]) -> _Call[T]:
        self._take_place(owner)
        loop = asyncio.get_running_loop()
        future: asyncio.Future[T | ReconsumeError | Problem] = loop.create_future()
        call = _Call(owner, subject, future)

        def told(answer: T | ReconsumeError | Problem) -> None:
            self._end(key)
            if not isinstance(answer, ReconsumeError | Problem):
                self._done.put(key, _Done(subject, answer), self._clock())
            if not future.done():
                future.set_result(answer)

        def tell(answer: T | ReconsumeError | Problem) -> None:
            # When the loop has ended nobody waits for the answer any more.
            if not loop.is_closed():
                loop.call_soon_threadsafe(told, answer)

        self._running[key] = call
        try:
            begin(tell)
        except BaseException:
            self._end(key)
            raise
        return call

    def _end(self, key: Hashable) -> None:
        call = self._running.pop(key, None)
        if call is not None:
            self._places.give_back(call.owner)


def _check(one: Hashable, other: Hashable) -> None:
    if one != other:
        raise Problem(
            409,
            "idempotency-key-reused",
            "The idempotency key was used for something else",
            "the header idempotency-key holds what an earlier call for another record or message had; take a new one",
        )
