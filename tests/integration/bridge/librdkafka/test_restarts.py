"""A partition that gets a new start while a rebalance waits for a poll, on librdkafka's own brokers for tests."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

import pytest
from confluent_kafka import Consumer, Producer

from tests.unit.consumers.doubles import loop_on

pytestmark = pytest.mark.timeout(120)

SOON = 45.0
LONGER_THAN_A_REBALANCE = 14.0


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


def member(servers: str) -> Consumer:
    """A rebalance waits for a member as long as its session, so on a busy machine too."""
    return Consumer(
        {"bootstrap.servers": servers, "group.id": "departures", "log_level": 0, "auto.offset.reset": "error"}
        | {"partition.assignment.strategy": "cooperative-sticky", "heartbeat.interval.ms": 100}
        | {"enable.auto.commit": False, "session.timeout.ms": 12_000}
    )


def run(step: Callable[[], object], until: Callable[[], object], seconds: float) -> bool:
    """Repeat a step until a condition holds; return whether it does."""
    end = time.monotonic() + seconds
    while not until() and time.monotonic() < end:
        step()
    return bool(until())


def test_other_members_get_no_partition_that_was_not_given_up(servers: str) -> None:
    one, other = member(servers), member(servers)
    loop, begun = loop_on(one)
    loop._subscriptions.add("flights", "*")
    told: list[int] = []
    try:
        loop.begin()
        assert run(loop.run_once, lambda: len(begun.messages) == 4, SOON)
        other.subscribe(["flights"], on_assign=lambda _consumer, given: told.append(len(given)))
        assert run(lambda: other.poll(0.1), lambda: told, SOON)
        assert told == [0], "the first member has not given up anything"
        loop.partitions.reset_offset(("flights", 0), had_none=True)
        assert not run(lambda: other.poll(0.1), other.assignment, LONGER_THAN_A_REBALANCE)
        assert len(loop.partitions.queues) == 4

        def both() -> None:
            loop.run_once()
            other.poll(0.1)

        assert run(both, lambda: len(other.assignment()) == 2, SOON)
        assert len(loop.partitions.queues) == 2
    finally:
        one.close()
        other.close()
