"""Messages that are sent through the sidecar: at once, on a level, at a moment."""

from __future__ import annotations

import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from tests.integration.installation import Installation, installation
from tests.integration.sidecars import Answered, Running, b64, call, running_sidecar, sidecar_settings
from tests.support.waiting import wait_until

pytestmark = pytest.mark.kafka


@pytest.fixture(scope="module")
def here(bootstrap_servers: str) -> Iterator[Installation]:
    with installation(bootstrap_servers, allowed=["sidecar-.*"]) as one:
        yield one


@pytest.fixture(scope="module")
def sidecar(here: Installation) -> Iterator[Running]:
    with running_sidecar(sidecar_settings(here.settings)) as running:
        yield running


def send(sidecar: Running, body: dict[str, Any], **headers: str) -> Answered:
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return call(sidecar.api, "POST", "/v1/messages", body, named)


@pytest.fixture
def topic(here: Installation) -> str:
    topic = here.unique("sidecar-orders")
    here.admin.create(topic, 1, -1, {})
    return topic


@pytest.mark.parametrize(
    ("delay", "seconds"),
    [({}, 0), ({"delayLevel": 4}, 2), ({"deliverAt": 2}, 2), ({"deliverAt": -3600}, 0)],
)
def test_a_message_comes_when_it_is_due_and_not_before(
    here: Installation, sidecar: Running, topic: str, delay: dict[str, Any], seconds: int
) -> None:
    begun = time.time()
    if "deliverAt" in delay:
        delay = {"deliverAt": (datetime.now(UTC) + timedelta(seconds=delay["deliverAt"])).isoformat()}
    headers = [{"name": "a", "value": b64(b"\xff")}, {"name": "a", "value": None}]
    body = {"topic": topic, "key": b64(b"k"), "value": b64(b"v"), "headers": headers, "tags": "late", "keys": "1 2"}
    answered = send(sidecar, body | delay)
    assert answered.status == 200
    [record] = wait_until(lambda: here.read(topic), "the message")
    assert record.timestamp / 1000 >= begun + seconds - 0.1
    assert (record.key, record.value, record.headers[:2]) == (b"k", b"v", [("a", b"\xff"), ("a", None)])
    assert (record["TAGS"], record["KEYS"], record["UNIQ_KEY"]) == ("late", "1 2", answered.body["messageId"])


def test_a_tombstone_and_a_call_that_comes_again(here: Installation, sidecar: Running, topic: str) -> None:
    answers = [send(sidecar, {"topic": topic, "value": None}, idempotency_key="one") for _ in range(3)]
    assert len({answer.body["messageId"] for answer in answers}) == 1
    assert [record.value for record in here.read(topic)] == [None]
    reused = send(sidecar, {"topic": topic, "value": b64(b"other")}, idempotency_key="one")
    assert (reused.status, reused.kind) == (409, "idempotency-key-reused")


def test_what_is_refused(here: Installation, sidecar: Running, topic: str) -> None:
    later, soon = ((datetime.now(UTC) + timedelta(days=days)).isoformat() for days in (41, 1))
    forbidden = here.unique("other-orders")
    here.admin.create(forbidden, 1, -1, {})
    for body, status, kind in (
        ({"topic": "there-is-none"}, 404, "topic-not-found"),
        ({"topic": here.settings.names.retry("g")}, 403, "topic-not-allowed"),
        ({"topic": topic, "deliverAt": later}, 422, "illegal-value"),
        ({"topic": forbidden, "delayLevel": 1}, 403, "topic-not-allowed"),
        ({"topic": forbidden, "deliverAt": soon}, 403, "topic-not-allowed"),
        ({"topic": topic, "tags": "\ud800"}, 422, "illegal-value"),
        ({"topic": topic, "headers": [{"name": "REAL_TOPIC", "value": b64(b"x")}]}, 422, "illegal-value"),
    ):
        for more in ({}, {"idempotency_key": f"refused-{kind}"}):
            answered = send(sidecar, {"value": b64(b"v")} | body, **more)
            assert (answered.status, answered.kind) == (status, kind)
            if body["topic"] == forbidden:
                assert "it is 'sidecar-.*'; add the topic and restart the schedulers" in answered.body["detail"]
    assert send(sidecar, {"topic": forbidden, "value": b64(b"at once")}).status == 200, "no scheduler has to deliver it"
    assert (here.read(topic), here.read(here.settings.names.quarantine)) == ([], [])
