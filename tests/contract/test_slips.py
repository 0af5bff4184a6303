"""Whatever listeners do, their messages go on and so do the threads that call them."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from reconsume.consumers import ConsumeOrderlyStatus, Message
from reconsume.delay_levels.errors import IllegalSetting
from tests.contract.worlds import InMemoryWorld, World
from tests.integration.installation import SUCCESS
from tests.support.slips import IN_ANY_WAY, IN_BOTH_WAYS, IN_ORDER, RAISED, Slip

HEALTHY = b"healthy"


def in_this(world: World, slips: Mapping[str, Slip]) -> dict[bytes, Slip]:
    """What a listener may do there, by body; in memory a KeyboardInterrupt is for the test, as Ctrl-C is."""
    for_the_test = {"KeyboardInterrupt"} if isinstance(world, InMemoryWorld) else set[str]()
    return {name.encode(): slip for name, slip in slips.items() if name not in for_the_test}


def listeners() -> int:
    return sum(one.name.startswith("reconsume-listener") for one in threading.enumerate())


def dead_with_their_causes(world: World, group: str, slips: Mapping[bytes, Slip]) -> None:
    topic = world.names.dead_letter(group)
    world.until(lambda: len(world.read(topic)) >= len(slips), "each slip's message is a dead letter")
    letters = world.read(topic)
    assert sorted(letter.value or b"" for letter in letters) == sorted(slips)
    for letter in letters:
        cause = slips[letter.value or b""].cause
        assert cause in (letter["__dlq.errors.message"] or ""), letter.value


def test_slips_cost_no_thread_and_a_healthy_message_comes_through(world: World) -> None:
    group, topic = world.name("slips"), world.topic("slips")
    slips = in_this(world, IN_ANY_WAY | IN_BOTH_WAYS)
    consumed = threading.Event()

    def listener(messages: Sequence[Message], context: Any) -> Any:
        if (slip := slips.get(messages[0].body or b"")) is not None:
            return slip.act(messages, context)
        consumed.set()
        return SUCCESS

    with world.consumer(group, topic, listener, max_reconsume_times=0):
        before = listeners()
        world.produce(topic, *slips)
        dead_with_their_causes(world, group, slips)
        world.produce(topic, HEALTHY)
        world.until(consumed.is_set, "the healthy message is consumed")
        world.until(lambda: world.committed(group, topic) == len(slips) + 1, "all are committed")
        assert listeners() == before


async def exits_in_a_task(_messages: Sequence[Message], _context: Any) -> Any:
    async def exit_it() -> None:
        raise SystemExit(7)

    await asyncio.create_task(exit_it())


async def cancels_itself(_messages: Sequence[Message], _context: Any) -> Any:
    task = asyncio.current_task()
    assert task is not None
    task.cancel()
    await asyncio.Event().wait()


def test_slips_of_async_listeners_too(world: World) -> None:
    group, topic = world.name("async-slips"), world.topic("async-slips")
    slips = in_this(world, IN_ANY_WAY | IN_BOTH_WAYS)
    slips[b"StopIteration"] = Slip(slips[b"StopIteration"].act, "coroutine raised StopIteration")
    tasks = {b"exits": exits_in_a_task, b"cancels": cancels_itself}
    consumed = threading.Event()

    async def listener(messages: Sequence[Message], context: Any) -> Any:
        body = messages[0].body or b""
        if body in tasks:
            return await tasks[body](messages, context)
        if (slip := slips.get(body)) is not None:
            return slip.act(messages, context)
        consumed.set()
        return SUCCESS

    with world.consumer(group, topic, listener, max_reconsume_times=0):
        world.produce(topic, *slips, *tasks)
        causes = {b"exits": Slip(lambda *_: None, "7"), b"cancels": Slip(lambda *_: None, "CancelledError")}
        dead_with_their_causes(world, group, slips | causes)
        world.produce(topic, HEALTHY)
        world.until(consumed.is_set, "the healthy message is consumed")
        world.until(lambda: world.committed(group, topic) == len(slips) + 3, "all are committed")


def test_slips_in_order_are_dead_in_their_place(world: World) -> None:
    group, topic = world.name("slips-in-order"), world.topic("slips-in-order")
    slips = in_this(world, IN_ORDER)
    consumed = threading.Event()

    def listener(messages: Sequence[Message], context: Any) -> Any:
        if (slip := slips.get(messages[0].body or b"")) is not None:
            return slip.act(messages, context)
        consumed.set()
        return ConsumeOrderlyStatus.SUCCESS

    with world.consumer(group, topic, listener, orderly=True, max_reconsume_times=0):
        before = listeners()
        world.produce(topic, *slips, HEALTHY)
        dead_with_their_causes(world, group, slips)
        world.until(consumed.is_set, "the healthy message behind them is consumed")
        world.until(lambda: world.committed(group, topic) == len(slips) + 1, "all are committed")
        assert listeners() == before


def test_the_drop_in_takes_every_exception_as_a_cause_and_only_an_int_as_a_level(world: World) -> None:
    group, topic = world.name("slips-by-hand"), world.topic("slips-by-hand")
    slips = in_this(world, RAISED)
    world.produce(topic, *slips)
    with world.drop_in(group, max_reconsume_times=0) as consumer:
        consumer.subscribe([topic])
        for _ in slips:
            message: Any = world.until(lambda: consumer.poll(0.1), "a message")
            for level in (None, "5", 2.0, True):
                with pytest.raises(IllegalSetting, match="delay_level must be an int, got "):
                    consumer.send_message_back(message, level)  # type: ignore[arg-type]
            try:
                slips[message.value() or b""].act([message], None)
            except BaseException as error:  # noqa: BLE001 - that is what it is for
                consumer.send_message_back(message, cause=error)
        dead_with_their_causes(world, group, slips)
