"""Call listeners: plain functions in threads, `async def` ones in an event loop."""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine, Iterator
from contextlib import suppress
from operator import length_hint
from queue import Empty, SimpleQueue
from typing import Any, Final, Protocol, TypeVar
from weakref import WeakSet

from reconsume.consumers.listener import is_async

logger = logging.getLogger(__name__)

_LOOP_SECONDS: Final = 5.0
"""An event loop that does not answer for so long is blocked by a listener."""
_cut_off: Final = WeakSet[asyncio.Task[Any]]()

T = TypeVar("T")
C_contra = TypeVar("C_contra", contravariant=True)


class ListenerPool(Protocol[C_contra]):
    """Runs chunks of messages, some at a time."""

    def submit(self, chunk: C_contra) -> None:
        """Run a chunk when there is room."""
        self.submit_all(iter((chunk,)))

    def submit_all(self, chunks: Iterator[C_contra]) -> None:
        """Run these, in order; threads take them from the iterator, which must bear that."""

    def wait_while(self, is_full: Callable[[], bool], seconds: float) -> None:
        """Give listeners time: until this is no longer so, which is asked again when one has nothing left to do."""

    def stop(self) -> None:
        """Start no more chunks."""

    def is_working(self) -> bool:
        """Whether something runs, after `stop`."""

    def close(self, seconds: float) -> bool:
        """Start no more chunks and wait for the running ones; False if some still run."""


class _IdleSignal:
    """Wakes the thread that waits when a listener's thread has nothing left to do; that costs nothing otherwise."""

    def __init__(self) -> None:
        self._signals: SimpleQueue[None] = SimpleQueue()
        self._is_waited_for = False

    def give(self) -> None:
        """Say that there is nothing left to do."""
        if self._is_waited_for:
            self._is_waited_for = False
            self._signals.put(None)

    def wait_while(self, is_full: Callable[[], bool], seconds: float) -> None:
        """Look again after each signal, for this long at most."""
        end = time.monotonic() + seconds
        self._is_waited_for = True  # before it looks: what ends after the look gives a signal
        while is_full() and (left := end - time.monotonic()) > 0:
            with suppress(Empty):
                self._signals.get(timeout=left)
            self._is_waited_for = True
        self._is_waited_for = False


class ThreadListenerPool(ListenerPool[T]):
    """A fixed number of threads on one queue.

    An executor's future for each record would cost ten times what the queue does. And one thread is woken at a time: it
    wakes the next one if there is more than it took. Listeners that wait soon have all threads; where they are quick,
    the first thread is done with everything before another one has the interpreter, and switching costs little.

    Args:
        threads: how many listeners run at once.
        consume: calls the listener for each chunk and deals with the results. It gets what one thread has to do until
            nothing is left: a call for each would cost a tenth of single messages. If it raises all the same the thread
            goes on.
    """

    def __init__(self, threads: int, consume: Callable[[Iterator[T]], None]) -> None:
        self._consume = consume
        self._idle = _IdleSignal()
        self._work: deque[Iterator[T]] = deque()
        self._calls: SimpleQueue[None] = SimpleQueue()
        self._called = False
        self._closing = False
        self._threads = [
            threading.Thread(target=self._run, name=f"reconsume-listener-{number}", daemon=True)
            for number in range(threads)
        ]
        for thread in self._threads:
            thread.start()

    def submit_all(self, chunks: Iterator[T]) -> None:
        """Run these when threads are free: each takes the next one, so none waits behind a slow one.

        Test: tests/unit/consumers/listeners/test_listener_pool.py.
        """
        self._work.append(chunks)
        self._call()

    def wait_while(self, is_full: Callable[[], bool], seconds: float) -> None:
        """Give listeners time."""
        self._idle.wait_while(is_full, seconds)

    def stop(self) -> None:
        """Start no more chunks."""
        if not self._closing:
            self._closing = True
            for _ in self._threads:
                self._calls.put(None)

    def is_working(self) -> bool:
        """Whether a thread has not ended yet."""
        return any(thread.is_alive() for thread in self._threads)

    def close(self, seconds: float) -> bool:
        """Start no more chunks and wait for the running ones; False if some still run."""
        self.stop()
        end = time.monotonic() + seconds
        for thread in self._threads:
            thread.join(max(0.0, end - time.monotonic()))
        return not self.is_working()

    def _call(self) -> None:
        """Wake a thread, unless one is called already and has not looked into the queue yet."""
        if not self._called:
            self._called = True
            self._calls.put(None)

    def _run(self) -> None:
        survive(self._work_off, lambda: self._closing)

    def _work_off(self) -> None:
        while not self._closing:
            self._consume(self._chunks())  # whose end lets go of the last chunk: an idle thread keeps no message
            self._idle.give()
            self._calls.get()
            self._called = False  # before it looks: what comes after the look calls again

    def _chunks(self) -> Iterator[T]:
        """Give one thread its chunks, until nothing is left or the pool is closed."""
        while not self._closing:
            try:
                chunks = self._work[0]
            except IndexError:
                return
            for chunk in chunks:
                if not self._called and (length_hint(chunks, 1) or len(self._work) > 1):
                    self._call()
                yield chunk
                if self._closing:
                    return
            with suppress(ValueError):  # another thread has found its end too
                self._work.remove(chunks)


