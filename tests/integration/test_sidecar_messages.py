"""Messages that are sent through the sidecar: at once, on a level, at a moment."""

from __future__ import annotations

import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from tests.integration.installation import Installation, scheduler, settings_for
from tests.integration.sidecars import Answered, Running, b64, call, running_sidecar, sidecar_settings
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.kafka, pytest.mark.timeout(180)]


@pytest.fixture(scope="module")
def here(bootstrap_servers: str) -> Iterator[Installation]:
    settings = settings_for(bootstrap_servers)
    one = Installation(settings.model_copy(update={"allowed_real_topics": ["sidecar-.*"]}))
    one.make_topics()
    one.write_groups()
    with scheduler(one.settings):
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
    if "deliverAt" in delay:
        delay = {"deliverAt": (datetime.now(UTC) + timedelta(seconds=delay["deliverAt"])).isoformat()}
    begun = time.time()
    headers = [{"name": "a", "value": b64(b"\xff")}, {"name": "a", "value": None}]
    body = {"topic": topic, "key": b64(b"k"), "value": b64(b"v"), "headers": headers, "tags": "late", "keys": "1 2"}
    answered = send(sidecar, body | delay)
    assert answered.status == 200
    [record] = wait_until(lambda: here.read(topic), 60, "the message")
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
    later = (datetime.now(UTC) + timedelta(days=41)).isoformat()
    for body, status, kind in (
        ({"topic": "there-is-none"}, 404, "topic-not-found"),
        ({"topic": here.settings.names.retry("g")}, 403, "topic-not-allowed"),
        ({"topic": topic, "deliverAt": later}, 422, "illegal-value"),
        ({"topic": topic, "headers": [{"name": "REAL_TOPIC", "value": b64(b"x")}]}, 422, "illegal-value"),
    ):
        for more in ({}, {"idempotency_key": f"refused-{kind}"}):
            answered = send(sidecar, {"value": b64(b"v")} | body, **more)
            assert (answered.status, answered.kind) == (status, kind)
    assert here.read(topic) == []
