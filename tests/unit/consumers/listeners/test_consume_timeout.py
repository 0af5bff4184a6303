"""A listener that takes longer than the timeout."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from reconsume.consumers.listener import ConsumeConcurrentlyContext, ConsumeConcurrentlyStatus
from reconsume.consumers.listeners.concurrently import TIMEOUT_LEVEL
from reconsume.consumers.message import Message
from reconsume.consumers.partitions.process_queue import chunks_of
from reconsume.delay_levels.errors import SendBackFailed
from tests.unit.consumers.doubles import Clock, RecordingWriter, chunk_of, given_again, safe_offset, service_of

SUCCESS = ConsumeConcurrentlyStatus.CONSUME_SUCCESS
LATER = ConsumeConcurrentlyStatus.RECONSUME_LATER
TIMEOUT_MS = 900_000.0


def succeeds(_messages: Sequence[Message], _context: ConsumeConcurrentlyContext) -> ConsumeConcurrentlyStatus:
    return SUCCESS


class Late:
    """A listener that takes longer than the timeout; the look for expired messages comes while it runs."""

    def __init__(self, status: ConsumeConcurrentlyStatus, answer: SendBackFailed | None = None) -> None:
        self.clock, self.writer, self.chunk = Clock(), RecordingWriter(answers=[answer]), chunk_of(1)
        self.status = status
        self.look = True
        self.service = service_of(self._listener, self.writer, self.clock)

    def _listener(
        self, _messages: Sequence[Message], _context: ConsumeConcurrentlyContext
    ) -> ConsumeConcurrentlyStatus:
        self.clock.now += TIMEOUT_MS + 1
        if self.look:
            self.service.expire(self.chunk.queue, TIMEOUT_MS)
        return self.status


@pytest.mark.rule("CC-03", "T-28")
def test_a_late_success_is_an_acknowledgement_where_nobody_looked_meanwhile() -> None:
    late = Late(SUCCESS)
    late.look = False
    late.service.consume(late.chunk)
    assert late.writer.requests == []
    assert safe_offset(late.chunk.queue) == 1


@pytest.mark.rule("EX-04", "CC-17")
def test_a_message_that_timed_out_is_sent_back_on_level_3_and_says_why() -> None:
    late = Late(SUCCESS)
    late.service.consume(late.chunk)
    assert [request.delay_level for request in late.writer.requests] == [TIMEOUT_LEVEL] == [3]
    assert late.writer.requests[0].cause is not None
    assert late.writer.requests[0].cause.message == "consume timeout: the listener ran for over 900 s"
    assert safe_offset(late.chunk.queue) == 1


@pytest.mark.rule("EX-05", "CC-17", "T-27", "T-30")
@pytest.mark.parametrize("status", [SUCCESS, LATER])
def test_the_late_result_of_a_message_that_timed_out_is_ignored(status: ConsumeConcurrentlyStatus) -> None:
    late = Late(status)
    late.service.consume(late.chunk)
    assert len(late.writer.requests) == 1


@pytest.mark.rule("EX-03")
def test_exactly_the_timeout_is_in_time() -> None:
    clock, writer, chunk = Clock(), RecordingWriter(), chunk_of(1)
    service = service_of(succeeds, writer, clock)
    chunk.queue.start(chunk, 0)
    clock.now = TIMEOUT_MS
    service.expire(chunk.queue, TIMEOUT_MS)
    assert writer.requests == []
    clock.now += 1
    service.expire(chunk.queue, TIMEOUT_MS)
    assert len(writer.requests) == 1


@pytest.mark.rule("EX-02")
def test_one_look_finds_every_message_that_timed_out() -> None:
    clock, writer, chunk = Clock(), RecordingWriter(), chunk_of(100)
    service = service_of(succeeds, writer, clock)
    for one in list(chunks_of(chunk.queue, chunk, 1))[1:]:
        chunk.queue.start(one, 0)
    clock.now = TIMEOUT_MS + 1
    service.expire(chunk.queue, TIMEOUT_MS)
    assert len(writer.requests) == 99


@pytest.mark.rule("EX-04", "SB-11")
def test_a_timed_out_message_whose_send_back_fails_stays() -> None:
    late = Late(LATER, SendBackFailed("no inbox"))
    late.writer.answers.append(SendBackFailed("no inbox"))
    late.service.consume(late.chunk)
    assert safe_offset(late.chunk.queue) == 0
    late.clock.now += 5_000
    assert given_again(late.service)
