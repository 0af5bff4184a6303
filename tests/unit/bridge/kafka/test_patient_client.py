"""Questions whose answers may never come."""

from __future__ import annotations

import gc
import threading
import weakref
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from typing import Any, cast

import pytest
from confluent_kafka import KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec

from reconsume.bridge.kafka import patient_client
from reconsume.bridge.kafka.admin import KafkaAdmin
from reconsume.bridge.kafka.clients import Clients, forget, serve
from reconsume.bridge.kafka.patient_client import AdminRequest
from reconsume.delay_levels.errors import KafkaNotReachable
from tests.support.waiting import PATIENCE, wait_until

NOWHERE: dict[str, str | int | float | bool] = {"bootstrap.servers": "127.0.0.1:1", "log_level": 0}
FLIGHTS = TopicPartition("flights", 0)


def unanswered(*, request_timeout: float) -> Mapping[str, Future[Any]]:
    assert request_timeout
    return {"flights": Future()}


def test_the_client_lives_until_it_has_answered() -> None:
    """One that is let go may not even say that it was; then what is raised says that librdkafka has not answered."""
    request = AdminRequest(AdminClient(NOWHERE).list_offsets, {FLIGHTS: OffsetSpec.latest()}, seconds=0.5)
    gc.collect()
    with pytest.raises(KafkaException) as raised:
        request.answer(FLIGHTS)
    assert "librdkafka has not answered" not in raised.value.args[0].str()


def test_an_answer_is_not_waited_for_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(patient_client, "_GRACE_SECONDS", 0)
    request = AdminRequest(unanswered, seconds=0.05)
    assert list(request) == ["flights"]
    with pytest.raises(KafkaException) as raised:
        request.answer("flights")
    assert raised.value.args[0].code() == KafkaError._TIMED_OUT


ASKED: dict[str, Callable[[KafkaAdmin], object]] = {
    "brokers": KafkaAdmin.brokers,
    "commits": lambda admin: admin.commits("billing", [("flights", 0)]),
    "delete_before": lambda admin: admin.delete_before({("flights", 0): 1}),
    "end_offsets": lambda admin: admin.end_offsets([("flights", 0)]),
    "settings": lambda admin: admin.settings(["flights"]),
    "topic_ids": lambda admin: admin.topic_ids(["flights"]),
}


@pytest.mark.parametrize("asked", ASKED)
def test_a_client_that_failed_is_released_with_its_last_user(asked: str) -> None:
    """One in a cycle with its error keeps threads and connections until Python collects garbage."""

    def fail() -> weakref.ref[object]:
        admin = KafkaAdmin(NOWHERE, patience=0.1)
        with pytest.raises(KafkaNotReachable):
            ASKED[asked](admin)
        return weakref.ref(admin._client)

    gc.disable()
    try:
        assert fail()() is None
    finally:
        gc.enable()


class Silent:
    """A client whose answers got lost, and then one that answers."""

    def __init__(self) -> None:
        self.asked = 0

    def poll(self, _seconds: float) -> int:
        return 0

    def list_offsets(self, _wanted: object, *, request_timeout: float, **_: object) -> Mapping[Any, Future[Any]]:
        self.asked += 1
        assert request_timeout
        return {FLIGHTS: Future()}


def test_after_a_lost_answer_a_new_client_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[Silent] = []

    class Made(Clients):
        def admin(self, settings: Mapping[str, Any]) -> AdminClient:
            assert settings
            made.append(Silent())
            return cast("AdminClient", made[-1])

    monkeypatch.setattr(patient_client, "_GRACE_SECONDS", 0)
    monkeypatch.setattr(patient_client, "_REQUEST_SECONDS", 0.05)
    serve("nobody:1", Made())
    try:
        admin = KafkaAdmin({"bootstrap.servers": "nobody:1"}, patience=2)
        with pytest.raises(KafkaNotReachable, match=r"flights-0.*librdkafka has not answered"):
            admin.end_offsets([("flights", 0)])
    finally:
        forget("nobody:1")
    assert len(made) >= 3
    assert {one.asked for one in made[:-1]} == {1}


class OnceAsleep:
    """A clock, and a question during whose first try the machine sleeps for a minute."""

    def __init__(self) -> None:
        self.now, self.tries = 1_000.0, 0

    def monotonic(self) -> float:
        return self.now

    def ask(self) -> str:
        self.tries += 1
        self.now += 60 if self.tries == 1 else 4
        if self.tries < 3:
            raise KafkaNotReachable("no answer")
        return "found"


def test_the_sleep_of_a_machine_uses_up_no_patience(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody could have answered: a laptop that was closed, a virtual machine that was moved."""
    clock, admin = OnceAsleep(), KafkaAdmin(NOWHERE, patience=10.0)
    monkeypatch.setattr(patient_client, "time", clock)
    assert admin._patiently(clock.ask) == "found"
    assert clock.tries == 3


def test_a_client_that_is_stopped_waits_for_no_answer_and_does_not_ask_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise a process that is told to end while Kafka is away would wait for the end of its patience."""
    silent, stop, met = Silent(), threading.Event(), list[BaseException]()
    admin = KafkaAdmin(NOWHERE, patience=3_600.0, stop=stop)
    monkeypatch.setattr(admin, "_client", silent)

    def ask() -> None:
        try:
            admin.end_offsets([("flights", 0)])
        except KafkaNotReachable as error:
            met.append(error)

    asking = threading.Thread(target=ask, daemon=True)
    asking.start()
    wait_until(lambda: silent.asked, "it asks")
    stop.set()
    asking.join(PATIENCE)
    assert (len(met), silent.asked) == (1, 1)
