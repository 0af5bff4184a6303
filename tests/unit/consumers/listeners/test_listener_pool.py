"""How many listeners run at once, and what closing does."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator, Sequence
from weakref import WeakSet

import pytest

from reconsume.consumers.listener import ConsumeConcurrentlyContext, is_async
from reconsume.consumers.listeners.listener_pool import AsyncListenerPool, ListenerPool, ThreadListenerPool
from reconsume.consumers.message import Message
from reconsume.consumers.partitions.process_queue import Chunk
from tests.support.waiting import PATIENCE, wait_until
from tests.unit.consumers.doubles import chunk_of

AT_ONCE = 3


class Work:
    """Chunks that run until they are let go, in either pool."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.running = 0
        self.most = 0
        self.began: list[Chunk] = []
        self.ended: list[Chunk] = []
        self.go = threading.Event()

    def plain(self, chunk: Chunk) -> None:
        self._begin(chunk)
        assert self.go.wait(PATIENCE)
        self._end(chunk)

    async def coroutine(self, chunk: Chunk) -> None:
        self._begin(chunk)
        assert await asyncio.to_thread(self.go.wait, 20)
        self._end(chunk)

    def _begin(self, chunk: Chunk) -> None:
        with self.lock:
            self.began.append(chunk)
            self.running += 1
            self.most = max(self.most, self.running)

    def _end(self, chunk: Chunk) -> None:
        with self.lock:
            self.running -= 1
            self.ended.append(chunk)


MakePool = Callable[[Work, int], ListenerPool[Chunk]]


def threads(work: Work, at_once: int) -> ListenerPool[Chunk]:
    def consume(chunks: Iterator[Chunk]) -> None:
        for chunk in chunks:
            work.plain(chunk)

    return ThreadListenerPool(at_once, consume)


def coroutines(work: Work, at_once: int) -> ListenerPool[Chunk]:
    return AsyncListenerPool(at_once, work.coroutine)


@pytest.fixture
def work() -> Iterator[Work]:
    one = Work()
    yield one
    one.go.set()


both = pytest.mark.parametrize("make", [threads, coroutines])


@both
@pytest.mark.rule("FC-01")
def test_at_most_so_many_run_at_once(work: Work, make: MakePool) -> None:
    pool = make(work, AT_ONCE)
    for _ in range(3 * AT_ONCE):
        pool.submit(chunk_of(1))
    wait_until(lambda: work.running == AT_ONCE, "as many run as may")
    work.go.set()
    wait_until(lambda: len(work.ended) == 3 * AT_ONCE, "all have run")
    assert work.most == AT_ONCE
    assert pool.close(10)


@both
def test_chunks_begin_in_the_order_in_which_they_were_read(work: Work, make: MakePool) -> None:
    pool = make(work, 1)
    chunks = [chunk_of(1) for _ in range(10)]
    work.go.set()
    for chunk in chunks:
        pool.submit(chunk)
    wait_until(lambda: len(work.ended) == len(chunks), "all have run")
    assert [id(chunk) for chunk in work.began] == [id(chunk) for chunk in chunks]
    assert pool.close(10)


@both
@pytest.mark.rule("CC-18")
def test_of_chunks_that_come_together_a_slow_one_holds_up_none(make: MakePool) -> None:
    slow, others = chunk_of(1), [chunk_of(1) for _ in range(20)]
    go = threading.Event()
    ended: list[int] = []

    class SlowWork(Work):
        def plain(self, chunk: Chunk) -> None:
            assert chunk is not slow or go.wait(PATIENCE)
            ended.append(id(chunk))

        async def coroutine(self, chunk: Chunk) -> None:
            assert chunk is not slow or await asyncio.to_thread(go.wait, 60)
            ended.append(id(chunk))

    pool = make(SlowWork(), 2)
    pool.submit_all(iter([slow, *others]))
    wait_until(lambda: len(ended) == len(others), "all but the slow one have ended")
    assert ended == [id(chunk) for chunk in others]
    go.set()
    wait_until(lambda: ended[-1] == id(slow), "the slow one has ended")
    assert pool.close(10)


@both
def test_chunks_that_came_together_are_before_those_that_come_later(work: Work, make: MakePool) -> None:
    pool = make(work, 1)
    chunks = [chunk_of(1) for _ in range(9)]
    work.go.set()
    pool.submit_all(iter(chunks[:4]))
    pool.submit(chunks[4])
    pool.submit_all(iter(chunks[5:]))
    wait_until(lambda: len(work.ended) == len(chunks), "all have run")
    assert [id(chunk) for chunk in work.began] == [id(chunk) for chunk in chunks]
    assert pool.close(10)


