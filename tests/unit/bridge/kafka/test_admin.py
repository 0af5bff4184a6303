"""What a client for questions does when no answer comes."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future
from types import SimpleNamespace
from typing import Any, cast

import pytest
from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient, OffsetSpec

from reconsume.bridge.kafka import patient_client
from reconsume.bridge.kafka.admin import ClusterFacts, KafkaAdmin
from reconsume.bridge.kafka.clients import Clients, forget, serve
from reconsume.delay_levels.errors import KafkaLoginFailed, KafkaRefused

ADDRESS = "kafka:1"


class Deaf:
    """A client that waits for its controller, or for any broker at all, for ever, as librdkafka's can."""

    def __init__(self, why: int) -> None:
        self._error = KafkaError(why, "Failed while waiting for controller")

    def poll(self, _seconds: float) -> int:
        return 0

    def list_topics(self, timeout: float) -> Any:
        assert timeout
        raise KafkaException(self._error)

    def describe_topics(self, _topics: Any, request_timeout: float) -> dict[str, Future[Any]]:
        assert request_timeout
        told: Future[Any] = Future()
        told.set_exception(KafkaException(self._error))
        return {"flights": told}


class Found:
    """A client that was made later."""

    cluster_id = "it answers"

    def list_topics(self, timeout: float) -> Any:
        assert timeout
        return self

    def describe_topics(self, topics: Any, request_timeout: float) -> dict[str, Future[Any]]:
        assert topics
        assert request_timeout
        told: Future[Any] = Future()
        told.set_result(SimpleNamespace(partitions=[0, 1]))
        return {"flights": told}


class Made(Clients):
    def __init__(self, why: int) -> None:
        self._next: list[Any] = [Deaf(why), Found()]

    def admin(self, settings: Mapping[str, Any]) -> AdminClient:
        assert settings["bootstrap.servers"] == ADDRESS
        return cast("AdminClient", self._next.pop(0))


@pytest.fixture(params=[KafkaError._TIMED_OUT, KafkaError._TRANSPORT])
def admin(request: pytest.FixtureRequest) -> Iterator[KafkaAdmin]:
    """Its first client gets no answer."""
    serve(ADDRESS, Made(request.param))
    yield KafkaAdmin({"bootstrap.servers": ADDRESS})
    forget(ADDRESS)


def test_after_no_answer_a_question_goes_to_a_new_client(admin: KafkaAdmin) -> None:
    assert admin.partitions(["flights"]) == {"flights": 2}


def test_after_no_answer_the_new_client_is_asked_for_the_cluster(admin: KafkaAdmin) -> None:
    assert admin.cluster_id() == "it answers"


class LockedOut:
    """A client whose login fails."""

    asked = 0

    def __init__(self, settings: Mapping[str, Any]) -> None:
        self._told: Callable[[KafkaError], None] = settings["error_cb"]

    def poll(self, _seconds: float) -> int:
        self._told(KafkaError(KafkaError._AUTHENTICATION, f"{ADDRESS}/bootstrap: SASL authentication error: invalid"))
        self._told(KafkaError(KafkaError._ALL_BROKERS_DOWN, "1/1 brokers are down"))
        return 2

    def describe_topics(self, _topics: Any, request_timeout: float) -> dict[str, Future[Any]]:
        assert request_timeout
        type(self).asked += 1
        return {"flights": Future()}


