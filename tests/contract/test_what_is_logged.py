"""The log tells what becomes of each failed message."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any

import pytest

from reconsume.consumers import ConsumeOrderlyStatus, Message
from tests.contract.worlds import World

LOGGER = "reconsume.consumers.sending.send_back_log"


def lines(caplog: pytest.LogCaptureFixture) -> list[tuple[str, str]]:
    return [(one.levelname, one.getMessage()) for one in caplog.records if one.name == LOGGER]


def fails(_messages: Sequence[Message], _context: Any) -> Any:
    raise ValueError("no dep_time")


@pytest.mark.parametrize("exactly_once", [False, True])
def test_of_a_listener_that_fails(world: World, exactly_once: bool, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    group, topic = world.name(f"logged-{exactly_once}"), world.topic(f"logged-{exactly_once}")
    world.produce(topic, b"flight")
    with world.consumer(group, topic, fails, max_reconsume_times=1, exactly_once=exactly_once):
        world.until(lambda: world.read(world.names.dead_letter(group)), "the dead letter")
        world.until(lambda: len(lines(caplog)) == 4, "both are told")
    first, last = f"<Message {topic}-0@0>", f"<Message {world.names.retry(group)}-0@0>"
    assert lines(caplog) == [
        ("WARNING", f"the listener failed for ({first},)"),
        ("WARNING", f"{first} of group {group}: sent back, attempt 1 of 1, due in 1 s"),
        ("WARNING", f"the listener failed for ({last},)"),
        ("WARNING", f"{last} of group {group}: dead letter after 1 of 1 retries"),
    ]


def test_of_a_listener_in_order(world: World, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    group, topic = world.name("logged-in-order"), world.topic("logged-in-order")
    world.produce(topic, b"flight")

    def suspends(_messages: Sequence[Message], _context: Any) -> ConsumeOrderlyStatus:
        return ConsumeOrderlyStatus.SUSPEND_CURRENT_QUEUE_A_MOMENT

    with world.consumer(group, topic, suspends, orderly=True, max_reconsume_times=1):
        world.until(lambda: world.read(world.names.dead_letter(group)), "the dead letter")
        world.until(lambda: len(lines(caplog)) == 2, "both are told")
    message = f"<Message {topic}-0@0> of group {group}"
    assert lines(caplog) == [
        ("INFO", f"{message}: given again in its place, attempt 1 of 1, in 1 s"),
        ("WARNING", f"{message}: dead letter after 1 of 1 retries"),
    ]


@pytest.mark.parametrize("exactly_once", [False, True])
def test_of_the_drop_in(world: World, exactly_once: bool, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    group, topic = world.name(f"logged-by-hand-{exactly_once}"), world.topic(f"logged-by-hand-{exactly_once}")
    world.produce(topic, b"a", b"b")
    with world.drop_in(group, {"enable.auto.commit": False}, exactly_once=exactly_once) as consumer:
        consumer.subscribe([topic])
        for level in (0, -1):
            message: Any = world.until(lambda: consumer.poll(0.1), "a message")
            consumer.send_message_back(message, level, ValueError("no dep_time"))
    assert lines(caplog) == [
        ("INFO", f"<Message {topic}-0@0> of group {group}: sent back, attempt 1 of 16, due in 1 s"),
        ("WARNING", f"<Message {topic}-0@1> of group {group}: dead letter after 0 of 16 retries"),
    ]
