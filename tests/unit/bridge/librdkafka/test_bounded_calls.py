"""Calls that may be left behind."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator
from types import FrameType

import pytest

from reconsume.bridge.librdkafka.bounded_calls import BoundedCalls, SecondCallUnended
from tests.support.waiting import PATIENCE


class Interrupted(Exception):
    """By a signal."""


@pytest.fixture
def calls() -> Iterator[BoundedCalls]:
    one = BoundedCalls()
    yield one
    one.close()


def test_what_a_call_raises_comes_back(calls: BoundedCalls) -> None:
    def fail() -> None:
        raise ValueError("refused")

    with pytest.raises(ValueError, match="refused"):
        calls.run(fail, 10)
    calls.run(lambda: None, 10)


def test_a_second_call_follows_in_the_same_thread_and_its_error_comes_back(calls: BoundedCalls) -> None:
    """A transaction costs one way there and one way back."""
    threads = list[int]()
    calls.run(lambda: threads.append(threading.get_ident()), 10, lambda: threads.append(threading.get_ident()))
    assert threads[0] == threads[1] != threading.get_ident()

    def fail() -> None:
        raise ValueError("refused")

    with pytest.raises(ValueError, match="refused"):
        calls.run(fail, 10, lambda: threads.append(0))
    with pytest.raises(ValueError, match="refused"):
        calls.run(lambda: None, 10, fail)
    assert 0 not in threads


def test_what_was_given_up_before_its_second_call_never_begins_it(calls: BoundedCalls) -> None:
    """A transaction that counts as undone must not be committed afterwards."""
    gate, done = threading.Event(), list[str]()
    with pytest.raises(TimeoutError) as given_up:
        calls.run(lambda: (gate.wait(PATIENCE), None)[1], 0.01, lambda: done.append("committed"), lambda: 60)
    assert not isinstance(given_up.value, SecondCallUnended)
    gate.set()
    calls.run(lambda: done.append("let go"), 60)
    assert done == ["let go"]


def test_a_second_call_that_does_not_end_is_told_from_a_first_one() -> None:
    gate, seconds, error = threading.Event(), 0.01, TimeoutError()
    while not isinstance(error, SecondCallUnended):
        # On a busy machine the first one may need more time than it gets.
        calls, seconds = BoundedCalls(), seconds * 2
        with pytest.raises(TimeoutError) as given_up:
            calls.run(lambda: None, seconds, lambda: (gate.wait(PATIENCE), None)[1], lambda: 0.01)
        error = given_up.value
        calls.close()
    gate.set()


def test_the_result_of_a_call_that_was_not_waited_for_is_not_taken_for_another_ones(calls: BoundedCalls) -> None:
    """A worker ended with the error of a commit when it let go of its producer."""
    begun, interrupted, gate, done = threading.Event(), threading.Event(), threading.Event(), list[str]()

    def commit() -> None:
        begun.set()
        gate.wait(PATIENCE)
        raise ValueError("of the commit")

    def interrupt(_number: int, _frame: FrameType | None) -> None:
        if not interrupted.is_set():
            interrupted.set()
            raise Interrupted

    def signal_when_begun() -> None:
        """Again and again: one that comes just before the main thread waits does not wake it up."""
        begun.wait(PATIENCE)
        while not interrupted.wait(0.01):
            os.kill(os.getpid(), signal.SIGUSR1)

    before, signals = signal.signal(signal.SIGUSR1, interrupt), threading.Thread(target=signal_when_begun)
    try:
        signals.start()
        with pytest.raises(Interrupted):
            calls.run(commit, 30)
    finally:
        signals.join()
        signal.signal(signal.SIGUSR1, before)
    gate.set()
    calls.run(lambda: done.append("let go"), 30)
    assert done == ["let go"]
