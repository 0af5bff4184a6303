"""A partition that gets a new start while a rebalance waits for a poll, on librdkafka's own brokers for tests."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest
from confluent_kafka import Consumer, Producer

from reconsume.consumers.consume_loop import ConsumeLoop
from tests.unit.consumers.doubles import loop_on

pytestmark = [pytest.mark.early(1)]

SOON = 30.0
LONGER_THAN_A_REBALANCE = 8.0
ATTEMPTS = 6


@pytest.fixture
def servers() -> Iterator[str]:
    """A broker in this process, and a topic with four partitions."""
    kafka = Producer({"bootstrap.servers": "ignored", "test.mock.num.brokers": 1, "log_level": 0})
    [broker] = kafka.list_topics(timeout=SOON).brokers.values()
    address = f"{broker.host}:{broker.port}"
    writer = Producer({"bootstrap.servers": address, "log_level": 0})
    for partition in range(4):
        writer.produce("flights", b"UA1545", partition=partition)
    assert writer.flush(SOON) == 0
    yield address
    writer.close()
    kafka.close()


def member(servers: str, group: str) -> Consumer:
    return Consumer(
        {"bootstrap.servers": servers, "group.id": group, "log_level": 0, "auto.offset.reset": "error"}
        | {"partition.assignment.strategy": "cooperative-sticky", "heartbeat.interval.ms": 100}
        | {"enable.auto.commit": False, "session.timeout.ms": 6_000}
    )


def run(step: Callable[[], object], until: Callable[[], object], seconds: float) -> bool:
    """Repeat a step until a condition holds; return whether it does."""
    end = time.monotonic() + seconds
    while not until() and time.monotonic() < end:
        step()
    return bool(until())


@contextmanager
def two_members(servers: str, group: str) -> Iterator[tuple[ConsumeLoop, Consumer, list[int]]]:
    """The loop of a member that has four partitions, another member, and how many this one was given at first."""
    one, other = (member(servers, group) for _ in range(2))
    loop, begun = loop_on(one)
    loop._subscriptions.add("flights", "*")
    told: list[int] = []
    try:
        loop.begin()
        assert run(loop.run_once, lambda: len(begun.messages) == 4, SOON)
        other.subscribe(["flights"], on_assign=lambda _consumer, given: told.append(len(given)))
        assert run(lambda: other.poll(0.1), lambda: told, SOON)
        yield loop, other, told
    finally:
        one.close()
        other.close()


def test_other_members_get_no_partition_that_was_not_given_up(servers: str) -> None:
    for attempt in range(ATTEMPTS):
        with two_members(servers, f"departures-{attempt}") as (loop, other, told):
            # In some groups these brokers do not answer the second member until they have put out the first one.
            if told == [0]:
                assert_is_not_given_up(loop, other)
                return
    pytest.fail(f"the first member was put out of each of {ATTEMPTS} groups")


def assert_is_not_given_up(loop: ConsumeLoop, other: Consumer) -> None:
    loop.partitions.reset_offsets({("flights", 0): True})
    assert not run(lambda: other.poll(0.1), other.assignment, LONGER_THAN_A_REBALANCE)
    assert len(loop.partitions.queues) == 4

    def both() -> None:
        loop.run_once()
        other.poll(0.1)

    assert run(both, lambda: len(other.assignment()) == 2, SOON)
    assert len(loop.partitions.queues) == 2
