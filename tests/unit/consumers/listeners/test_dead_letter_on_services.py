"""What becomes of messages whose failure is not worth a retry, in chunks and in lanes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest

from reconsume.consumers.listener import (
    ConsumeConcurrentlyContext,
    ConsumeConcurrentlyStatus,
    ConsumeOrderlyContext,
    SendBack,
)
from reconsume.consumers.listeners.circuit_breaker import CircuitBreaker
from reconsume.consumers.message import Message
from reconsume.consumers.partitions.process_queue import ProcessQueue
from reconsume.delay_levels.errors import SendBackFailed
from reconsume.delay_levels.wire.send_back_copy import Cause
from tests.unit.consumers.doubles import Clock, RecordingWriter, chunk_of, given_again, safe_offset, service_of
from tests.unit.consumers.listeners.test_orderly import SUCCESS as IN_ORDER
from tests.unit.consumers.listeners.test_orderly import World, flights

SUCCESS = ConsumeConcurrentlyStatus.CONSUME_SUCCESS

Raise = Callable[[list[int], Any], None]


def hopeless(*offsets: int) -> Raise:
    """Raises a ValueError for batches with one of these."""

    def fail(batch: list[int], _context: Any) -> None:
        if set(batch) & set(offsets):
            raise ValueError(f"of {batch}")

    return fail


class Concurrent:
    """A service with a listener that raises as told, and what it was called for."""

    def __init__(self, fail: Raise, breaker: CircuitBreaker | None = None) -> None:
        self.calls: list[list[int]] = []
        self.clock, self.writer = Clock(), RecordingWriter()
        self.fail = fail
        self.service = service_of(
            self._listener,
            self.writer,
            self.clock,
            dead_letter_on=(ValueError, KeyError),
            circuit_breaker=breaker,
        )

    def _listener(
        self, messages: Sequence[Message], context: ConsumeConcurrentlyContext
    ) -> ConsumeConcurrentlyStatus | None:
        offsets = [message.offset for message in messages]
        self.calls.append(offsets)
        self.fail(offsets, context)
        return SUCCESS

    def again(self) -> None:
        """Call the listener for all that is due for it."""
        for chunk in given_again(self.service):
            self.service.consume(chunk)

    @property
    def sent_back(self) -> list[tuple[str, int]]:
        return [(one.stored.origin_message_id, one.delay_level) for one in self.writer.requests]


@pytest.mark.parametrize("error", [ValueError("no dep_time"), KeyError("dep_time")], ids=repr)
def test_a_listed_error_makes_a_dead_letter_with_its_cause(error: Exception) -> None:
    def fail(_batch: list[int], _context: Any) -> None:
        raise error

    one, chunk = Concurrent(fail), chunk_of(1)
    one.service.consume(chunk)
    assert one.sent_back == [("flights/0/0", -1)]
    cause = one.writer.requests[0].cause
    assert cause is not None
    assert (cause.message, cause.exception_class) == (str(error), f"builtins.{type(error).__name__}")
    assert "in fail" in (cause.stacktrace or "")
    assert safe_offset(chunk.queue) == 0, "not before the dead letter is acknowledged"


def test_another_error_and_a_wish_for_later_are_retried() -> None:
    def fail(_batch: list[int], _context: Any) -> None:
        raise ConnectionError("refused")

    one = Concurrent(fail)
    one.service.consume(chunk_of(1))
    assert one.sent_back == [("flights/0/0", 0)]


@pytest.mark.parametrize("level", [5, -1])
def test_a_level_that_the_listener_sets_wins(level: int) -> None:
    def fail(_batch: list[int], context: ConsumeConcurrentlyContext) -> None:
        context.delay_level_when_next_consume = level
        raise ValueError("later, please")

    one = Concurrent(fail)
    one.service.consume(chunk_of(2))
    assert one.sent_back == [("flights/0/0", level), ("flights/0/1", level)]


def test_of_a_batch_only_what_fails_alone_is_dead() -> None:
    one, chunk = Concurrent(hopeless(1)), chunk_of(3)
    one.service.consume(chunk)
    assert one.sent_back == []
    assert one.service.next_due_ms() == one.clock.now
    one.again()
    assert one.calls == [[0, 1, 2], [0], [1], [2]]
    assert one.sent_back == [("flights/0/1", -1)]
    assert safe_offset(chunk.queue) == 1
    one.writer.waiting[0](None)
    assert safe_offset(chunk.queue) == 3


def test_messages_given_one_by_one_go_before_those_that_wait_for_a_local_try() -> None:
    one = Concurrent(hopeless(0, 10))
    one.service.consume(first := chunk_of(1))
    refused = one.writer.waiting.pop()
    refused(SendBackFailed("refused"))
    one.service.consume(chunk_of(2, queue=first.queue, start=10))
    one.again()
    assert one.calls == [[0], [10, 11], [10], [11]]


def test_a_partition_that_goes_meanwhile_takes_its_messages_with_it() -> None:
    one, chunk = Concurrent(hopeless(1)), chunk_of(2)
    one.service.consume(chunk)
    chunk.queue.drop()
    one.again()
    assert one.calls == [[0, 1]]


def test_a_listener_that_judges_its_messages_does_not_open_the_circuit() -> None:
    one = Concurrent(hopeless(0, 1, 2, 3), CircuitBreaker(minimum_calls=1))
    for offset in range(4):
        one.service.consume(chunk_of(1, start=offset))
    assert not one.service.is_suspended(ProcessQueue("flights", 0))
    assert {level for _, level in one.sent_back} == {-1}


def test_in_order_a_listed_error_is_dead_in_its_first_failure_and_the_next_one_waits_for_that() -> None:
    world = in_order(hopeless(0)).read(*flights(0, 1)).run()
    assert world.calls == [[0]]
    assert [(one.stored.origin_message_id, one.delay_level) for one in world.writer.requests] == [("flights/0/0", -1)]
    assert (cause := world.writer.requests[0].cause) is not None
    assert cause.exception_class == "builtins.ValueError"
    world.writer.waiting[0](None)
    world.run()
    assert world.calls == [[0], [1]]
    assert safe_offset(world.queue) == 2


def test_in_order_a_refused_dead_letter_waits_5_s_as_every_refused_send_back() -> None:
    world = in_order(hopeless(0))
    world.writer.answers = [SendBackFailed("refused")]
    world.read(*flights(0, 1)).run()
    assert world.after(4_999).calls == [[0]]
    assert world.after(1).calls == [[0], [0]]


def test_in_order_another_error_waits_in_its_place() -> None:
    def fail(_batch: list[int], _context: Any) -> None:
        raise ConnectionError("refused")

    world = in_order(fail).read(*flights(0, 1)).run()
    assert (world.calls, world.writer.requests) == ([[0]], [])


def test_in_order_a_time_to_wait_that_the_listener_sets_wins() -> None:
    def fail(_batch: list[int], context: ConsumeOrderlyContext) -> None:
        context.suspend_current_queue_time_millis = 50
        raise ValueError("soon")

    world = in_order(fail).read(*flights(0)).run()
    assert world.writer.requests == []
    assert world.after(50).counts == [[0], [1]]


def test_in_order_a_batch_is_given_one_by_one_and_keeps_its_order() -> None:
    world = in_order(hopeless(1), batch_size=3).read(*flights(0, 1, 2, 3, 4, 5)).run()
    assert world.calls == [[0, 1, 2]]
    world.after(0)
    assert world.calls[1:] == [[0], [1]]
    assert [one.stored.origin_message_id for one in world.writer.requests] == ["flights/0/1"]
    world.writer.waiting[0](None)
    world.run()
    assert world.calls[3:] == [[2], [3, 4, 5]]
    assert {count for counts in world.counts for count in counts} == {0}, "the search counts as no attempt"
    assert safe_offset(world.queue) == 6


def test_what_an_app_wants_one_by_one_is_given_so_without_what_it_has_acknowledged() -> None:
    def fail(batch: list[int], _context: Any) -> None:
        if len(batch) > 1:
            raise SendBack(Cause("a batch"), 0, 1, one_by_one=True)

    one = Concurrent(fail)
    one.service.consume(chunk_of(3))
    one.again()
    assert one.calls == [[0, 1, 2], [1], [2]]
    world = in_order(fail, batch_size=3).read(*flights(0, 1, 2)).run().after(0)
    assert world.calls == [[0, 1, 2], [1], [2]]


def in_order(fail: Raise, batch_size: int = 1) -> World:
    """A lane whose listener raises as told."""

    def answer(batch: list[int], context: ConsumeOrderlyContext) -> object:
        fail(batch, context)
        return IN_ORDER

    return World(answer, batch_size=batch_size, dead_letter_on=(ValueError,))
