"""What Prometheus scrapes of a circuit breaker whose consumer has nothing left to probe."""

from __future__ import annotations

import logging
from datetime import timedelta

import pytest
from confluent_kafka import TopicPartition
from prometheus_client import CollectorRegistry

from reconsume.consumers import CircuitBreaker, CircuitMetrics, ConsumeConcurrentlyStatus
from reconsume.consumers.partitions.process_queue import Chunk
from tests.unit.consumers.doubles import Clock, RecordingWriter, RunsNothing, loop_of, message_at, service_of

FLIGHTS, OTHERS = ("flights", 0), ("flights", 1)
MINUTE_MS, HOUR_MS = 60_000, 3_600_000
CLOSED, HALF_OPEN, OPEN = 0, 1, 2


class Idle(RunsNothing):
    """A consumer without new records, and a pool that calls the listener at once."""

    def poll(self, _timeout: float) -> None: ...

    def consumer_group_metadata(self) -> None: ...

    def committed(self, partitions: list[TopicPartition], _seconds: float) -> list[TopicPartition]:
        return partitions

    def pause(self, _partitions: list[TopicPartition]) -> None: ...

    def resume(self, _partitions: list[TopicPartition]) -> None: ...

    def memberid(self) -> str:
        return ""

    def close(self, _seconds: float = 0) -> bool:
        return True


class Consuming:
    """A loop whose listener fails; the circuit opens at the third failure, for 1 s."""

    def __init__(self) -> None:
        self.registry, self.clock, self.writer, idle = CollectorRegistry(), Clock(), RecordingWriter(), Idle()
        breaker = CircuitBreaker(
            minimum_calls=3, open_for=timedelta(seconds=1), on_change=CircuitMetrics(self.registry).changed
        )
        self.service = service_of(
            lambda *_: ConsumeConcurrentlyStatus.RECONSUME_LATER, self.writer, self.clock, circuit_breaker=breaker
        )
        idle.submit = self.service.consume
        self.service.pool = idle
        self.loop = loop_of(idle, self.service, RecordingWriter())
        self.loop.partitions.assigned([FLIGHTS])

    def fail(self) -> None:
        queue = self.loop.partitions.queues[FLIGHTS]
        for message in queue.begin([message_at(offset) for offset in range(3)]):
            self.service.consume(Chunk(queue, (message,)))

    def open(self) -> None:
        self.fail()
        self.turn()
        assert self.state == OPEN

    def turn(self, later_ms: float = 0) -> None:
        self.clock.now += later_ms
        self.loop.run_once()

    @property
    def state(self) -> float | None:
        return self.registry.get_sample_value("reconsume_circuit_breaker_state", {"group": "departures"})


@pytest.fixture
def consuming() -> Consuming:
    one = Consuming()
    assert one.state == CLOSED
    return one


@pytest.mark.parametrize("how", ["revoked", "lost"])
def test_a_circuit_is_closed_when_its_consumer_has_no_partitions_to_probe(
    consuming: Consuming, how: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "reconsume")
    consuming.open()
    getattr(consuming.loop.partitions, how)([FLIGHTS])
    consuming.turn(HOUR_MS)
    assert consuming.state == CLOSED
    assert consuming.service.next_due_ms() is None
    assert caplog.messages[-1] == "group departures: the circuit closes after 3600.0 s: no partitions are left to probe"


def test_one_that_has_lost_them_while_it_was_half_open_is_closed(consuming: Consuming) -> None:
    consuming.open()
    consuming.loop.partitions.assigned([OTHERS])
    consuming.loop.partitions.lost([FLIGHTS])
    consuming.turn(HOUR_MS)
    assert consuming.state == HALF_OPEN, "the other partition may have messages soon"
    consuming.loop.partitions.lost([OTHERS])
    consuming.turn(MINUTE_MS - 1)
    assert consuming.state == HALF_OPEN, "they may return soon, and their calls would cost attempts"
    consuming.turn(1)
    assert consuming.state == CLOSED


def test_one_that_rejoins_its_group_while_it_was_half_open_costs_no_attempts(consuming: Consuming) -> None:
    consuming.open()
    consuming.turn(1_000)
    consuming.loop.partitions.lost([FLIGHTS])
    consuming.turn()
    consuming.loop.partitions.assigned([FLIGHTS])
    sent = len(consuming.writer.requests)
    consuming.fail()
    consuming.turn()
    assert (consuming.state, len(consuming.writer.requests)) == (OPEN, sent), "what fails as a probe is kept"


def test_a_rebalance_that_takes_all_partitions_for_a_moment_does_not_end_a_pause(consuming: Consuming) -> None:
    consuming.open()
    consuming.loop.partitions.revoked([FLIGHTS])
    consuming.turn(500)
    consuming.loop.partitions.assigned([FLIGHTS])
    consuming.turn()
    assert consuming.state == OPEN


@pytest.mark.parametrize("is_told", [True, False])
def test_the_circuit_of_a_consumer_that_ends_is_closed(consuming: Consuming, is_told: bool) -> None:
    consuming.open() if is_told else consuming.fail()
    consuming.loop.end()
    assert consuming.state == CLOSED
    openings = consuming.registry.get_sample_value("reconsume_circuit_breaker_openings_total", {"group": "departures"})
    assert openings == 1
