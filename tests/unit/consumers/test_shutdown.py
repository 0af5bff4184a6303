"""`PushConsumer.shutdown` by a listener, a hook or a callback, and by several threads at once."""

from __future__ import annotations

import asyncio
import signal
import threading
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from reconsume.bridge.groups.groups import Groups
from reconsume.bridge.process.user_callbacks import UserCallbacks, with_guarded
from reconsume.consumers import MessageModel
from reconsume.consumers.assembly import LoopBuilder
from reconsume.consumers.listeners.listener_pool import AsyncListenerPool, ThreadListenerPool
from reconsume.consumers.push_consumer import PushConsumer
from reconsume.delay_levels.errors import KafkaRefused
from tests.support.waiting import PATIENCE, wait_until


class Loop:
    """A loop that does one thing, then waits for the shutdown."""

    def __init__(self, does: Callable[[], object] = lambda: None, ends: Callable[[], object] = lambda: None) -> None:
        self.does = does
        self.ends = ends
        self.may_begin = threading.Event()

    def run(self, stop: threading.Event) -> None:
        assert self.may_begin.wait(PATIENCE)
        self.does()
        assert stop.wait(PATIENCE)
        self.ends()


def begun(consumer: PushConsumer, loop: Loop) -> threading.Event:
    """Run the loop in the consumer's thread; return what is set when its parts are closed."""
    closed = threading.Event()
    consumer._closing.callback(closed.set)
    consumer._thread = consumer._in_a_thread(SimpleNamespace(), loop)  # type: ignore[arg-type]  # neither is real
    loop.may_begin.set()
    return closed


def in_a_hook(consumer: PushConsumer) -> Loop:
    return Loop(lambda: UserCallbacks("hook").tell("hook", consumer.shutdown))


def in_a_callback(consumer: PushConsumer) -> Loop:
    conf = with_guarded({"stats_cb": lambda _: consumer.shutdown()}, ["stats_cb"])
    return Loop(lambda: conf["stats_cb"]("{}"))


def in_a_hook_at_the_end(consumer: PushConsumer) -> Loop:
    return Loop(consumer._stop.set, lambda: UserCallbacks("hook").tell("hook", consumer.shutdown))


def in_a_listener(consumer: PushConsumer) -> Loop:
    def consume(works: Iterator[int]) -> None:
        for _ in works:
            consumer.shutdown()

    pool = ThreadListenerPool(1, consume)
    return Loop(lambda: pool.submit(1), lambda: closes(pool))


def in_an_async_listener(consumer: PushConsumer) -> Loop:
    async def consume(_work: int) -> None:
        consumer.shutdown()
        await asyncio.sleep(0)

    pool = AsyncListenerPool(1, consume)
    return Loop(lambda: pool.submit(1), lambda: closes(pool))


def closes(pool: Any) -> None:
    assert pool.close(5), "the listener waits for the consumer, which waits for the listener"


@pytest.mark.parametrize("where", [in_a_hook, in_a_callback, in_a_hook_at_the_end, in_a_listener, in_an_async_listener])
def test_code_of_the_program_may_end_its_own_consumer(
    where: Callable[[PushConsumer], Loop], caplog: pytest.LogCaptureFixture
) -> None:
    consumer = PushConsumer("departures")
    closed = begun(consumer, where(consumer))
    wait_until(lambda: not consumer.running, "the consumer has ended")
    assert closed.is_set(), "nobody else closes its clients"
    consumer.shutdown()
    assert [one.getMessage() for one in caplog.records] == []


def test_several_threads_wait_for_the_end_and_one_of_them_gets_the_failure() -> None:
    def refuse() -> None:
        raise KafkaRefused("no right")

    consumer, failed = PushConsumer("departures"), list[BaseException]()
    closed = begun(consumer, Loop(ends=refuse))

    def shut_down() -> None:
        try:
            consumer.shutdown()
        except KafkaRefused as error:
            failed.append(error)
        assert closed.is_set()
        assert not consumer.running

    threads = [threading.Thread(target=shut_down) for _ in range(8)]
    for one in threads:
        one.start()
    for one in threads:
        one.join()
    assert len(failed) == 1


def test_a_shutdown_waits_until_a_start_in_another_thread_has_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    consumer = (
        PushConsumer("departures").subscribe("flights").register_message_listener(lambda _messages, _context: None)
    )
    steps, waiting, closed = list[str](), threading.Event(), threading.Event()

    class Follower:
        def start(self) -> None:
            """Nothing to follow."""

        def wait_until_loaded(self, stop: threading.Event) -> bool:
            waiting.set()
            assert stop.wait(PATIENCE)
            closed.wait(0.2)  # time for a shutdown that does not wait
            steps.append("given up")
            return False

        def close(self) -> None:
            steps.append("closed")
            closed.set()

    monkeypatch.setattr(type(consumer._settings), "groups_follower", lambda _: Follower())
    starting = threading.Thread(target=consumer.start)
    starting.start()
    assert waiting.wait(PATIENCE)
    consumer.shutdown()
    starting.join()
    assert steps == ["given up", "closed"]


def test_a_signal_handler_may_end_a_consumer_while_its_parts_are_made(monkeypatch: pytest.MonkeyPatch) -> None:
    consumer = (
        PushConsumer("departures", message_model=MessageModel.BROADCASTING)
        .subscribe("flights")
        .register_message_listener(lambda _messages, _context: None)
    )
    closed, loop = threading.Event(), Loop()
    loop.may_begin.set()

    def build(builder: LoopBuilder) -> Loop:
        signal.raise_signal(signal.SIGUSR1)
        builder.closing.callback(closed.set)
        return loop

    follower = SimpleNamespace(
        start=lambda: None, close=lambda: None, wait_until_loaded=lambda _stop: True, groups=Groups()
    )
    monkeypatch.setattr(type(consumer._settings), "groups_follower", lambda _: follower)
    monkeypatch.setattr(LoopBuilder, "build", build)
    before = signal.signal(signal.SIGUSR1, lambda *_: consumer.shutdown())
    try:
        consumer.start()
    finally:
        signal.signal(signal.SIGUSR1, before)
    assert closed.is_set()
    assert not consumer.running


def test_the_error_that_ended_a_consumer_is_told_though_a_log_handler_raises(monkeypatch: pytest.MonkeyPatch) -> None:
    def ends() -> None:
        raise KafkaRefused("not allowed")

    def raises(*_: object) -> None:
        raise OSError("a log handler")

    monkeypatch.setattr("reconsume.consumers.push_consumer.logger.logger.handle", raises)
    consumer = PushConsumer("departures")
    begun(consumer, Loop(ends))
    with pytest.raises(KafkaRefused, match="not allowed"):
        consumer.shutdown()