class AsyncListenerPool(ListenerPool[T]):
    """One thread with an event loop; at most so many coroutines at once.

    The loop is woken once for all chunks that come together, and a chunk becomes a task when there is room for it.

    Args:
        at_once: how many listeners run at once.
        consume: a coroutine function that calls the listener and deals with the result.
        at_end: awaited in the loop when the last one has ended.
        new_event_loop: makes the loop.
    """

    def __init__(
        self,
        at_once: int,
        consume: Callable[[T], Coroutine[Any, Any, None]],
        at_end: Callable[[], Awaitable[None]] | None = None,
        new_event_loop: Callable[[], asyncio.AbstractEventLoop] = asyncio.new_event_loop,
    ) -> None:
        self._consume = consume
        self._at_end = at_end
        self._at_once = at_once
        self._chunks: deque[T] = deque()
        self._called = False
        self._closing = False
        self._running: set[asyncio.Task[None]] = set()
        self._is_over = False
        self._idle = _IdleSignal()
        self._loop = new_event_loop()
        self._thread = threading.Thread(target=self._run_loop, name="reconsume-listeners", daemon=True)
        self._thread.start()

    def submit_all(self, chunks: Iterator[T]) -> None:
        """Run these when there is room."""
        self._chunks.extend(chunks)
        if not self._called:
            self._called = True
            self._loop.call_soon_threadsafe(self._start)

    def wait_while(self, is_full: Callable[[], bool], seconds: float) -> None:
        """Give listeners time."""
        self._idle.wait_while(is_full, seconds)

    def stop(self) -> None:
        """Start no more chunks."""
        self._closing = True

    def is_working(self) -> bool:
        """Whether a coroutine has not ended yet."""
        return bool(self._running)

    def close(self, seconds: float) -> bool:
        """Start no more chunks and wait for the running ones; False if some still run."""
        self.stop()
        finishing = asyncio.run_coroutine_threadsafe(self._finish(seconds), self._loop)
        finishing.add_done_callback(lambda _: self._end_loop())
        try:
            done = finishing.result(seconds + _LOOP_SECONDS)
        except TimeoutError:
            return False  # a listener blocks the loop, which ends when it can
        self._thread.join()
        return done

    def _end_loop(self) -> None:
        self._is_over = True
        self._loop.call_soon_threadsafe(self._loop.stop)

    def _run_loop(self) -> None:
        """A SystemExit in a task that a listener has started ends the loop, and so does a listener that stops it."""
        survive(self._loop.run_forever, lambda: self._is_over)
        self._loop.close()

    def _start(self) -> None:
        self._called = False  # before it looks: what comes after the look calls again
        while self._chunks and len(self._running) < self._at_once and not self._closing:
            task = self._loop.create_task(self._consume(self._chunks.popleft()))
            self._running.add(task)
            task.add_done_callback(self._ended)
        if not self._chunks:
            self._idle.give()

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._running.discard(task)
        self._start()

    async def _finish(self, seconds: float) -> bool:
        """Wait; what still runs then is cancelled, which is no outcome: its offsets stay uncommitted."""
        late: set[asyncio.Task[None]] = set()
        if self._running:
            _, late = await asyncio.wait(self._running, timeout=seconds)
        for task in late:
            cut_off(task)
        if late:
            await asyncio.wait(late, timeout=1)
        if self._at_end is not None:
            await self._at_end()
        return not late


def survive(work: Callable[[], object], is_over: Callable[[], bool]) -> None:
    """Work until it is over, whatever comes out of the work: a thread of a pool does not end before.

    Nor does a thread with an event loop, which a `SystemExit` in a task ends. Test: tests/unit/consumers/test_slips.py.
    """
    while not is_over():
        try:
            work()
        except BaseException:
            with suppress(BaseException):  # a log handler may raise too
                logger.critical("error in a listener thread, which continues", exc_info=True)


def cut_off(task: asyncio.Task[Any]) -> None:
    """Cancel the task of a listener because its consumer is shut down, which is no outcome.

    Any other cancellation is a failure, for listeners may cancel their own task.
    Tests: tests/unit/consumers/test_slips.py, tests/unit/consumers/listeners/test_async_listeners.py.
    """
    _cut_off.add(task)
    task.cancel()


def is_cut_off(task: asyncio.Task[Any] | None) -> bool:
    """Whether that was done; a listener may also cancel its own task, or those of all others."""
    return task in _cut_off


def make_pool(
    listener: Callable[..., object],
    at_once: int,
    consume: Callable[[Iterator[T]], None],
    consume_async: Callable[[T], Coroutine[Any, Any, None]],
) -> ListenerPool[T]:
    """The pool that fits the listener: threads, or an event loop for an `async def` one.

    A listener that is an object may have `new_event_loop`, which makes that loop, and `aclose`, which ends it there.
    """
    if is_async(listener):
        new_event_loop = getattr(listener, "new_event_loop", asyncio.new_event_loop)
        return AsyncListenerPool(at_once, consume_async, getattr(listener, "aclose", None), new_event_loop)
    return ThreadListenerPool(at_once, consume)
