"""What a sender waits for."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, cast

import pytest

from reconsume.consumers.partitions.process_queue import ProcessQueue
from reconsume.consumers.sending import senders
from reconsume.consumers.sending.send_back_log import SendBackLog
from reconsume.consumers.sending.senders import FailedMessage, PlainSender
from reconsume.delay_levels.errors import SendBackFailed
from tests.unit.consumers.doubles import RecordingWriter, message_at


class Idle:
    """A writer and a consumer with nothing to do."""

    def flush(self, _seconds: float) -> int:
        return 0

    def commit(self, _points: object, *, wait: bool, within: float) -> list[Any]:
        assert wait
        assert within
        return []


def test_one_that_was_closed_has_nothing_to_wait_for() -> None:
    """A consumer is closed after its sender, and settles once more in the rebalance of that."""
    idle = cast("Any", Idle())
    sender = PlainSender(log=SendBackLog("departures"), writer=idle, consumer=idle)
    sender.start()
    assert sender.settle((), 60)
    sender.close()
    began = time.monotonic()
    assert sender.settle((), 600)
    assert time.monotonic() - began < 300


class Kept:
    """A writer without an answer so far."""

    def __init__(self) -> None:
        self.written: list[Callable[[SendBackFailed | None], None]] = []
        self.breaks = False

    def send_back(self, _request: object, _key: object, _value: object, on_done: Any) -> None:
        if self.breaks:
            raise RuntimeError("a defect")
        self.written.append(on_done)


@pytest.mark.parametrize("error", [None, SendBackFailed("no answer")])
def test_a_message_that_fails_again_before_its_send_back_has_ended_waits_for_it(
    error: SendBackFailed | None,
) -> None:
    """As when a rebalance takes its partition and brings it back while a delay topic is away."""
    writer, ended = Kept(), list[tuple[int, SendBackFailed | None]]()
    sender = PlainSender(log=SendBackLog("departures"), writer=cast("Any", writer), consumer=cast("Any", Idle()))

    def fail(number: int, **more: Any) -> None:
        message, queue = message_at(7, **more), ProcessQueue("flights", 0)
        sender.send_back(FailedMessage(queue, message, 0, None, None, lambda _, told: ended.append((number, told))))

    fail(1, body=b"delayed")
    fail(2, body=b"delayed")
    fail(3, body=b"of a topic that was created again")
    assert len(writer.written) == 2
    writer.written[1](None)
    assert ended == [(3, None)]
    writer.written[0](error)
    assert sorted(ended[1:], key=lambda one: one[0]) == [(1, error), (2, error)]
    fail(4, body=b"delayed")
    assert len(writer.written) == 3, "it has ended, so the next failure is a new one"


def test_a_writer_that_raised_is_asked_again() -> None:
    writer, ended = Kept(), list[SendBackFailed | None]()
    sender = PlainSender(log=SendBackLog("departures"), writer=cast("Any", writer), consumer=cast("Any", Idle()))
    for writer.breaks in (True, False):
        queue = ProcessQueue("flights", 0)
        sender.send_back(FailedMessage(queue, message_at(7), 0, None, None, lambda _, told: ended.append(told)))
    assert [str(one) for one in ended] == ["a defect"]
    assert len(writer.written) == 1


def test_a_message_comes_back_to_its_listener_even_if_neither_the_writer_nor_the_log_works(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class Broken(RecordingWriter):
        def write(self, failed: FailedMessage) -> None:
            raise RuntimeError(f"a defect at {failed.message.offset}")

    def raises(*_said: object) -> None:
        raise OSError("the disk of the log is full")

    monkeypatch.setattr(senders.logger.logger, "handle", raises)
    ended: list[SendBackFailed | None] = []
    failed = FailedMessage(
        ProcessQueue("flights", 0), message_at(0), 0, None, None, lambda _, error: ended.append(error)
    )
    Broken().send_back(failed)
    assert [str(one) for one in ended] == ["a defect at 0"]
