"""What becomes of a chunk after its listener was called."""

from __future__ import annotations

from collections.abc import Callable, MutableSequence, Sequence
from types import SimpleNamespace
from typing import NoReturn

import pytest

from reconsume.consumers.listener import ConsumeConcurrentlyContext, ConsumeConcurrentlyStatus, Listener
from reconsume.consumers.message import Message, MessageQueue
from reconsume.consumers.partitions.process_queue import ProcessQueue
from reconsume.delay_levels.errors import SendBackFailed
from tests.unit.consumers.doubles import (
    RETRY_TOPIC,
    Clock,
    RecordingWriter,
    chunk_of,
    given_again,
    loop_on,
    safe_offset,
    service_of,
)

SUCCESS = ConsumeConcurrentlyStatus.CONSUME_SUCCESS
LATER = ConsumeConcurrentlyStatus.RECONSUME_LATER


def returning(
    status: object, setting: Callable[[ConsumeConcurrentlyContext], None] = lambda _context: None
) -> Listener:
    """A listener that sets something in the context and returns a status, even one that there is not."""

    def listener(_messages: Sequence[Message], context: ConsumeConcurrentlyContext) -> ConsumeConcurrentlyStatus | None:
        setting(context)
        return status  # type: ignore[return-value]

    return listener


def raising(error: BaseException) -> Listener:
    def listener(_messages: Sequence[Message], _context: ConsumeConcurrentlyContext) -> NoReturn:
        raise error

    return listener


def consumed(listener: Listener, size: int = 3) -> tuple[RecordingWriter, ProcessQueue]:
    writer, chunk = RecordingWriter(), chunk_of(size)
    service_of(listener, writer, Clock()).consume(chunk)
    return writer, chunk.queue


@pytest.mark.rule("CC-04")
def test_success_finishes_and_sends_nothing_back() -> None:
    writer, queue = consumed(returning(SUCCESS))
    assert writer.requests == []
    assert (queue.size, safe_offset(queue)) == (0, 3)


@pytest.mark.rule("CC-01")
@pytest.mark.parametrize("error", [ValueError("no dep_time"), SystemExit(1), KeyboardInterrupt()], ids=repr)
def test_any_exception_means_reconsume_later_and_is_told_to_the_dead_letter(error: BaseException) -> None:
    writer, queue = consumed(raising(error))
    assert writer.origins == ["flights/0/0", "flights/0/1", "flights/0/2"]
    assert safe_offset(queue) == 0, "not acknowledged yet"
    cause = writer.requests[0].cause
    assert cause is not None
    assert cause.message == (str(error) or type(error).__name__)
    assert cause.exception_class == f"builtins.{type(error).__name__}"
    assert "in listener" in (cause.stacktrace or "")


@pytest.mark.rule("CC-02")
def test_none_means_reconsume_later() -> None:
    writer, _ = consumed(returning(None))
    assert len(writer.requests) == 3


@pytest.mark.rule("CC-01")
@pytest.mark.parametrize("status", ["CONSUME_SUCCESS", True], ids=repr)
def test_what_is_no_status_is_a_failure_that_says_so(status: object, caplog: pytest.LogCaptureFixture) -> None:
    writer, _ = consumed(returning(status))
    assert len(writer.requests) == 3
    assert writer.requests[0].cause is not None
    assert f"the listener returned {status!r}" in writer.requests[0].cause.message
    assert "the whole batch is sent back" in caplog.text


@pytest.mark.rule("CC-06", "CC-07", "CC-08", "T-13", "T-14")
@pytest.mark.parametrize(("ack_index", "sent_back"), [(5, []), (2, []), (1, [2]), (0, [1, 2]), (-1, [0, 1, 2])])
def test_success_with_an_ack_index_sends_back_what_comes_after_it(ack_index: int, sent_back: list[int]) -> None:
    writer, queue = consumed(returning(SUCCESS, lambda context: setattr(context, "ack_index", ack_index)))
    assert writer.origins == [f"flights/0/{offset}" for offset in sent_back]
    assert safe_offset(queue) == (sent_back[0] if sent_back else 3)


@pytest.mark.rule("CC-09", "T-14")
def test_an_impossible_ack_index_sends_the_whole_batch_back() -> None:
    writer, _ = consumed(returning(SUCCESS, lambda context: setattr(context, "ack_index", -2)))
    assert len(writer.requests) == 3


@pytest.mark.rule("CC-10", "T-13")
def test_reconsume_later_sends_all_back_whatever_the_ack_index_says() -> None:
    writer, _ = consumed(returning(LATER, lambda context: setattr(context, "ack_index", 1)))
    assert len(writer.requests) == 3


@pytest.mark.rule("CC-22")
@pytest.mark.parametrize("level", [0, 5, -1])
def test_the_wished_level_is_for_all_failed_messages_of_this_batch_only(level: int) -> None:
    levels = iter([level, 0])
    writer, clock = RecordingWriter(), Clock()
    listener = returning(LATER, lambda context: setattr(context, "delay_level_when_next_consume", next(levels)))
    service = service_of(listener, writer, clock)
    service.consume(chunk_of(2))
    service.consume(chunk_of(1, start=2))
    assert [request.delay_level for request in writer.requests] == [level, level, 0]


@pytest.mark.rule("CC-05")
def test_every_call_gets_a_new_context() -> None:
    contexts: list[ConsumeConcurrentlyContext] = []
    service = service_of(returning(SUCCESS, contexts.append), RecordingWriter(), Clock())
    service.consume(chunk_of(1))
    service.consume(chunk_of(1))
    assert contexts[0] is not contexts[1]


