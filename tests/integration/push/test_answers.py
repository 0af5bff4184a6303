"""Every row of the answer tables, in every profile, over a real socket and a real Kafka: one message for each."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Any

import pytest

from tests.integration.installation import Installation, Record, installation
from tests.integration.push.push_app import App, Delivered, app, pushing
from tests.support.waiting import wait_until

pytestmark = pytest.mark.kafka

ACK, RETRY, DLQ, HOLD, HOLD_THEN_DLQ = "ack", "retry", "dlq", "hold", "hold, then dlq"
SLOW = 60
"""Seconds; longer than the app has."""


@dataclass(frozen=True)
class Case:
    """What the app says to a message the first time, and what becomes of it.

    Attributes:
        level: that a retry waits on; 3 is the group's own first.
        cause: stands in the dead letter.
    """

    says: Mapping[str, Any]
    native: str
    dapr: str
    knative: str
    level: int = 3
    cause: str = ""

    def in_profile(self, profile: str) -> str:
        return {"dapr": self.dapr, "knative": self.knative}.get(profile, self.native)


def status(text: str, **more: Any) -> dict[str, Any]:
    return {"json": {"status": text} | more}


CASES: dict[str, Case] = {
    "empty": Case({}, ACK, ACK, ACK),
    "no content": Case({"status": 204}, ACK, ACK, ACK),
    "null": Case({"json": None}, ACK, ACK, ACK),
    "text": Case({"json": "ok"}, ACK, ACK, ACK),
    "other object": Case({"json": {"id": 1}}, ACK, ACK, ACK),
    "SUCCESS": Case(status("SUCCESS"), ACK, ACK, ACK),
    "CONSUME_SUCCESS": Case(status("CONSUME_SUCCESS"), ACK, ACK, ACK),
    "RETRY": Case(status("RETRY"), RETRY, RETRY, ACK),
    "RECONSUME_LATER": Case(status("RECONSUME_LATER"), RETRY, RETRY, ACK),
    "RETRY with a level": Case(status("RETRY", delayLevelWhenNextConsume=4), RETRY, RETRY, ACK, level=4),
    "RETRY that is dead": Case(status("RETRY", delayLevelWhenNextConsume=-1), DLQ, DLQ, ACK),
    "DROP": Case(status("DROP"), DLQ, DLQ, ACK, cause="APP_DROP"),
    "unknown": Case(status("MAYBE"), RETRY, RETRY, ACK),
    **{f"{code}": Case({"status": code}, DLQ, RETRY, DLQ) for code in (400, 401, 403, 410, 413, 415, 422)},
    "said why": Case(
        {"status": 422, "json": {"error": {"type": "app.Late", "message": "no dep_time"}}},
        *(DLQ, RETRY, DLQ),
    ),
    "404": Case({"status": 404, "always": True}, HOLD_THEN_DLQ, DLQ, RETRY),
    "404 at first": Case({"status": 404}, HOLD, DLQ, RETRY),
    **{f"{code}": Case({"status": code}, RETRY, RETRY, RETRY) for code in (408, 409, 425, 429, 500, 501)},
    "429 with retry-after": Case({"status": 429, "headers": {"retry-after": "1"}}, RETRY, RETRY, RETRY, level=1),
    "500 with a level": Case({"status": 500, "headers": {"reconsume-delay-level": "4"}}, RETRY, RETRY, RETRY, level=4),
    "500 that is dead": Case({"status": 500, "headers": {"reconsume-delay-level": "-1"}}, DLQ, DLQ, DLQ),
    "502": Case({"status": 502}, HOLD, HOLD, HOLD),
    "503": Case({"status": 503}, HOLD, HOLD, HOLD),
    "504": Case({"status": 504}, HOLD, HOLD, HOLD),
    "503 with retry-after": Case({"status": 503, "headers": {"retry-after": "2"}}, RETRY, RETRY, RETRY, level=4),
    "503 of the app": Case({"status": 503, "headers": {"reconsume-error-type": "Db"}}, RETRY, RETRY, RETRY),
    "reset": Case({"abort": True}, HOLD, HOLD, HOLD),
    "no answer": Case({"sleep": SLOW}, RETRY, RETRY, RETRY),
    "listed": Case(
        {"status": 500, "json": {"error": {"type": "app.Hopeless", "message": "no dep_time"}}},
        *(DLQ, DLQ, RETRY),
        cause="app.Hopeless",
    ),
    "RETRY of what is listed": Case(status("RETRY", error={"type": "Hopeless"}), DLQ, DLQ, ACK, cause="Hopeless"),
    "listed in a header": Case(
        {"status": 500, "headers": {"reconsume-error-type": "app.Hopeless"}}, DLQ, DLQ, DLQ, cause="app.Hopeless"
    ),
    "listed with a level": Case(
        {"status": 500, "headers": {"reconsume-error-type": "app.Hopeless", "reconsume-delay-level": "4"}},
        *(RETRY, RETRY, RETRY),
        level=4,
    ),
    "302": Case({"status": 302, "headers": {"location": "/elsewhere"}}, DLQ, RETRY, DLQ),
}
PROFILES = ["native", "dapr", "knative", "rocketmq-batch"]


def says(one: Delivered, before: int) -> Mapping[str, Any]:
    case = CASES[one.value["case"]]
    always = case.says.get("always", False) and "dapr" not in one.path and one.times == 0
    return case.says if always or before == 0 else {}


@dataclass
class Ran:
    """What was delivered and what Kafka has at the end, of one profile."""

    delivered: dict[str, list[Delivered]] = field(default_factory=dict)
    dead: dict[str, Record] = field(default_factory=dict)


@pytest.fixture(scope="module")
def here(bootstrap_servers: str) -> Iterator[Installation]:
    with installation(bootstrap_servers) as one:
        yield one


@pytest.fixture(scope="module")
def ran(here: Installation) -> dict[str, Ran]:
    """All profiles at once, against one app; the prefix of the path tells them apart."""
    topics = {profile: here.topic(f"rows-{profile}") for profile in PROFILES}
    for topic in topics.values():
        here.produce(topic, *(json.dumps({"case": name}).encode() for name in CASES))
    with app(says) as one, ExitStack() as stack:
        for profile, topic in topics.items():
            stack.enter_context(
                pushing(
                    *(here, here.name(profile), topic, f"{one.url}/{profile}"),
                    profile=profile,
                    order="none",
                    max_in_flight=4,
                    consume_timeout_seconds=15,
                    missing_route_grace_seconds=10,
                    dead_letter_on=["Hopeless"],
                )
            )
        for profile, topic in topics.items():
            wait_until(lambda: settled(here, one, profile, topic), f"all of {profile} are settled")  # noqa: B023
    return {profile: result(here, one, profile) for profile in PROFILES}


def settled(here: Installation, one: App, profile: str, topic: str) -> bool:
    """All first copies are done, all that wait have come back, and all dead letters are there."""
    group = here.name(profile)
    wanted = Counter(case.in_profile(profile) for case in CASES.values())
    retried = sum(1 for came in list(one.seen) if came.path.startswith(f"/{profile}") and came.times)
    return (
        here.finished(group, topic) == len(CASES)
        and retried == wanted[RETRY]
        and len(here.dead_letters(group)) == wanted[DLQ] + wanted[HOLD_THEN_DLQ]
    )


def result(here: Installation, one: App, profile: str) -> Ran:
    ran = Ran()
    for delivered in one.seen:
        if delivered.path.startswith(f"/{profile}"):
            ran.delivered.setdefault(delivered.value["case"], []).append(delivered)
    for letter in here.dead_letters(here.name(profile)):
        assert letter.value is not None
        ran.dead[json.loads(letter.value)["case"]] = letter
    return ran


@pytest.mark.parametrize("profile", PROFILES)
@pytest.mark.parametrize("name", CASES)
def test_the_row(ran: dict[str, Ran], profile: str, name: str) -> None:
    case, of_profile = CASES[name], ran[profile]
    delivered = of_profile.delivered[name]
    times = [one.times for one in delivered]
    expected = case.in_profile(profile)
    assert (name in of_profile.dead) == (expected in (DLQ, HOLD_THEN_DLQ))
    if expected in (HOLD, HOLD_THEN_DLQ):
        assert len(times) > 1
        assert set(times) == {0}, "given again, and not counted"
    elif expected == RETRY:
        assert times == [0, 1]
        assert [one.level for one in delivered] == [None, str(case.level)]
    else:
        assert times == [0]
    if name in of_profile.dead:
        letter = of_profile.dead[name]
        assert letter["__dlq.errors.exception.class"]
        assert letter["RECONSUME_TIME"] == "1"
        assert case.cause in (letter["__dlq.errors.exception.class"] or "")


def test_the_app_says_why_in_the_dead_letter(ran: dict[str, Ran]) -> None:
    letter = ran["native"].dead["said why"]
    assert letter["__dlq.errors.message"] == "no dep_time"
    assert letter["__dlq.errors.exception.class"] == "app.Late"


def test_redirects_are_not_followed(ran: dict[str, Ran]) -> None:
    assert not [one for of_profile in ran.values() for one in of_profile.delivered["302"] if "elsewhere" in one.path]


def test_the_routes_and_types_of_the_profiles(ran: dict[str, Ran], here: Installation) -> None:
    firsts = {profile: of_profile.delivered["empty"][0] for profile, of_profile in ran.items()}
    assert {profile: one.path for profile, one in firsts.items()} == {
        "native": f"/native/events/{here.name('rows-native')}",
        "dapr": f"/dapr/events/pubsub/{here.name('rows-dapr')}",
        "knative": "/knative",
        "rocketmq-batch": "/rocketmq-batch/consumeMessage",
    }
    types = {profile: one.headers.get("content-type") for profile, one in firsts.items()}
    assert types["dapr"] == "application/cloudevents+json"
    assert types["rocketmq-batch"] == "application/cloudevents-batch+json"
    assert firsts["native"].headers["ce-id"] == f"{here.name('rows-native')}/0/0"
    assert firsts["knative"].headers["ce-type"] == "dev.knative.kafka.event"


def test_the_event_id_is_the_same_over_all_deliveries(ran: dict[str, Ran]) -> None:
    for name in ("RETRY", "503", "404 at first"):
        ids = {one.headers["ce-id"] for one in ran["native"].delivered[name]}
        assert len(ids) == 1, name


@pytest.mark.parametrize("order", ["none", "partition"])
def test_of_a_batch_with_a_listed_type_only_what_fails_alone_is_dead(
    here: Installation, order: str, caplog: pytest.LogCaptureFixture
) -> None:
    topic = here.topic(f"hopeless-{order}")
    group = here.name(f"hopeless-{order}")
    here.produce(topic, *(json.dumps({"number": number}).encode() for number in range(4)), key=b"k")

    def decide(one: Delivered, _before: int) -> Mapping[str, Any]:
        says = {"status": 500, "json": {"error": {"type": "Hopeless", "message": "no"}}}
        return says if one.value == {"number": 2} else {}

    more = {"profile": "rocketmq-batch", "order": order, "consume_message_batch_max_size": 4}
    with app(decide) as one, pushing(here, group, topic, one.url, dead_letter_on=["Hopeless"], **more):
        wait_until(lambda: here.dead_letters(group), "the dead letter")
        wait_until(lambda: here.committed(group, topic) == 4, "all are committed")
    assert max(one.batches) > 1
    assert [letter.value for letter in here.dead_letters(group)] == [b'{"number": 2}']
    assert {delivered.times for delivered in one.seen} == {0}
    told = [one.getMessage() for one in caplog.records if one.name == "reconsume.consumers.sending.send_back_log"]
    assert told == [f"<Message {topic}-0@2> of group {group}: dead letter after 0 of 16 retries"]
