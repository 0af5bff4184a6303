"""Which target partitions accept no records for now, and what waits for them."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import Message

from reconsume.bridge.scheduler.delivery.unavailable_targets import UnavailableTargets, unavailable_partitions
from reconsume.bridge.scheduler.queues.partition_queues import PartitionQueue
from reconsume.bridge.scheduler.queues.read_ahead import DueRun
from reconsume.bridge.scheduler.targets.routing import Delivery
from reconsume.delay_levels.errors import KafkaNotReachable, KafkaRefused, ReconsumeError


def part(number: int, in_sync: int, replicas: int, *, leader: int = 1) -> Any:
    there = SimpleNamespace(id=leader) if leader >= 0 else None
    return SimpleNamespace(id=number, leader=there, isr=[0] * in_sync, replicas=[0] * replicas)


class Brokers:
    """Three replicas, two needed; `hidden` topics do not show their settings."""

    def __init__(self, hidden: Collection[str] = (), needed: int = 2, **topics: list[Any]) -> None:
        self._topics = topics
        self._hidden = hidden
        self._needed = needed
        self.asked: list[list[str]] = []

    def described(self, topics: Collection[str], refused: dict[str, ReconsumeError]) -> dict[str, Any]:
        assert refused == {}
        return {name: SimpleNamespace(partitions=self._topics[name]) for name in topics if name in self._topics}

    def settings(self, topics: Iterable[str]) -> dict[str, dict[str, str]]:
        self.asked.append(list(topics))
        if set(topics) & set(self._hidden):
            raise KafkaRefused("no right to use the topic")
        return {name: {"min.insync.replicas": str(self._needed)} for name in topics}


def test_partitions_without_a_leader_or_with_too_few_replicas_in_sync_accept_no_records() -> None:
    brokers = Brokers(
        whole=[part(0, 3, 3)],
        enough=[part(0, 2, 3)],
        short=[part(0, 3, 3), part(1, 1, 3)],
        led_by_none=[part(0, 1, 1, leader=-1), part(1, 1, 1)],
    )
    assert unavailable_partitions(brokers, ["whole", "enough", "short", "led_by_none", "missing"]) == {
        ("short", 1): "1 of 2 needed replicas are in sync",
        ("led_by_none", 0): "it has no leader",
    }
    assert brokers.asked == [["enough", "short"]], "no setting matters for a topic with all of its replicas"


def test_a_topic_needs_no_more_replicas_in_sync_than_it_has() -> None:
    """Its records would wait for ever, although brokers since Kafka 3.7 accept them."""
    assert unavailable_partitions(Brokers(needed=2, one=[part(0, 1, 1)]), ["one"]) == {}
    assert unavailable_partitions(Brokers(needed=9, two=[part(0, 1, 2)]), ["two"]) == {
        ("two", 0): "1 of 2 needed replicas are in sync"
    }


def test_a_topic_whose_settings_may_not_be_read_hides_no_other() -> None:
    brokers = Brokers(hidden=["secret"], secret=[part(0, 1, 3)], short=[part(0, 1, 3)])
    assert unavailable_partitions(brokers, ["secret", "short"]) == {("short", 0): "1 of 2 needed replicas are in sync"}


def to(topic: str, partition: int = 0, outcome: str = "delivered") -> Delivery:
    return Delivery(topic, partition, None, b"", [], outcome, "g")


def run_of(partition: int, count: int) -> DueRun:
    queue = PartitionQueue("lane", partition, 0)
    return DueRun(queue, [(0, Message(topic="lane", partition=partition, offset=at, value=b"")) for at in range(count)])


def test_a_run_ends_before_the_first_record_for_an_unavailable_partition_and_is_held() -> None:
    one = UnavailableTargets(lambda _topics: {("away", 1): "it has no leader", ("quarantine", 0): "it has no leader"})
    assert not one
    assert one.learn([to("away", 1)], 0)
    runs = [run_of(0, 3), run_of(1, 1), run_of(2, 2), run_of(3, 1)]
    batch = [to("away", 0), to("away", 1), to("good"), to("away", 1), to("good"), to("good", 1)]
    held, kept = one.hold(runs, [*batch, to("quarantine", -1, "quarantined")], 500)
    assert ([len(run.records) for run in held], kept) == ([1, 2], [batch[0], batch[4], batch[5]])
    assert [run.queue.held_until_ms for run in runs] == [500, 500, 0, 500]


@pytest.mark.parametrize("batch", [[to("good")], [to("away")], [to("", -1, "cancelled")]])
def test_a_batch_that_was_aborted_for_another_reason_is_left_to_others(batch: list[Delivery]) -> None:
    assert not UnavailableTargets(lambda _topics: {("away", 1): "it has no leader"}).learn(batch, 0)


def test_without_an_answer_records_wait_on_and_it_is_looked_again_after_5_s() -> None:
    answers: list[Any] = [{("away", 0): "it has no leader"}, KafkaNotReachable("no answer"), {}]

    def look_up(topics: Collection[str]) -> dict[tuple[str, int], str]:
        assert topics == {"away"}
        answer = answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return dict(answer)

    one = UnavailableTargets(look_up)
    assert one.learn([to("away")], 0)
    for now, left, is_away in [(4_999, 2, True), (5_000, 1, True), (9_999, 1, True), (10_000, 0, False)]:
        one.step(now)
        assert (len(answers), bool(one)) == (left, is_away)
