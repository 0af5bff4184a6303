"""Orderly listeners on a real Kafka: order, suspension, poison that stays counted, one consumer for a partition."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

import pytest

from reconsume.consumers import ConsumeOrderlyContext, ConsumeOrderlyStatus, Message, PushConsumer
from tests.integration.installation import Installation, installation
from tests.support.waiting import PATIENCE, wait_until

pytestmark = [pytest.mark.kafka, pytest.mark.early(3)]

SUCCESS = ConsumeOrderlyStatus.SUCCESS
SUSPEND = ConsumeOrderlyStatus.SUSPEND_CURRENT_QUEUE_A_MOMENT
PROTOCOLS: list[dict[str, Any]] = [{"session.timeout.ms": 6_000}, {"group.protocol": "consumer"}]


@pytest.fixture(scope="module")
def here(bootstrap_servers: str) -> Iterator[Installation]:
    with installation(bootstrap_servers) as one:
        yield one


@dataclass
class InOrder:
    """A listener that remembers its calls, and fails some bodies so many times."""

    failing: dict[bytes, int] = field(default_factory=dict)
    suspend_ms: int = 10
    seen: list[tuple[bytes, int]] = field(default_factory=list)

    def __call__(self, messages: Sequence[Message], context: ConsumeOrderlyContext) -> ConsumeOrderlyStatus:
        context.suspend_current_queue_time_millis = self.suspend_ms
        [message] = messages
        body = message.body or b""
        self.seen.append((body, message.reconsume_times))
        left = self.failing.get(body, 0)
        self.failing[body] = left - 1
        return SUSPEND if left > 0 else SUCCESS


def orderly(
    here: Installation, group: str, topic: str, listener: Any, *, per_key: bool = False, **more: Any
) -> PushConsumer:
    consumer = here.consumer(group, topic, listener, **more)
    return consumer.register_message_listener(listener, orderly=True, per_key=per_key)


@pytest.mark.rule("OR-01", "OR-05", "NM-08", "T-03", "T-04")
def test_a_poison_message_blocks_its_partition_alone_and_ends_as_a_dead_letter(here: Installation) -> None:
    group, topic = here.name("poison"), here.topic("poison", 2)
    here.produce(topic, b"poison", b"after", partition=0)
    here.produce(topic, *(b"%d" % number for number in range(50)), partition=1)
    listener, go = InOrder({b"poison": 99}, suspend_ms=700), threading.Event()

    def holding(messages: Sequence[Message], context: ConsumeOrderlyContext) -> ConsumeOrderlyStatus:
        """The last call for it lasts until the other partition is consumed."""
        assert (messages[0].body, messages[0].reconsume_times) != (b"poison", 3) or go.wait(PATIENCE)
        return listener(messages, context)

    with orderly(here, group, topic, holding, max_reconsume_times=3):
        wait_until(lambda: (b"49", 0) in listener.seen, "the other partition is consumed")
        assert (b"after", 0) not in listener.seen
        go.set()
        wait_until(lambda: here.committed(group, topic) == 2, "the partition goes on after the dead letter")
    mine = [one for one in listener.seen if one[0] in {b"poison", b"after"}]
    assert mine == [(b"poison", 0), (b"poison", 1), (b"poison", 2), (b"poison", 3), (b"after", 0)]
    others = [one for one in listener.seen if one not in mine]
    assert others == [(b"%d" % number, 0) for number in range(50)]
    wait_until(lambda: here.dead_letters(group), "the scheduler has moved the dead letter")
    [letter] = here.dead_letters(group)
    assert (letter.value, letter["RECONSUME_TIME"], letter["RETRY_TOPIC"]) == (b"poison", "4", topic)
    assert here.waiting(1_000, group) == [], "an orderly listener never uses the levels"


KILLED = """
import sys
from reconsume.consumers import ConsumeOrderlyStatus, PushConsumer
bootstrap_servers, prefix, group, topic = sys.argv[1:]
consumer = PushConsumer(group, bootstrap_servers=bootstrap_servers, topic_prefix=prefix, max_reconsume_times=4,
    conf={"auto.offset.reset": "earliest", "session.timeout.ms": "6000", "heartbeat.interval.ms": "500"})
@consumer.subscribe(topic).listener(orderly=True)
def listen(messages, context):
    if messages[0].reconsume_times == 2:
        context.suspend_current_queue_time_millis = 30_000
    return ConsumeOrderlyStatus.SUSPEND_CURRENT_QUEUE_A_MOMENT
