"""What the log says while everything fails: a few lines of each kind a second, and the number of the others."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from reconsume.consumers.broadcasting.broadcasting import BroadcastSender, DropCounter
from reconsume.consumers.broadcasting.local_offsets import LocalOffsets
from reconsume.consumers.listeners.concurrently import ConcurrentlyService
from reconsume.consumers.message import Message
from reconsume.consumers.sending.send_back_log import SendBackLog
from reconsume.delay_levels.errors import SendBackFailed
from tests.unit.consumers.doubles import Clock, RecordingWriter, chunk_of, message_at, service_of
from tests.unit.consumers.hooked import Recording
from tests.unit.consumers.hooked import World as Hooked
from tests.unit.consumers.listeners.test_orderly import World

NUMBER = 1_000
FULL = SendBackFailed("the group is full")


def refuses(_messages: Sequence[Message], _context: Any) -> Any:
    raise ConnectionRefusedError("no database")


def slips(_messages: Sequence[Message], _context: Any) -> Any:
    return True


def concurrently(clock: Clock, number: int, *, listener: Callable[..., Any] = refuses) -> None:
    consume(service_of(listener, RecordingWriter(answers=[FULL] * (number + 1)), clock), clock, number)


def with_hooks(clock: Clock, number: int) -> None:
    world = Hooked([Recording()], clock, RecordingWriter(answers=[FULL] * (number + 1)))
    consume(world.concurrently(refuses), clock, number)


def consume(service: ConcurrentlyService, clock: Clock, number: int) -> None:
    """So many single messages in one second, and another one in the next."""
    service.consume_all(iter([chunk_of(1, start=offset) for offset in range(number)]))
    clock.now += 1_000
    service.consume(chunk_of(1, start=number))


def in_order(clock: Clock, number: int, *, listener: Callable[..., Any] = refuses) -> None:
    world = World(listener, maximum=0, clock=clock, per_key=True)
    world.writer.answers = [FULL] * (number + 1)
    world.read(*(message_at(offset, key=b"%d" % offset) for offset in range(number))).run()
    clock.now += 1_000
    world.read(message_at(number, key=b"%d" % number)).run()


def lines(caplog: pytest.LogCaptureFixture, text: str) -> list[logging.LogRecord]:
    return [one for one in caplog.records if text in one.getMessage() and one.levelno >= logging.WARNING]


def assert_limited(caplog: pytest.LogCaptureFixture, text: str) -> list[logging.LogRecord]:
    *first, last = lines(caplog, text)
    assert len(first) == 10
    assert last.getMessage().endswith("; 990 more such lines were left out")
    return [*first, last]


@pytest.mark.parametrize("consumed", [concurrently, with_hooks, in_order])
def test_in_an_outage_each_kind_of_line_has_its_own_limit(
    consumed: Callable[[Clock, int], None], caplog: pytest.LogCaptureFixture
) -> None:
    consumed(Clock(), NUMBER)
    failed = assert_limited(caplog, "the listener failed for (<Message flights-0@")
    assert all(one.exc_info for one in failed), "with their tracebacks"
    assert_limited(caplog, "was not sent back, its listener is called again in 5 s: the group is full")


@pytest.mark.parametrize(
    "consumed",
    [lambda clock: concurrently(clock, NUMBER, listener=slips), lambda clock: in_order(clock, NUMBER, listener=slips)],
)
def test_so_have_a_listeners_mistakes(consumed: Callable[[Clock], None], caplog: pytest.LogCaptureFixture) -> None:
    consumed(Clock())
    assert_limited(caplog, "the listener returned True")


def test_so_have_listeners_that_hang(caplog: pytest.LogCaptureFixture) -> None:
    clock = Clock()
    service, chunk = service_of(refuses, RecordingWriter(), clock, batch_size=NUMBER), chunk_of(NUMBER)
    chunk.queue.start(chunk, 0)
    clock.now = 1_000
    service.expire(chunk.queue, 500)
    assert len(lines(caplog, "its listener has run for over")) == 10


def test_so_have_messages_that_broadcasting_drops(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    offsets, clock = LocalOffsets.open(tmp_path), Clock()
    sender = BroadcastSender(log=SendBackLog("departures"), offsets=offsets, dropped=DropCounter())
    consume(service_of(refuses, sender, clock), clock, NUMBER)
    offsets.close()
    assert "(1001 so far)" in assert_limited(caplog, "failed and is dropped")[-1].getMessage()


def test_what_is_left_out_is_there_at_debug_with_its_traceback(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG, "reconsume")
    concurrently(Clock(), 12)
    failed = [one for one in caplog.records if "the listener failed for" in one.getMessage()]
    assert [one.levelname for one in failed] == ["WARNING"] * 10 + ["DEBUG"] * 2 + ["WARNING"]
    assert all(one.exc_info for one in failed)
