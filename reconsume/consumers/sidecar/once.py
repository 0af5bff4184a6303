"""Carry out each call once: one that comes again waits for the first one, or gets its answer."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Hashable
from typing import Final, Generic, NamedTuple, TypeVar

from reconsume.bridge.clock import Clock
from reconsume.consumers.sidecar.problems import AGAIN_SECONDS, Problem
from reconsume.consumers.sidecar.remembered import Remembered
from reconsume.delay_levels.errors import ReconsumeError

__all__ = ["Once", "Tell"]

T = TypeVar("T")

Tell = Callable[[T | ReconsumeError], None]
"""To be called once, in any thread, with the answer or the error; an error is not remembered."""

_MOST_ANSWERS: Final = 50_000
"""80 MB of them."""


class _Call(NamedTuple, Generic[T]):
    subject: Hashable
    future: asyncio.Future[T | ReconsumeError]


class _Done(NamedTuple, Generic[T]):
    subject: Hashable
    answer: T


class Once(Generic[T]):
    """All methods are for the thread of one event loop.

    Args:
        keep_ms: how long an answer is remembered.
        most_running: how many calls may wait at a time.
        clock: gives the time in milliseconds.
    """

    def __init__(self, keep_ms: float, most_running: int, clock: Clock) -> None:
        self._running: dict[Hashable, _Call[T]] = {}
        self._done: Remembered[_Done[T]] = Remembered(keep_ms, _MOST_ANSWERS)
        self._most_running = most_running
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

    async def run(self, key: Hashable, subject: Hashable, begin: Callable[[Tell[T]], None]) -> T:
        """Begin, or wait for the call of the same key that has begun; a waiter that gives up ends nothing.

        Args:
            key: what is the same in a call that comes again.
            subject: what a call is about; a key stands for one subject.
            begin: starts it and tells later.

        Raises:
            Problem: 409, the key was used for something else; 503, too many wait.
            ReconsumeError: what was told.
        """
        call = self._running.get(key)
        if call is None:
            call = self._begin(key, subject, begin)
        _check(call.subject, subject)
        told = await asyncio.shield(call.future)
        if isinstance(told, ReconsumeError):
            raise told
        return told

    def _begin(self, key: Hashable, subject: Hashable, begin: Callable[[Tell[T]], None]) -> _Call[T]:
        if len(self._running) >= self._most_running:
            raise Problem(
                503,
                "too-many-waiting",
                "Too many calls wait for Kafka",
                f"{len(self._running)} calls wait for Kafka, the most that sidecar.limits.records_in_flight allows; "
                "make the call again later",
                AGAIN_SECONDS,
            )
        loop = asyncio.get_running_loop()
        future: asyncio.Future[T | ReconsumeError] = loop.create_future()
        call = _Call(subject, future)

        def told(answer: T | ReconsumeError) -> None:
            self._running.pop(key, None)
            if not isinstance(answer, ReconsumeError):
                self._done.put(key, _Done(subject, answer), self._clock())
            if not future.done():
                future.set_result(answer)

        def tell(answer: T | ReconsumeError) -> None:
            # When the loop has ended nobody waits for the answer any more.
            if not loop.is_closed():
                loop.call_soon_threadsafe(told, answer)

        self._running[key] = call
        try:
            begin(tell)
        except BaseException:
            self._running.pop(key, None)
            raise
        return call


def _check(one: Hashable, other: Hashable) -> None:
    if one != other:
        raise Problem(
            409,
            "idempotency-key-reused",
            "The idempotency key was used for something else",
            "the header idempotency-key holds what an earlier call for another record or message had; take a new one",
        )
