"""Members of a group while its coordinator cannot tell them."""

from __future__ import annotations

import socket
import struct
import threading
import time
from concurrent.futures import Future
from contextlib import ExitStack, suppress
from types import SimpleNamespace
from typing import Any, Self

import pytest
from confluent_kafka import KafkaError

from reconsume.bridge.kafka import admin, patient_client
from reconsume.bridge.kafka.admin import KafkaAdmin
from reconsume.bridge.librdkafka import listed_groups
from reconsume.delay_levels.errors import KafkaNotReachable, KafkaRefused

GROUP = "flights"
ID = "b7c1c4a0-0f5e-4b8e-9f0b-0d8a5d0a8f11"
LOADING = KafkaError(KafkaError.COORDINATOR_LOAD_IN_PROGRESS)


class Listing:
    """Answers to both requests for groups.

    Attributes:
        groups: what `list_groups` returns, without the errors that it forgets.
        listed: the groups that `list_consumer_groups` returns.
        errors: the errors that `list_consumer_groups` returns; None if it never ends.
    """

    def __init__(
        self, groups: list[Any], listed: tuple[str, ...] = (), errors: tuple[KafkaError, ...] | None = ()
    ) -> None:
        self.groups, self.listed, self.errors = groups, listed, errors

    def poll(self, _seconds: float) -> int:
        return 0

    def list_groups(self, _group: str, timeout: float) -> list[Any]:
        assert timeout
        return self.groups

    def list_consumer_groups(self, request_timeout: float) -> Future[Any]:
        assert request_timeout
        found: Future[Any] = Future()
        if self.errors is not None:
            valid = [SimpleNamespace(group_id=one) for one in self.listed]
            found.set_result(SimpleNamespace(valid=valid, errors=list(self.errors)))
        return found


def described(*members: str, error: KafkaError | None = None) -> list[Any]:
    return [SimpleNamespace(id=GROUP, error=error, members=[SimpleNamespace(id=f"{one}-{ID}") for one in members])]


def admin_of(monkeypatch: pytest.MonkeyPatch, client: Listing) -> KafkaAdmin:
    monkeypatch.setattr(patient_client, "make_admin", lambda _settings: client)
    return KafkaAdmin({"bootstrap.servers": "127.0.0.1:1"})


@pytest.mark.parametrize(
    ("client", "names"),
    [
        (Listing(described("one", "other")), {"one", "other"}),
        (Listing(described()), set()),
        (Listing([], listed=("trains",)), set()),
    ],
    ids=["two members", "no member", "no such group"],
)
def test_members_are_those_that_the_coordinator_tells(
    monkeypatch: pytest.MonkeyPatch, client: Listing, names: set[str]
) -> None:
    assert admin_of(monkeypatch, client).member_names(GROUP) == names


@pytest.mark.parametrize(
    "client",
    [
        Listing(described(error=LOADING)),
        Listing([], errors=(LOADING,)),
        Listing([], listed=(GROUP,)),
        Listing([], errors=None),
    ],
    ids=["it describes no group", "it lists no group", "the answers differ", "no answer"],
)
def test_a_coordinator_that_does_not_tell_them_is_no_group_without_members(
    monkeypatch: pytest.MonkeyPatch, client: Listing
) -> None:
    monkeypatch.setattr(listed_groups, "_GRACE_SECONDS", -admin._ANSWER_SECONDS)
    with pytest.raises(KafkaNotReachable, match="looking at the members of group flights"):
        admin_of(monkeypatch, client).member_names(GROUP)


def test_a_group_that_is_created_meanwhile_is_asked_for_again(monkeypatch: pytest.MonkeyPatch) -> None:
    client, answers = Listing([], listed=(GROUP,)), [[], described("one")]
    monkeypatch.setattr(client, "list_groups", lambda *_, **__: answers.pop(0))
    assert admin_of(monkeypatch, client).member_names(GROUP) == {"one"}


def test_a_missing_right_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    client = Listing(described(error=KafkaError(KafkaError.GROUP_AUTHORIZATION_FAILED)))
    with pytest.raises(KafkaRefused, match="no right to use the consumer group"):
        admin_of(monkeypatch, client).member_names(GROUP)


class TinyBroker:
    """Tells a client of two brokers, and of the groups that it knows.

    Args:
        number: its own.
        error: beside its groups.
        groups: the groups.
        late: seconds before it tells the groups.
    """

    def __init__(self, number: int, error: int, groups: tuple[str, ...], late: float) -> None:
        self._number, self._error, self._groups, self._late = number, error, groups, late
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.all: list[TinyBroker] = []

    def __enter__(self) -> Self:
        threading.Thread(target=self._accept, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._listener.close()

    @property
    def port(self) -> int:
        return int(self._listener.getsockname()[1])

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                threading.Thread(target=self._serve, args=(self._listener.accept()[0],), daemon=True).start()

    def _serve(self, connection: socket.socket) -> None:
        with connection, connection.makefile("rb") as asked, suppress(OSError):
            while size := asked.read(4):
                kind, version, correlation = struct.unpack(">hhi", asked.read(struct.unpack(">i", size)[0])[:8])
                told = self._told(kind, version)
                connection.sendall(struct.pack(">ii", 4 + len(told), correlation) + told)

    def _told(self, kind: int, version: int) -> bytes:
        if kind == 18:
            versions = ((18, 0, 0), (3, 1, 1), (10, 0, 0), (15, 0, 0), (16, 0, 0))
            unsupported = 35 if version else 0
            return struct.pack(">hi", unsupported, len(versions)) + b"".join(
                struct.pack(">hhh", *one) for one in versions
            )
        if kind == 3:
            brokers = (
                struct.pack(">i", one._number) + _text("127.0.0.1") + struct.pack(">ih", one.port, -1)
                for one in self.all
            )
            return struct.pack(">i", len(self.all)) + b"".join(brokers) + struct.pack(">ii", 1, 0)
        time.sleep(self._late)
        groups = (_text(one) + _text("consumer") for one in self._groups)
        return struct.pack(">hi", self._error, len(self._groups)) + b"".join(groups)


def _text(value: str) -> bytes:
    return struct.pack(">h", len(value)) + value.encode()


def test_the_error_of_one_broker_outlives_the_answer_of_another() -> None:
    with ExitStack() as running:
        coordinator = running.enter_context(TinyBroker(1, KafkaError.COORDINATOR_LOAD_IN_PROGRESS, (), 0))
        other = running.enter_context(TinyBroker(2, 0, ("trains",), 0.1))
        coordinator.all = other.all = [coordinator, other]
        one = KafkaAdmin({"bootstrap.servers": f"127.0.0.1:{coordinator.port}"})
        with pytest.raises(KafkaNotReachable, match="Coordinator load in progress"):
            one.member_names(GROUP)
