"""The system clock is set while a listener runs or a message waits: durations are those of a steady clock."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import pytest

from reconsume.consumers.listeners.circuit_breaker import CircuitBreaker
from reconsume.consumers.listeners.concurrently import TIMEOUT_LEVEL, ConcurrentlyService
from reconsume.consumers.listeners.orderly import Lane, OrderlyService
from reconsume.consumers.partitions.process_queue import ProcessQueue
from reconsume.delay_levels.errors import SendBackFailed
from tests.unit.consumers.doubles import RecordingWriter, RunsNothing, chunk_of, given_again, message_at

HOUR = 3_600.0


class Clocks:
    """The system clock, which is set at will, and the time that passes."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.wall, self.steady = 1_700_000_000.0, 1_000.0
        monkeypatch.setattr(time, "time", lambda: self.wall)
        monkeypatch.setattr(time, "monotonic", lambda: self.steady)

    def passes(self, seconds: float, *, step: float) -> None:
        self.steady += seconds
        self.wall += seconds + step


@pytest.fixture
def clocks(monkeypatch: pytest.MonkeyPatch) -> Clocks:
    return Clocks(monkeypatch)


def fails(_messages: Any, _context: Any) -> Any:
    raise ConnectionError


def service_of(listener: Callable[..., Any], writer: RecordingWriter, **more: Any) -> ConcurrentlyService:
    return ConcurrentlyService(listener=listener, sender=writer, **more)


@pytest.mark.parametrize("step", [-HOUR, HOUR])
def test_a_refused_send_back_waits_5_s(clocks: Clocks, step: float) -> None:
    service = service_of(fails, RecordingWriter(answers=[SendBackFailed("refused")]))
    service.consume(chunk_of(1))
    clocks.passes(4.9, step=step)
    assert given_again(service) == []
    clocks.passes(0.2, step=0)
    assert len(given_again(service)) == 1


@pytest.mark.parametrize("step", [-HOUR, HOUR])
def test_a_listener_has_its_whole_timeout_and_no_more(clocks: Clocks, step: float) -> None:
    writer, chunk = RecordingWriter(), chunk_of(1)
    early: list[int] = []

    def looked_at_while_it_runs(_messages: Any, _context: Any) -> None:
        clocks.passes(59, step=step)
        service.expire(chunk.queue, 60_000)
        early.append(len(writer.requests))
        clocks.passes(2, step=0)
        service.expire(chunk.queue, 60_000)

    service = service_of(looked_at_while_it_runs, writer)
    service.consume(chunk)
    assert early == [0]
    assert [one.delay_level for one in writer.requests] == [TIMEOUT_LEVEL]


@pytest.mark.parametrize("step", [-HOUR, HOUR])
def test_a_circuit_is_open_for_its_pause(clocks: Clocks, step: float) -> None:
    service = service_of(fails, RecordingWriter(), circuit_breaker=CircuitBreaker(minimum_calls=1, failure_share=1))
    service.consume(chunk_of(1))
    clocks.passes(4.9, step=step)
    service.tick()
    assert service.is_suspended(ProcessQueue("flights", 0))
    clocks.passes(0.2, step=0)
    service.tick()
    assert not service.is_suspended(ProcessQueue("flights", 0))


@pytest.mark.parametrize("step", [-HOUR, HOUR])
def test_a_suspended_partition_waits_its_second(clocks: Clocks, step: float) -> None:
    begun: list[Lane] = []
    service, queue, pool = OrderlyService(listener=fails, sender=RecordingWriter()), ProcessQueue("a", 0), RunsNothing()
    pool.submit, service.pool = begun.append, pool
    service.accept(queue, queue.begin([message_at(0, topic="a")]))
    service.consume(begun.pop())
    clocks.passes(0.9, step=step)
    service.tick()
    assert begun == []
    clocks.passes(0.2, step=0)
    service.tick()
    assert len(begun) == 1
