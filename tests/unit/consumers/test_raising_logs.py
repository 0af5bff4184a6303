"""A log handler or a filter of the program that raises costs no message and no verdict."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from typing import Any

import pytest

from reconsume.consumers import ConsumeOrderlyStatus, Message
from reconsume.consumers.partitions.process_queue import ProcessQueue
from tests.unit.consumers import doubles
from tests.unit.consumers.doubles import Clock, RecordingWriter, chunk_of, message_at
from tests.unit.consumers.hooked import Pool, World

SIZE = 3


class Raises(logging.Handler):
    """A handler of a program, which does not guard itself as those of the standard library do."""

    def emit(self, record: logging.LogRecord) -> None:
        del record
        raise SystemExit(8)


@pytest.fixture
def all_logging_raises() -> Iterator[None]:
    handler, logger = Raises(), logging.getLogger("reconsume")
    level = logger.level
    logger.addHandler(handler)
    logger.setLevel(logging.DEBUG)
    yield
    logger.removeHandler(handler)
    logger.setLevel(level)


def hopeless(_messages: Sequence[Message], _context: Any) -> Any:
    raise ValueError("no dep_time")


@pytest.mark.usefixtures("all_logging_raises")
def test_a_batch_of_which_one_is_hopeless_is_repeated_one_by_one_though_logging_raises() -> None:
    chunk, clock = chunk_of(SIZE), Clock()
    service = doubles.service_of(hopeless, RecordingWriter(), clock, dead_letter_on=(ValueError,))
    service.consume(chunk)
    assert [len(one) for one in doubles.given_again(service)] == [1] * SIZE
    queue, pool = ProcessQueue("flights", 0), Pool()
    in_order = World([]).orderly(hopeless)
    in_order.dead_letter_on = (ValueError,)
    in_order.pool = pool
    in_order.accept(queue, queue.begin([message_at(offset) for offset in range(SIZE)]))
    lane = pool.lanes.pop()
    in_order.consume(lane)
    assert len(lane.waiting) == SIZE


@pytest.mark.usefixtures("all_logging_raises")
def test_after_an_error_of_ours_no_message_is_forgotten_though_logging_raises(monkeypatch: pytest.MonkeyPatch) -> None:
    def cannot(*_: object) -> None:
        raise RuntimeError("a planted error")

    queue, pool = ProcessQueue("flights", 0), Pool()
    service = World([]).orderly(lambda _messages, _context: ConsumeOrderlyStatus.SUCCESS)
    service.pool = pool
    service.accept(queue, queue.begin([message_at(0)]))
    monkeypatch.setattr(queue, "finish_all", cannot)
    lane = pool.lanes.pop()
    service.consume(lane)
    assert [message.offset for message in lane.waiting] == [0]
