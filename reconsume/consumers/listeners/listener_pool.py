"""Pools that call listeners: plain functions in threads, `async def` ones in an event loop."""

from __future__ import annotations

import asyncio
import threading
import time
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine, Iterator
from contextlib import suppress
from operator import length_hint
from queue import Empty, SimpleQueue
from typing import Any, Final, Protocol, TypeVar
from weakref import WeakSet

from reconsume.bridge.process.safe_logger import SafeLogger
from reconsume.bridge.process.user_callbacks import user_code
from reconsume.consumers.listener import is_async

logger = SafeLogger(__name__)

_LOOK_SECONDS: Final = 0.005
_LOOP_SECONDS: Final = 5.0
"""An event loop that does not answer within this time is blocked by a listener."""
_cut_off: Final = WeakSet[asyncio.Task[Any]]()

T = TypeVar("T")
C_contra = TypeVar("C_contra", contravariant=True)


class ListenerPool(Protocol[C_contra]):
    """Runs a limited number of chunks at a time."""

    def submit(self, chunk: C_contra) -> None:
        """Run a chunk as soon as a slot is free."""
        self.submit_all(iter((chunk,)))

    def submit_all(self, chunks: Iterator[C_contra]) -> None:
        """Run chunks in order; several threads take them from the iterator, which must be thread-safe."""

    def wait_while(self, is_full: Callable[[], bool], seconds: float) -> None:
        """Wait while `is_full()`, at most `seconds`; it is called again soon, and when a listener thread is idle."""

    def stop(self) -> None:
        """Start no more chunks."""

    def is_working(self) -> bool:
        """Return whether something still runs after `stop`."""

    def close(self, seconds: float) -> bool:
        """Start no more chunks, wait for the running ones; False if some still run after `seconds`."""


class _IdleSignal:
    """Wakes the waiting thread when a listener thread becomes idle; costs nothing if no thread waits."""

    def __init__(self) -> None:
        self._signals: SimpleQueue[None] = SimpleQueue()
        self._is_waited_for = False

    def give(self) -> None:
        """Tell that a listener thread is idle."""
        if self._is_waited_for:
            self._is_waited_for = False
            self._signals.put(None)

    def wait_while(self, is_full: Callable[[], bool], seconds: float) -> None:
        """Wait while `is_full()`, at most `seconds`; it is called after each signal, and every few milliseconds."""
        end = time.monotonic() + seconds
        self._is_waited_for = True  # first, so that a thread that becomes idle later gives a signal
        while is_full() and (left := end - time.monotonic()) > 0:
            with suppress(Empty):
                self._signals.get(timeout=min(left, _LOOK_SECONDS))
            self._is_waited_for = True
        self._is_waited_for = False


