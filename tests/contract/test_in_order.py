"""Orderly listeners: in their place, by partition or by key, over a restart too."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from reconsume.consumers import ConsumeOrderlyContext, ConsumeOrderlyStatus, Message
from tests.contract.worlds import World

OK = ConsumeOrderlyStatus.SUCCESS
SUSPEND = ConsumeOrderlyStatus.SUSPEND_CURRENT_QUEUE_A_MOMENT


class Seen:
    """An orderly listener: what is in `failing` is suspended."""

    def __init__(self, *failing: bytes, wait_ms: int = 50) -> None:
        self.failing = set(failing)
        self.calls: list[tuple[bytes | None, int]] = []
        self._wait_ms = wait_ms

    def __call__(self, messages: Sequence[Message], context: ConsumeOrderlyContext) -> ConsumeOrderlyStatus:
        context.suspend_current_queue_time_millis = self._wait_ms
        (message,) = messages
        self.calls.append((message.body, message.reconsume_times))
        return SUSPEND if message.body in self.failing else OK

    @property
    def bodies(self) -> list[bytes | None]:
        return [body for body, _ in self.calls]


def test_a_failed_message_holds_up_those_behind_it(world: World) -> None:
    group, topic = world.name("suspends"), world.topic("suspends")
    world.produce(topic, b"a", b"b", b"c")
    seen = Seen(b"b")
    with world.consumer(group, topic, seen, orderly=True):
        world.until(lambda: seen.calls.count((b"b", 2)), "its third try")
        assert b"c" not in seen.bodies
        seen.failing.clear()
        world.until(lambda: world.committed(group, topic) == 3, "all are committed")
    tries = seen.bodies.count(b"b")
    assert seen.bodies == [b"a", *([b"b"] * tries), b"c"]
    assert [times for body, times in seen.calls if body == b"b"] == list(range(tries))


def test_an_exhausted_message_leaves_and_those_behind_it_go_on(world: World) -> None:
    group, topic = world.name("leaves"), world.topic("leaves")
    world.produce(topic, b"a", b"b", b"c", key=b"k")
    seen = Seen(b"b")
    with world.consumer(group, topic, seen, orderly=True, max_reconsume_times=2):
        (letter,) = world.until(lambda: world.read(world.names.dead_letter(group)), "the dead letter")
        world.until(lambda: world.committed(group, topic) == 3, "all are committed")
    assert seen.calls == [(b"a", 0), (b"b", 0), (b"b", 1), (b"b", 2), (b"c", 0)]
    assert (letter.key, letter.value, letter["ORIGIN_MESSAGE_ID"]) == (b"k", b"b", f"{topic}/0/1")
    assert world.read(world.names.retry(group)) == []


@pytest.mark.parametrize("per_key", [False, True])
def test_reading_that_waits_for_a_commit_of_the_listener_is_told_once(
    world: World, per_key: bool, caplog: pytest.LogCaptureFixture
) -> None:
    """No listener is called any more that could return COMMIT."""
    group, topic = world.name(f"full-{per_key}"), world.topic(f"full-{per_key}")
    bodies: list[bytes | None] = []

    def keeps_open(messages: Sequence[Message], context: ConsumeOrderlyContext) -> ConsumeOrderlyStatus:
        context.auto_commit = False
        bodies.extend(message.body for message in messages)
        return OK

    def told() -> list[str]:
        return [text for text in caplog.messages if "COMMIT" in text]

    for number in range(5):
        world.produce(topic, b"%d" % number, key=b"%d" % number)
    with world.consumer(group, topic, keeps_open, orderly=True, per_key=per_key, pull_threshold_for_queue=2):
        world.until(told, "the warning")
    (text,) = told()
    assert text.startswith(f"{topic}-0 is not read: all {len(bodies)} messages that may be open succeeded with ")


@pytest.mark.parametrize("exactly_once", [False, True])
def test_with_an_order_of_keys_only_the_key_waits_and_a_restart_goes_on_there(world: World, exactly_once: bool) -> None:
    group, topic = world.name(f"keys-{exactly_once}"), world.topic(f"keys-{exactly_once}")
    for body in (b"a1", b"b1", b"a2", b"b2"):
        world.produce(topic, body, key=body[:1])
    seen = Seen(b"a1", wait_ms=300)
    with world.consumer(group, topic, seen, orderly=True, per_key=True, exactly_once=exactly_once):
        world.until(lambda: (b"a1", 1) in seen.calls and b"b2" in seen.bodies, "a second try, and the other key")
    assert [body for body in seen.bodies if body != b"a1"] == [b"b1", b"b2"]
    assert world.committed(group, topic) == 0, "the smallest that is not finished"
    failures = seen.bodies.count(b"a1")
    again = Seen()
    with world.consumer(group, topic, again, orderly=True, per_key=True, exactly_once=exactly_once):
        world.until(lambda: world.committed(group, topic) == 4, "all are committed")
    assert again.calls == [(b"a1", failures), (b"a2", 0)], "what was done ahead is not done again"


def test_an_async_listener_in_order(world: World) -> None:
    group, topic = world.name("async-order"), world.topic("async-order")
    world.produce(topic, b"a", b"b", b"c")
    calls: list[tuple[bytes | None, int]] = []

    async def listener(messages: Sequence[Message], context: ConsumeOrderlyContext) -> ConsumeOrderlyStatus:
        context.suspend_current_queue_time_millis = 10
        calls.append((messages[0].body, messages[0].reconsume_times))
        if calls[-1] == (b"b", 0):
            raise ValueError("not yet")
        return OK

    with world.consumer(group, topic, listener, orderly=True):
        world.until(lambda: world.committed(group, topic) == 3, "all are committed")
    assert calls == [(b"a", 0), (b"b", 0), (b"b", 1), (b"c", 0)]
