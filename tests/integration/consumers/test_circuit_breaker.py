"""The circuit breaker on a real Kafka: an outage of what the listener needs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import timedelta

import pytest

from reconsume.consumers import (
    CircuitBreaker,
    CircuitChange,
    CircuitState,
    ConsumeConcurrentlyContext,
    ConsumeConcurrentlyStatus,
    Message,
    PushConsumer,
)
from tests.integration.installation import SUCCESS, Deliveries, Installation, installation
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.kafka, pytest.mark.more]

RECORDS = 3_000
"""More than one partition may have unfinished."""
MINIMUM_CALLS = 5


class Service:
    """What a listener needs: it is away, or it is there and remembers what it was given."""

    def __init__(self) -> None:
        self.away = True
        self.done: list[bytes] = []

    def __call__(self, messages: Sequence[Message], _context: ConsumeConcurrentlyContext) -> ConsumeConcurrentlyStatus:
        if self.away:
            raise ConnectionError("no answer")
        self.done += [message.body or b"" for message in messages]
        return SUCCESS


class Outage:
    """A group with a breaker, 3,000 messages, and a service that is away."""

    def __init__(self, here: Installation, name: str) -> None:
        self.here = here
        self.group, self.topic = here.name(name), here.topic(name, 2)
        self.service = Service()
        self.changes: list[CircuitChange] = []
        self.bodies = [str(number).encode() for number in range(RECORDS)]
        here.produce(self.topic, *self.bodies)

    def consumer(self, *, exactly_once: bool = False) -> PushConsumer:
        breaker = CircuitBreaker(
            minimum_calls=MINIMUM_CALLS,
            open_for=timedelta(milliseconds=200),
            open_for_at_most=timedelta(milliseconds=400),
            on_change=self.changes.append,
        )
        return self.here.consumer(
            *(self.group, self.topic, self.service), circuit_breaker=breaker, exactly_once=exactly_once
        )

    def openings(self) -> int:
        return sum(change.state is CircuitState.OPEN for change in self.changes)

    def sent_back(self) -> int:
        return len(self.here.waiting(1_000, self.group)) + len(self.here.waiting(2_000, self.group))

    def committed(self) -> int:
        return sum(self.here.committed(self.group, self.topic, partition) or 0 for partition in range(2))


@pytest.fixture(scope="module")
def here(bootstrap_servers: str) -> Iterator[Installation]:
    with installation(bootstrap_servers) as one:
        yield one


@pytest.mark.parametrize("exactly_once", [False, True], ids=["at least once", "exactly once"])
def test_an_outage_spends_next_to_no_attempts_and_loses_nothing(here: Installation, *, exactly_once: bool) -> None:
    outage = Outage(here, f"outage-{exactly_once}")
    with outage.consumer(exactly_once=exactly_once):
        wait_until(lambda: outage.openings() >= 4, "it has opened, and three rounds of probes have failed")
        outage.service.away = False
        wait_until(lambda: outage.changes[-1].state is CircuitState.CLOSED, "a probe has worked")
        wait_until(lambda: set(outage.service.done) == set(outage.bodies), "all came")
        wait_until(lambda: outage.committed() == RECORDS, "all are committed")
    assert sorted(outage.service.done) == sorted(outage.bodies), "each once"
    assert outage.sent_back() <= MINIMUM_CALLS - 1


def test_a_consumer_that_stops_while_it_is_open_loses_nothing(here: Installation) -> None:
    outage = Outage(here, "stops")
    with outage.consumer():
        wait_until(lambda: outage.openings() >= 2, "it has opened, and a round of probes has failed")
    outage.service.away = False
    with outage.consumer():
        wait_until(lambda: set(outage.service.done) == set(outage.bodies), "all came")
        wait_until(lambda: outage.committed() == RECORDS, "all are committed")


def test_what_is_kept_goes_to_the_member_that_takes_the_partition_over(here: Installation) -> None:
    outage = Outage(here, "moves")
    with outage.consumer():
        wait_until(lambda: outage.openings() >= 2, "it has opened, and a round of probes has failed")
        other = Deliveries(lambda _messages, _context: SUCCESS)
        with here.consumer(outage.group, outage.topic, other):
            wait_until(lambda: other.batches, "the open one is a live member: it gives a partition away")
            outage.service.away = False
            wait_until(
                lambda: {*outage.service.done, *(body for body, _ in other.seen)} == set(outage.bodies), "all came"
            )
            wait_until(lambda: outage.committed() == RECORDS, "all are committed")
    assert outage.sent_back() <= MINIMUM_CALLS - 1