class ThreadListenerPool(ListenerPool[T]):
    """A fixed number of threads on one queue.

    An executor's future for each record would cost ten times as much as the queue. Only one thread is woken at a time,
    and it wakes the next one if work is left. Listeners that wait soon occupy all threads; quick ones finish in the
    first thread before another one gets the interpreter, so little time is lost by switching.

    Args:
        threads: the maximum of listeners that run at once.
        consume: calls the listener for each chunk and handles the results. It gets an iterator over the chunks that a
            thread does until none is left, because a call for each chunk would cost a tenth of the rate with single
            messages. If it raises, the thread goes on.
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
        """Run chunks; each free thread takes the next one, so none waits behind a slow one.

        Test: tests/unit/consumers/listeners/test_listener_pool.py.
        """
        self._work.append(chunks)
        self._call()

    def wait_while(self, is_full: Callable[[], bool], seconds: float) -> None:
        """Wait while `is_full()`, at most `seconds`."""
        self._idle.wait_while(is_full, seconds)

    def stop(self) -> None:
        """Start no more chunks."""
        if not self._closing:
            self._closing = True
            for _ in self._threads:
                self._calls.put(None)

    def is_working(self) -> bool:
        """Return whether a thread still runs."""
        return any(thread.is_alive() for thread in self._threads)

    def close(self, seconds: float) -> bool:
        """Start no more chunks, wait for the running ones; False if some still run after `seconds`."""
        self.stop()
        end = time.monotonic() + seconds
        for thread in self._threads:
            thread.join(max(0.0, end - time.monotonic()))
        return not self.is_working()

    def _call(self) -> None:
        """Wake a thread, unless one was woken and has not looked at the queue yet."""
        if not self._called:
            self._called = True
            self._calls.put(None)

    def _run(self) -> None:
        survive(self._work_off, lambda: self._closing)

    def _work_off(self) -> None:
        while not self._closing:
            self._consume(self._chunks())  # returns when idle, so that no idle thread keeps the last message in memory
            self._idle.give()
            self._calls.get()
            self._called = False  # first, so that work that is added later calls again

    def _chunks(self) -> Iterator[T]:
        """Yield the chunks for one thread, until none is left or the pool is closed."""
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
            with suppress(ValueError):  # another thread has removed its sentinel
                self._work.remove(chunks)


class AsyncListenerPool(ListenerPool[T]):
    """One thread with an event loop that runs a limited number of coroutines at once.

    One wake-up of the loop serves all chunks that arrive together; a chunk becomes a task as soon as a slot is free.

    Args:
        at_once: how many listeners run at once.
        consume: a coroutine function that calls the listener and handles the result.
        at_end: awaited in the loop after the last listener.
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
        """Run chunks as soon as slots are free."""
        self._chunks.extend(chunks)
        if not self._called:
            self._called = True
            self._loop.call_soon_threadsafe(self._start)

    def wait_while(self, is_full: Callable[[], bool], seconds: float) -> None:
        """Wait while `is_full()`, at most `seconds`."""
        self._idle.wait_while(is_full, seconds)

    def stop(self) -> None:
        """Start no more chunks."""
        self._closing = True

    def is_working(self) -> bool:
        """Return whether a coroutine still runs."""
        return bool(self._running)

    def close(self, seconds: float) -> bool:
        """Start no more chunks, wait for the running ones; False if some still run after `seconds`."""
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
        """Run the loop again whenever a SystemExit in a task, or a listener, has stopped it."""
        survive(self._loop.run_forever, lambda: self._is_over)
        self._loop.close()

    def _start(self) -> None:
        self._called = False  # Reset before looking: work that arrives after the look wakes the loop again.
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
        """Wait, then cancel the remaining calls, which is not an outcome: their offsets stay uncommitted."""
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
    """Repeat `work` until `is_over`, whatever it raises: a thread of a pool must not end early.

    The same holds for the thread of an event loop, which a `SystemExit` in a task ends. Test:
    tests/unit/consumers/test_slips.py.
    """
    with user_code():
        while not is_over():
            try:
                work()
            except BaseException:
                logger.critical("error in a listener thread, which continues", exc_info=True)


def cut_off(task: asyncio.Task[Any]) -> None:
    """Cancel the task of a listener because its consumer shuts down, which is not an outcome.

    Any other cancellation is a failure, because listeners may cancel their own task.
    Tests: tests/unit/consumers/test_slips.py, tests/unit/consumers/listeners/test_async_listeners.py.
    """
    _cut_off.add(task)
    task.cancel()


def is_cut_off(task: asyncio.Task[Any] | None) -> bool:
    """Return whether `cut_off` has cancelled the task; listeners may cancel tasks too."""
    return task in _cut_off


def make_pool(
    listener: Callable[..., object],
    at_once: int,
    consume: Callable[[Iterator[T]], None],
    consume_async: Callable[[T], Coroutine[Any, Any, None]],
) -> ListenerPool[T]:
    """Make the pool that fits the listener: threads, or an event loop for `async def`.

    A listener object may have `new_event_loop`, which makes the loop, and `aclose`, which is awaited there at the end.
    """
    if is_async(listener):
        new_event_loop = getattr(listener, "new_event_loop", asyncio.new_event_loop)
        return AsyncListenerPool(at_once, consume_async, getattr(listener, "aclose", None), new_event_loop)
    return ThreadListenerPool(at_once, consume)