consumer.run()
"""


@pytest.mark.rule("OR-04", "T-12")
def test_a_poison_message_does_not_start_at_0_again_after_a_kill(here: Installation) -> None:
    group, topic = here.name("counted"), here.topic("counted")
    here.produce(topic, b"poison", b"after")
    arguments = [here.settings.bootstrap_servers, here.settings.topic_prefix, group, topic]
    with subprocess.Popen([sys.executable, "-c", KILLED, *arguments]) as process:
        try:
            wait_until(lambda: here.kept(group, topic).failures == {0: 3}, "three failures are counted")
        finally:
            os.kill(process.pid, signal.SIGKILL)
    listener = InOrder({b"poison": 99})
    with orderly(here, group, topic, listener, max_reconsume_times=4):
        wait_until(lambda: here.committed(group, topic) == 2, "it is a dead letter, and the next one is done")
    assert listener.seen == [(b"poison", 3), (b"poison", 4), (b"after", 0)]


@dataclass
class Working:
    """Notes for each partition who began and who ended, in the order of events; waits while it is held."""

    go: threading.Event = field(default_factory=threading.Event)
    events: dict[int, list[tuple[str, str, bytes]]] = field(default_factory=lambda: defaultdict(list))

    def listener(self, who: str) -> Any:
        def listen(messages: Sequence[Message], _context: ConsumeOrderlyContext) -> ConsumeOrderlyStatus:
            [message] = messages
            events = self.events[message.kafka.partition]
            events.append(("begin", who, message.body or b""))
            assert self.go.wait(PATIENCE)
            events.append(("end", who, message.body or b""))
            return SUCCESS

        return listen

    def who_works(self) -> set[str]:
        return {who for events in list(self.events.values()) for _, who, _ in list(events)}


@pytest.mark.rule("OR-10", "OR-11", "OR-14")
@pytest.mark.parametrize("conf", PROTOCOLS, ids=["classic", "consumer"])
def test_a_partition_is_worked_on_by_one_consumer_also_across_a_rebalance(
    here: Installation, conf: dict[str, Any]
) -> None:
    name = f"one-at-a-time-{len(conf.get('group.protocol', ''))}"
    group, topic = here.name(name), here.topic(name, 4)
    produced = 0

    def feed() -> None:
        nonlocal produced
        for partition in range(4):
            here.produce(topic, b"%d" % produced, partition=partition)
        produced += 1

    def second_works() -> bool:
        """There is always something left to give away."""
        feed()
        return working.who_works() == {"first", "second"}

    working = Working()
    feed()
    with orderly(here, group, topic, working.listener("first"), conf=conf):
        wait_until(lambda: len(working.events) == 4, "the first consumer works on all partitions")
        with orderly(here, group, topic, working.listener("second"), conf=conf):
            wait_until(lambda: here.members(group) == 2, "the second has joined")
            feed()
            assert working.who_works() == {"first"}, "nothing is taken from a listener that works"
            working.go.set()
            wait_until(second_works, "the second got some of them")
            wait_until(
                lambda: all(here.committed(group, topic, partition) == produced for partition in range(4)),
                "all is committed",
            )
    for events in working.events.values():
        pairs = list(zip(events[::2], events[1::2], strict=True))
        assert all(begin == ("begin", *end[1:]) and end[0] == "end" for begin, end in pairs), "never two at once"
        assert [begin[2] for begin, _ in pairs] == [b"%d" % number for number in range(produced)], "in order, once"


def test_in_key_order_each_key_keeps_its_order_while_others_fail(here: Installation) -> None:
    group, topic = here.name("keys"), here.topic("keys", 2)
    expected: dict[bytes, list[bytes]] = defaultdict(list)
    for number in range(120):
        key, body = b"key-%d" % (number % 7), b"%d" % number
        expected[key].append(body)
        here.produce(topic, body, key=key)
    succeeded: dict[bytes, list[bytes]] = defaultdict(list)
    tries: dict[bytes, int] = defaultdict(int)
    lock = threading.Lock()

    def listener(messages: Sequence[Message], context: ConsumeOrderlyContext) -> ConsumeOrderlyStatus:
        context.suspend_current_queue_time_millis = 10
        [message] = messages
        body, key = message.body or b"", message.key or b""
        with lock:
            tries[body] += 1
            assert message.reconsume_times == tries[body] - 1
            if tries[body] <= int(body) % 4:
                return SUSPEND
            succeeded[key].append(body)
        return SUCCESS

    with orderly(here, group, topic, listener, per_key=True):
        wait_until(lambda: sum(map(len, list(succeeded.values()))) == 120, "all have succeeded")
    assert succeeded == expected


def test_in_key_order_a_stuck_key_does_not_hold_up_the_partition(here: Installation) -> None:
    group, topic = here.name("stuck-key"), here.topic("stuck-key")
    for number in range(30):
        here.produce(topic, b"%d" % number, key=b"stuck" if number % 10 == 0 else b"key-%d" % number)
    listener = InOrder({b"0": 10_000}, suspend_ms=1_000)
    with orderly(here, group, topic, listener, per_key=True):
        wait_until(lambda: len({body for body, _ in listener.seen}) == 28, "all others are consumed")
        wait_until(lambda: len(here.kept(group, topic).done) == 27, "that is kept beside the offset")
    assert here.committed(group, topic) == 0
    again = InOrder()
    with orderly(here, group, topic, again, per_key=True):
        wait_until(lambda: here.committed(group, topic) == 30, "all is committed")
    assert [body for body, _ in again.seen] == [b"0", b"10", b"20"], "only the stuck key comes again"
    assert again.seen[0][1] == sum(body == b"0" for body, _ in listener.seen), "and goes on counting"


@pytest.mark.rule("OR-15")
def test_a_retry_of_the_group_is_consumed_in_order_too_and_shows_its_origin(here: Installation) -> None:
    group, topic = here.name("delivered"), here.topic("delivered")
    seen: list[tuple[str, bytes | None, int]] = []

    async def listener(messages: Sequence[Message], _context: ConsumeOrderlyContext) -> ConsumeOrderlyStatus:
        seen.extend((message.topic, message.body, message.reconsume_times) for message in messages)
        return SUCCESS

    with orderly(here, group, topic, listener):
        here.produce(
            here.settings.names.send_back,
            b"sent back by hand",
            headers=[("REAL_TOPIC", f"%RETRY%{group}".encode()), ("RETRY_TOPIC", topic.encode())],
        )
        wait_until(lambda: seen, "the retry is delivered")
    assert seen == [(topic, b"sent back by hand", 1)]


@pytest.mark.rule("FC-09")
@pytest.mark.parametrize(
    ("conf", "exactly_once"),
    list(zip(PROTOCOLS, [False, True], strict=True)),
    ids=["classic, plain", "consumer, exactly once"],
)
def test_a_rebalance_during_a_shutdown_repeats_nothing_that_finishes(
    here: Installation, conf: dict[str, Any], exactly_once: bool
) -> None:
    name = f"leaving-{len(conf.get('group.protocol', ''))}-{exactly_once}"
    group, topic = here.name(name), here.topic(name, 3)
    for number in range(3):
        here.produce(topic, b"%d" % number, partition=number)
    go = threading.Event()

    def held(messages: Sequence[Message], _context: ConsumeOrderlyContext) -> ConsumeOrderlyStatus:
        first.extend(message.body for message in messages)
        assert go.wait(PATIENCE)
        return SUCCESS

    def seen(messages: Sequence[Message], _context: ConsumeOrderlyContext) -> ConsumeOrderlyStatus:
        second.extend(message.body for message in messages)
        return SUCCESS

    first: list[bytes | None] = []
    second: list[bytes | None] = []
    more: dict[str, Any] = {
        "conf": conf,
        "exactly_once": exactly_once,
        "await_termination_when_shutdown": timedelta(minutes=1),
    }
    with orderly(here, group, topic, held, **more) as leaving:
        wait_until(lambda: len(first) == 3, "the first has all")
        shutdown = threading.Thread(target=leaving.shutdown)
        shutdown.start()
        with orderly(here, group, topic, seen, **more):
            wait_until(lambda: here.members(group) == 2, "the second has come")
            go.set()
            shutdown.join(PATIENCE)
            assert not shutdown.is_alive()
            here.produce(topic, b"last", partition=0)
            wait_until(lambda: b"last" in second, "the second has what the first had")
    assert sorted(one or b"" for one in first) == [b"0", b"1", b"2"]
    assert second == [b"last"]