@pytest.mark.rule("TN-04")
def test_the_context_shows_where_the_batch_was_read() -> None:
    contexts: list[ConsumeConcurrentlyContext] = []
    service = service_of(returning(SUCCESS, contexts.append), RecordingWriter(), Clock())
    loop, _ = loop_on(SimpleNamespace(consumer_group_metadata=lambda: None))
    loop.partitions.assigned([("flights", 0), (RETRY_TOPIC, 2)])
    for queue in loop.partitions.queues.values():
        service.consume(chunk_of(1, queue=queue))
    assert contexts[0].message_queue == MessageQueue("flights", 0)
    assert contexts[1].message_queue == MessageQueue("%RETRY%departures", 2)


@pytest.mark.rule("CC-21")
def test_the_list_handed_to_the_listener_cannot_be_changed() -> None:
    given: list[Sequence[Message]] = []

    def listener(messages: Sequence[Message], _context: ConsumeConcurrentlyContext) -> ConsumeConcurrentlyStatus:
        given.append(messages)
        return SUCCESS

    consumed(listener)
    assert not isinstance(given[0], MutableSequence)
    with pytest.raises(TypeError):
        given[0][0] = given[0][1]  # type: ignore[index]


@pytest.mark.rule("SB-02", "SB-03", "BR-12")
@pytest.mark.parametrize("maximum", [None, 0, 3])
def test_a_send_back_names_group_message_wish_and_maximum(maximum: int | None) -> None:
    writer = RecordingWriter()
    service_of(returning(LATER), writer, Clock(), max_reconsume_times=maximum).consume(chunk_of(1))
    request = writer.requests[0]
    assert (request.group, request.delay_level, request.max_reconsume_times) == ("departures", 0, maximum)
    assert request.stored.origin_message_id == "flights/0/0"
    assert writer.keys_and_values == [(b"key", b"body")]


@pytest.mark.rule("CC-13", "T-15")
def test_a_message_is_finished_when_its_send_back_is_acknowledged_not_before() -> None:
    writer, queue = consumed(returning(LATER), 1)
    assert safe_offset(queue) == 0
    writer.waiting[0](None)
    assert safe_offset(queue) == 1


class Local:
    """A batch of three whose second send-back fails at time 0."""

    def __init__(self) -> None:
        self.clock = Clock()
        self.writer = RecordingWriter(answers=[None, SendBackFailed("no inbox"), None])
        self.seen: list[int] = []
        self.chunk = chunk_of(3)
        self.service = service_of(self._listener, self.writer, self.clock)
        self.service.consume(self.chunk)

    def _listener(self, messages: Sequence[Message], _context: ConsumeConcurrentlyContext) -> ConsumeConcurrentlyStatus:
        self.seen.extend(message.reconsume_times for message in messages)
        return LATER


@pytest.mark.rule("CC-11", "CC-13", "T-15")
def test_a_failed_send_back_holds_its_own_offset_and_not_the_others() -> None:
    local = Local()
    assert (local.chunk.queue.size, safe_offset(local.chunk.queue)) == (1, 1)


@pytest.mark.rule("CC-12", "SB-11")
def test_its_listener_is_called_again_after_exactly_5000_ms() -> None:
    local = Local()
    local.clock.now = 4_999
    assert given_again(local.service) == []
    local.clock.now = 5_000
    again = given_again(local.service)
    assert [message.kafka.offset for chunk in again for message in chunk] == [1]
    assert given_again(local.service) == [], "once"


@pytest.mark.rule("BR-18", "CC-11", "T-12")
def test_a_local_failure_counts_for_the_listener_and_not_in_the_record() -> None:
    local = Local()
    local.clock.now = 5_000
    local.writer.answers = [None]
    local.service.consume(given_again(local.service)[0])
    assert local.seen == [0, 0, 0, 1]
    assert local.writer.requests[-1].stored.reconsume_times == 0
    assert safe_offset(local.chunk.queue) == 3


@pytest.mark.rule("CC-12", "SB-11")
def test_it_is_tried_again_and_again_until_one_send_back_is_acknowledged() -> None:
    local = Local()
    for round_ in range(1, 4):
        local.clock.now = round_ * 5_000
        local.writer.answers = [SendBackFailed("still no inbox")]
        local.service.consume(given_again(local.service)[0])
    assert local.seen[3:] == [1, 2, 3]
    assert safe_offset(local.chunk.queue) == 1


@pytest.mark.rule("CC-15", "T-29")
def test_a_dropped_queue_is_not_tried_again() -> None:
    local = Local()
    local.chunk.queue.drop()
    local.clock.now = 5_000
    for chunk in given_again(local.service):
        local.service.consume(chunk)
    assert local.seen == [0, 0, 0]


@pytest.mark.rule("CC-15")
def test_the_listener_is_not_called_for_a_queue_that_was_dropped_before() -> None:
    calls: list[object] = []
    chunk = chunk_of(1)
    chunk.queue.drop()
    service_of(returning(SUCCESS, calls.append), RecordingWriter(), Clock()).consume(chunk)
    assert calls == []


@pytest.mark.rule("CC-15", "T-29")
@pytest.mark.parametrize("status", [SUCCESS, LATER])
def test_the_result_for_a_queue_that_was_dropped_meanwhile_is_discarded(status: ConsumeConcurrentlyStatus) -> None:
    chunk, writer = chunk_of(1), RecordingWriter()
    service_of(returning(status, lambda _context: chunk.queue.drop()), writer, Clock()).consume(chunk)
    assert writer.requests == []
    assert safe_offset(chunk.queue) == 0


@pytest.mark.rule("CC-16")
def test_an_empty_batch_does_nothing() -> None:
    writer, queue = consumed(returning(LATER), 0)
    assert writer.requests == []
    assert queue.to_commit is None