@both
def test_closing_begins_no_more_of_those_that_came_together(work: Work, make: MakePool) -> None:
    pool = make(work, 1)
    pool.submit_all(iter([chunk_of(1) for _ in range(3)]))
    wait_until(lambda: work.running == 1, "the first runs")
    pool.stop()
    work.go.set()
    assert pool.close(60)
    assert len(work.began) == 1


@both
@pytest.mark.rule("FC-09")
def test_closing_waits_for_those_that_run_and_begins_no_more(work: Work, make: MakePool) -> None:
    pool = make(work, 1)
    pool.submit(chunk_of(1))
    pool.submit(chunk_of(1))
    wait_until(lambda: work.running == 1, "the first runs")
    results: list[bool] = []
    closer = threading.Thread(target=lambda: results.append(pool.close(20)))
    closer.start()
    wait_until(lambda: pool._closing, "the pool closes")  # type: ignore[attr-defined]
    assert closer.is_alive(), "it waits"
    work.go.set()
    closer.join(PATIENCE)
    assert results == [True]
    assert (len(work.began), len(work.ended)) == (1, 1)


@both
def test_closing_says_when_one_still_runs(work: Work, make: MakePool) -> None:
    pool = make(work, 1)
    pool.submit(chunk_of(1))
    wait_until(lambda: work.running == 1, "it runs")
    assert not pool.close(0.01)
    assert work.ended == []


@both
def test_closing_an_idle_pool_is_quick_and_ends_its_threads(work: Work, make: MakePool) -> None:
    before = threading.active_count()
    assert make(work, AT_ONCE).close(20)
    wait_until(lambda: threading.active_count() <= before, "its threads are gone")


@both
def test_waiting_for_room_ends_when_a_listener_has_made_some_or_none_comes(work: Work, make: MakePool) -> None:
    pool = make(work, AT_ONCE)
    for _ in range(AT_ONCE):
        pool.submit(chunk_of(1))
    wait_until(lambda: work.running == AT_ONCE, "all run")
    pool.wait_while(lambda: not work.ended, 0.01)
    assert not work.ended, "listeners that stay do not keep who waits"
    waiting = threading.Thread(target=pool.wait_while, args=(lambda: len(work.ended) < AT_ONCE, 60))
    waiting.start()
    work.go.set()
    waiting.join(PATIENCE)
    assert not waiting.is_alive(), "it waits no longer than needed"
    assert pool.close(20)


def test_closing_does_not_wait_for_a_coroutine_that_blocks_its_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("reconsume.consumers.listeners.listener_pool._LOOP_SECONDS", 0.1)
    go, begun = threading.Event(), threading.Event()

    async def blocks(_chunk: Chunk) -> None:
        begun.set()
        assert go.wait(PATIENCE)

    pool = AsyncListenerPool(1, blocks)
    pool.submit(chunk_of(1))
    assert begun.wait(PATIENCE)
    assert not pool.close(0)
    go.set()
    pool._thread.join(PATIENCE)
    assert not pool._thread.is_alive(), "it ends as soon as it can"


def test_an_idle_thread_keeps_no_message() -> None:
    class Batch:
        """What a thread could hold on to."""

    def consume(batches: Iterator[Batch]) -> None:
        for _ in batches:
            pass

    pool = ThreadListenerPool(AT_ONCE, consume)
    left = WeakSet[Batch]()
    for _ in range(10):
        left.add(batch := Batch())
        pool.submit(batch)
    del batch
    wait_until(lambda: not left, "nothing is left of them")
    assert pool.close(60)


def plain_listener(_messages: Sequence[Message], _context: ConsumeConcurrentlyContext) -> None:
    return None


async def async_listener(_messages: Sequence[Message], _context: ConsumeConcurrentlyContext) -> None:
    return None


class CallableListener:
    def __call__(self, _messages: Sequence[Message], _context: ConsumeConcurrentlyContext) -> None:
        return None


class AsyncCallableListener:
    async def __call__(self, _messages: Sequence[Message], _context: ConsumeConcurrentlyContext) -> None:
        return None

    async def method(self, _messages: Sequence[Message], _context: ConsumeConcurrentlyContext) -> None:
        return None


def test_async_listeners_are_told_from_plain_ones() -> None:
    assert is_async(async_listener)
    assert is_async(AsyncCallableListener())
    assert is_async(AsyncCallableListener().method)
    assert not is_async(plain_listener)
    assert not is_async(CallableListener())
    assert not is_async(print)