def test_a_login_that_fails_is_told_at_once_but_not_to_a_process_that_asks_on_and_on(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class Locked(Clients):
        def admin(self, settings: Mapping[str, Any]) -> AdminClient:
            return cast("AdminClient", LockedOut(settings))

    monkeypatch.setattr(patient_client, "_GRACE_SECONDS", 0)
    monkeypatch.setattr(patient_client, "_REQUEST_SECONDS", 0.05)
    serve(ADDRESS, Locked())
    try:
        admin = KafkaAdmin({"bootstrap.servers": ADDRESS}, patience=0.5)
        with pytest.raises(KafkaLoginFailed, match=f"{ADDRESS} does not accept user"):
            admin.partitions(["flights"])
        assert LockedOut.asked == 1
        with pytest.raises(KafkaLoginFailed):
            admin.partitions(["flights"])
        assert LockedOut.asked > 2
    finally:
        forget(ADDRESS)


def test_while_no_broker_is_in_use_it_asks_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """As the only one is for a moment when it comes back."""
    answers: list[list[int]] = [[], [], [2, 1]]
    admin = KafkaAdmin({"bootstrap.servers": "127.0.0.1:1"})
    client = SimpleNamespace(list_topics=lambda timeout: SimpleNamespace(brokers=answers.pop(0), timeout=timeout))
    monkeypatch.setattr(admin, "_client", client)
    assert admin.brokers() == [2, 1]
    assert answers == []


def test_a_broker_that_is_away_counts_where_a_topic_has_a_replica(monkeypatch: pytest.MonkeyPatch) -> None:
    partitions = {0: SimpleNamespace(replicas=[2, 1]), 1: SimpleNamespace(replicas=[3])}
    topics = {"__consumer_offsets": SimpleNamespace(partitions=partitions)}
    admin = KafkaAdmin({"bootstrap.servers": "127.0.0.1:1"})
    found = SimpleNamespace(brokers=[1, 2], topics=topics)
    monkeypatch.setattr(admin, "_client", SimpleNamespace(list_topics=lambda **_: found))
    monkeypatch.setattr(admin, "_broker_settings", lambda _broker: {})
    assert admin.facts() == ClusterFacts(3, 1, 1_048_588)


def test_while_the_brokers_are_fenced_a_topic_is_made_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """As the only one is when its machine was busy for a moment."""
    fenced = KafkaError(KafkaError.INVALID_REPLICATION_FACTOR, "All brokers are currently fenced")
    answers: list[KafkaError | None] = [fenced, fenced, None]

    def create_topics(*_: object, **__: object) -> dict[str, Future[None]]:
        told: Future[None] = Future()
        answer = answers.pop(0)
        told.set_result(None) if answer is None else told.set_exception(KafkaException(answer))
        return {"flights": told}

    admin = KafkaAdmin({"bootstrap.servers": "127.0.0.1:1"})
    monkeypatch.setattr(admin, "_client", SimpleNamespace(create_topics=create_topics))
    monkeypatch.setattr(admin, "_require_leaders", lambda *_: None)
    assert admin.create("flights", 1, -1, {})
    assert answers == []


def test_a_replication_factor_that_cannot_be_is_told_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    told: Future[None] = Future()
    told.set_exception(KafkaException(KafkaError(KafkaError.INVALID_REPLICATION_FACTOR, "only 1 broker is registered")))
    admin = KafkaAdmin({"bootstrap.servers": "127.0.0.1:1"})
    monkeypatch.setattr(admin, "_client", SimpleNamespace(create_topics=lambda *_, **__: {"flights": told}))
    with pytest.raises(KafkaRefused, match="only 1 broker"):
        admin.create("flights", 1, 3, {})


class Appending:
    """A partition without a record since the moment, to which one is appended after each answer."""

    def __init__(self) -> None:
        self._end = 7
        self._first_since: int | None = None

    def list_offsets(self, wanted: Mapping[Any, OffsetSpec], **_: object) -> dict[Any, Future[Any]]:
        [(where, spec)] = wanted.items()
        told: Future[Any] = Future()
        first_since = -1 if self._first_since is None else self._first_since
        told.set_result(SimpleNamespace(offset=self._end if spec is OffsetSpec.latest() else first_since))
        self._first_since = self._end if self._first_since is None else self._first_since
        self._end += 1
        return {where: told}


def test_a_record_that_comes_between_two_answers_is_not_before_the_moment(monkeypatch: pytest.MonkeyPatch) -> None:
    admin = KafkaAdmin({"bootstrap.servers": "127.0.0.1:1"})
    monkeypatch.setattr(admin, "_client", Appending())
    assert admin.offsets_at([("flights", 0)], 5_000) == {("flights", 0): 7}


def test_partitions_without_a_leader_are_told(monkeypatch: pytest.MonkeyPatch) -> None:
    leaders = [SimpleNamespace(id=1), None, SimpleNamespace(id=-1)]
    told: Future[Any] = Future()
    told.set_result(SimpleNamespace(partitions=[SimpleNamespace(id=at, leader=one) for at, one in enumerate(leaders)]))
    admin = KafkaAdmin({"bootstrap.servers": "127.0.0.1:1"})
    monkeypatch.setattr(admin, "_client", SimpleNamespace(describe_topics=lambda *_, **__: {"flights": told}))
    assert admin.leaderless(["flights"]) == {("flights", 1), ("flights", 2)}


@pytest.mark.parametrize(("now", "refused"), [(3, False), (4, False), (2, True)])
def test_partitions_that_another_operator_has_added_are_no_error(
    monkeypatch: pytest.MonkeyPatch, now: int, refused: bool
) -> None:
    added, told = Future[None](), Future[Any]()
    added.set_exception(KafkaException(KafkaError(KafkaError.INVALID_PARTITIONS, f"Topic already has {now}")))
    leader = SimpleNamespace(id=1)
    told.set_result(SimpleNamespace(partitions=[SimpleNamespace(id=at, leader=leader) for at in range(now)]))
    admin = KafkaAdmin({"bootstrap.servers": "127.0.0.1:1"})
    client = SimpleNamespace(
        create_partitions=lambda *_, **__: {"flights": added}, describe_topics=lambda *_, **__: {"flights": told}
    )
    client.poll = lambda _seconds: 0
    monkeypatch.setattr(admin, "_client", client)
    if refused:
        with pytest.raises(KafkaRefused, match="already has 2"):
            admin.add_partitions("flights", 3)
    else:
        admin.add_partitions("flights", 3)
