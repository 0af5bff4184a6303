"""Which lanes a delayed message may take, and when a record leaves the last one."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, cast

import pytest
from confluent_kafka import TIMESTAMP_CREATE_TIME, TIMESTAMP_LOG_APPEND_TIME, Message

from reconsume.bridge.groups.groups import Groups, SystemConfig
from reconsume.bridge.scheduler.targets.targets import ListedTopics
from reconsume.bridge.scheduler.targets.timers import DelayTopics, Timers
from reconsume.delay_levels.errors import KafkaNotReachable, KafkaRefused, ReconsumeError
from reconsume.delay_levels.wire.names import TopicNames

NAMES = TopicNames()
NOW = 1_700_000_000_000


@dataclass
class FakeAdmin:
    """Knows these topics; `away` makes it as a cluster that does not answer."""

    delays_ms: list[int]
    away: bool = False
    refused_ms: list[int] = field(default_factory=list)
    asked: list[list[str]] = field(default_factory=list)

    def partitions(self, topics: Iterable[str], refused: dict[str, ReconsumeError] | None = None) -> dict[str, int]:
        self.asked.append(list(topics))
        if self.away:
            raise KafkaNotReachable("away")
        for topic in map(NAMES.delay, self.refused_ms):
            if refused is None:
                raise KafkaRefused(topic)
            refused[topic] = KafkaRefused(topic)
        return {NAMES.delay(delay_ms): 4 for delay_ms in self.delays_ms}


def lanes(admin: FakeAdmin, table: str = "1s 0s 10s 1m 10s") -> DelayTopics:
    return DelayTopics(NAMES, cast("Any", admin), lambda: Groups(SystemConfig(message_delay_level=table)))


def test_a_lane_that_may_not_be_described_takes_no_other_one_away() -> None:
    """Without lanes delayed messages would wait in the queue of those that are due soon, and hold it up."""
    assert lanes(FakeAdmin([1_000, 10_000], refused_ms=[60_000])).delays_ms(0) == (1_000, 10_000)


def timers(admin: FakeAdmin) -> Timers:
    return Timers(NAMES, lanes(admin), cast("Any", None), clock=lambda: NOW)


def record(**properties: str) -> Message:
    headers: list[tuple[str, str | bytes | None]] = [(name, text.encode()) for name, text in properties.items()]
    return Message(topic=NAMES.delay(0), headers=headers, timestamp=(TIMESTAMP_LOG_APPEND_TIME, NOW - 20))


def test_only_lanes_that_are_there_are_used_and_missing_ones_are_looked_for_again() -> None:
    admin = FakeAdmin([1_000, 60_000])
    there = lanes(admin)
    assert there.delays_ms(0) == (1_000, 60_000)
    admin.delays_ms.append(10_000)
    assert there.delays_ms(59_999) == (1_000, 60_000)
    assert there.delays_ms(60_000) == (1_000, 10_000, 60_000)
    assert admin.asked[0] == [NAMES.delay(delay_ms) for delay_ms in (1_000, 10_000, 60_000)]


def test_a_lane_that_is_gone_is_looked_for_at_once_when_told() -> None:
    admin = FakeAdmin([1_000, 60_000])
    there = lanes(admin)
    there.delays_ms(0)
    admin.delays_ms = [1_000]
    there.forget()
    assert there.delays_ms(1) == (1_000,)


def test_topics_that_another_thread_lists_are_not_asked_for() -> None:
    """A question would hold up what is due."""
    admin, listed = FakeAdmin([1_000]), ListedTopics()
    there = DelayTopics(NAMES, cast("Any", admin), lambda: Groups(SystemConfig(message_delay_level="1s 10s")), listed)
    assert there.delays_ms(0) == (1_000,)
    for now in range(0, 600_000, 15_000):
        listed.topics = {NAMES.delay(1_000): 4, NAMES.delay(10_000): 4, "orders": 1}
        assert there.delays_ms(now) == (1_000, 10_000)
    assert len(admin.asked) == 1
    listed.topics = {"orders": 1}
    assert there.delays_ms(599_999) == (1_000, 10_000), "a broker that has just started lists few"
    there.forget()
    assert there.delays_ms(600_000) == (1_000,), "that list may be older than the loss of a topic"
    assert len(admin.asked) == 2


def test_while_nobody_answers_what_was_known_is_used() -> None:
    admin = FakeAdmin([1_000])
    there = lanes(admin)
    there.delays_ms(0)
    admin.away = True
    assert (there.delays_ms(60_000), there.delays_ms(64_999)) == ((1_000,), (1_000,))
    assert len(admin.asked) == 2
    admin.away = False
    admin.delays_ms.append(10_000)
    assert there.delays_ms(65_000) == (1_000, 10_000)


def test_without_any_lane_a_message_is_held_to_its_moment() -> None:
    deliver_ms = NOW + 3_600_000
    one = timers(FakeAdmin([]))
    assert one.next_lane(deliver_ms, NOW) == NAMES.delay(0)
    assert one.due_ms(record(REAL_TOPIC="orders", TIMER_DELIVER_MS=str(deliver_ms))) == deliver_ms


@pytest.mark.parametrize(
    ("properties", "due_ms"),
    [
        ({"REAL_TOPIC": "orders", "TIMER_DELIVER_MS": str(NOW + 700)}, NOW + 700),
        ({"REAL_TOPIC": "orders", "TIMER_DELIVER_MS": str(NOW + 1_499)}, NOW + 1_499),
        ({"REAL_TOPIC": "orders", "TIMER_DELIVER_MS": str(NOW + 1_500)}, NOW - 20),
        ({"REAL_TOPIC": "orders", "TIMER_DELIVER_MS": str(NOW - 900)}, NOW - 20),
        ({"REAL_TOPIC": "orders"}, NOW - 20),
        ({"REAL_TOPIC": "%DLQ%g", "TIMER_DELIVER_MS": str(NOW + 700)}, NOW - 20),
        ({"REAL_TOPIC": "orders", "TIMER_DELIVER_MS": "soon"}, NOW - 20),
        ({"REAL_TOPIC": "orders", "TIMER_DELIVER_MS": "9" * 18}, NOW - 20),
    ],
)
def test_only_the_last_stretch_of_a_delayed_message_is_held(properties: dict[str, str], due_ms: int) -> None:
    assert timers(FakeAdmin([1_000, 10_000])).due_ms(record(**properties)) == due_ms


@pytest.mark.parametrize("created_ms", [NOW - 5_000, NOW + 5_000])
def test_what_leaves_the_last_lane_at_once_does_so_whatever_its_producers_clock_says(created_ms: int) -> None:
    dead = Message(
        topic=NAMES.delay(0), headers=[("REAL_TOPIC", b"%DLQ%g")], timestamp=(TIMESTAMP_CREATE_TIME, created_ms)
    )
    assert timers(FakeAdmin([1_000])).due_ms(dead) == NOW
