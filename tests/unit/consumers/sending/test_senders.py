"""What a sender waits for."""

from __future__ import annotations

import time
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
