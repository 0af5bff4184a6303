"""Calls that may be left behind."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator
from types import FrameType

import pytest

from reconsume.bridge.librdkafka.bounded_calls import BoundedCalls


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


def test_the_result_of_a_call_that_was_not_waited_for_is_not_taken_for_another_ones(calls: BoundedCalls) -> None:
    """A worker ended with the error of a commit when it let go of its producer."""
    begun, gate, done = threading.Event(), threading.Event(), list[str]()

    def commit() -> None:
        begun.set()
        gate.wait(30)
        raise ValueError("of the commit")

    def interrupt(_number: int, _frame: FrameType | None) -> None:
        raise Interrupted

    def signal_when_begun() -> None:
        begun.wait(30)
        os.kill(os.getpid(), signal.SIGUSR1)

    before = signal.signal(signal.SIGUSR1, interrupt)
    try:
        threading.Thread(target=signal_when_begun).start()
        with pytest.raises(Interrupted):
            calls.run(commit, 30)
    finally:
        signal.signal(signal.SIGUSR1, before)
    gate.set()
    calls.run(lambda: done.append("let go"), 30)
    assert done == ["let go"]
