"""The load of a chaos run goes on whatever its producer is told, and a run without load ends at once."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, cast
from unittest.mock import MagicMock

import pytest
from confluent_kafka import KafkaError, KafkaException

from reconsume.cli import processing
from reconsume.cli.chaos import run, workload
from reconsume.cli.chaos.faults import Fault, FaultKind
from reconsume.delay_levels.errors import KafkaNotReachable

REFUSAL = KafkaException(KafkaError(KafkaError.TOPIC_AUTHORIZATION_FAILED))
Delivered = Callable[[KafkaError | None, Any], None]


class Refusing:
    """A producer that refuses some calls at once, as librdkafka does with a topic that it may not use."""

    def __init__(self, _settings: Any, *refusals: Exception) -> None:
        self.refusals = list(refusals)
        self.stored: list[bytes] = []

    def produce(self, _topic: str, value: bytes, *, on_delivery: Delivered, **_more: Any) -> None:
        if self.refusals:
            raise self.refusals.pop()
        self.stored.append(value)
        on_delivery(None, None)

    def serve(self, _seconds: float) -> None: ...

    def close(self) -> None: ...


@pytest.mark.parametrize("refusal", [REFUSAL, BufferError("queue full")], ids=["no right", "full"])
def test_what_a_producer_refuses_at_once_is_produced_later(monkeypatch: pytest.MonkeyPatch, refusal: Exception) -> None:
    producer, stop = Refusing(None, refusal, refusal), threading.Event()
    monkeypatch.setattr(workload, "LastingProducer", lambda _settings: producer)

    def enough() -> bool:
        if len(producer.stored) > 5:
            stop.set()
        return stop.is_set()

    produced = workload.produce({"bootstrap.servers": "127.0.0.1:1"}, 1_000, stop, enough)
    assert len(producer.stored) == produced > 5
    assert len(set(producer.stored)) == produced


class Stored:
    """A producer that does not hear of some records."""

    def __init__(self, *_settings: Any, unheard: int) -> None:
        self.unheard, self.bodies = unheard, list[bytes]()

    def store(self, _topic: str, _partition: int, _key: bytes | None, body: bytes, _headers: Any) -> None:
        self.bodies.append(body)
        if len(self.bodies) <= self.unheard:
            raise KafkaNotReachable("sending: no answer in time")


def test_a_message_whose_outcome_is_unknown_is_repeated_if_that_is_harmless(monkeypatch: pytest.MonkeyPatch) -> None:
    producer = Stored(unheard=2)
    monkeypatch.setattr(processing, "AcknowledgedProducer", lambda *_settings: producer)
    processing.Processing("127.0.0.1:1", "processed", may_repeat=True).process(b"body", "flights/0/0")
    assert producer.bodies == [b"body"] * 3
    producer.unheard = 9
    with pytest.raises(KafkaNotReachable):
        processing.Processing("127.0.0.1:1", "processed").process(b"body", "flights/0/0")
    assert producer.bodies == [b"body"] * 4


def test_a_load_that_has_died_ends_the_run_with_its_error() -> None:
    load: Future[int] = Future()
    load.set_exception(ValueError("no load"))
    said: list[str] = []
    faults = [Fault(FaultKind.SCHEDULER_KILLED, 0, 1.0, 1.0)] * 3
    with pytest.raises(ValueError, match="no load"):
        run._inflict(faults, cast("Any", MagicMock()), load, said.append)
    assert len(said) == 1
