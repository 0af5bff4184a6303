"""The send-back API over a real socket, on a real Kafka, with a scheduler."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from datetime import datetime
from typing import Any
from urllib.parse import quote

import pytest

from reconsume.bridge.groups.groups import SubscriptionGroupConfig
from reconsume.delay_levels.wire.properties import Header
from tests.integration.installation import Installation, Record, installation
from tests.integration.sidecars import Running, b64, call, running_sidecar, sidecar_settings
from tests.support.waiting import wait_until

pytestmark = pytest.mark.kafka

HEADERS: list[Header] = [("trace", b"1"), ("trace", b"2"), ("none", None), ("raw", b"\xff\xfe")]


@pytest.fixture(scope="module")
def here(bootstrap_servers: str) -> Iterator[Installation]:
    with installation(bootstrap_servers) as one:
        yield one


@pytest.fixture(scope="module")
def sidecar(here: Installation) -> Iterator[Running]:
    listed = {here.name("hopeless-group"): ["java.lang.IllegalArgumentException"]}
    with running_sidecar(sidecar_settings(here.settings, dead_letter_on=listed)) as running:
        yield running


def where(topic: str, offset: int = 0, **more: Any) -> dict[str, Any]:
    return {"topic": topic, "partition": 0, "offset": offset} | more


def one_record(here: Installation, name: str) -> tuple[str, str]:
    """A group, and its topic with one record."""
    topic = here.topic(name)
    here.produce(topic, b"value", key=b"key", headers=HEADERS)
    return here.name(f"{name}-group"), topic


def retry_of(here: Installation, group: str, number: int = 1) -> Record:
    records = wait_until(lambda: len(found := here.retries(group)) >= number and found, "the retry has come")
    assert isinstance(records, list)
    return records[-1]


@pytest.mark.rule("BR-09", "BR-13", "BR-15", "SB-02")
def test_by_reference_the_record_is_read_again_and_comes_back_as_it_was(here: Installation, sidecar: Running) -> None:
    group, topic = one_record(here, "reference")
    answered = sidecar.send_back(group, where(topic))
    assert answered.status == 200
    due = datetime.fromisoformat(answered.body.pop("dueAt"))
    assert answered.body == {
        "outcome": "DELAYED",
        "topic": here.settings.names.retry(group),
        "level": 3,
        "reconsumeTimes": 1,
        "messageId": f"{topic}/0/0",
    }
    [waiting] = here.waiting(1_000, group)  # the acknowledgement came before the answer
    assert due.timestamp() * 1000 == waiting.timestamp + 1_000
    retry = retry_of(here, group)
    assert (retry.key, retry.value, retry.headers[:4]) == (b"key", b"value", HEADERS)
    assert (retry["RECONSUME_TIME"], retry["RETRY_TOPIC"]) == ("1", topic)


def test_a_retry_is_sent_back_with_its_count_until_it_is_a_dead_letter(here: Installation, sidecar: Running) -> None:
    group, topic = one_record(here, "to-the-end")
    assert sidecar.send_back(group, where(topic, maxReconsumeTimes=1)).body["outcome"] == "DELAYED"
    retry = retry_of(here, group)
    error = {"type": "java.lang.IllegalStateException", "message": "no dep_time", "stack": "at Flights.java:7"}
    asked = where(here.settings.names.retry(group), retry.offset, maxReconsumeTimes=1, reconsumeTimes=1, error=error)
    answered = sidecar.send_back(group, asked)
    assert (answered.status, answered.body["outcome"]) == (200, "DEAD_LETTERED")
    assert (answered.body["topic"], answered.body["level"]) == (here.settings.names.dead_letter(group), None)
    assert (answered.body["reconsumeTimes"], answered.body["messageId"]) == (2, f"{topic}/0/0")
    [letter] = wait_until(lambda: here.dead_letters(group), "the dead letter")
    assert (letter["__dlq.errors.message"], letter["__dlq.errors.exception.class"]) == (
        "no dep_time",
        "java.lang.IllegalStateException",
    )
    assert letter["__dlq.errors.stacktrace"] == "at Flights.java:7"
    assert (letter["ORIGIN_MESSAGE_ID"], letter.value) == (f"{topic}/0/0", b"value")


def test_a_type_that_is_listed_for_the_group_makes_a_dead_letter_unless_a_level_is_given(
    here: Installation, sidecar: Running
) -> None:
    group, topic = one_record(here, "hopeless")
    here.produce(topic, b"wished for", b"refused")
    error = {"type": "java.lang.IllegalArgumentException", "message": "no dep_time"}
    dead = sidecar.send_back(group, where(topic, error=error))
    assert (dead.status, dead.body["outcome"]) == (200, "DEAD_LETTERED")
    assert dead.body["topic"] == here.settings.names.dead_letter(group)
    for offset, more in ((1, {"error": error, "delayLevel": 2}), (2, {"error": error | {"type": "Illegal"}})):
        assert sidecar.send_back(group, where(topic, offset, **more)).body["outcome"] == "DELAYED"
    assert sidecar.send_back(here.name("another"), where(topic, error=error)).body["outcome"] == "DELAYED"
    [letter] = wait_until(lambda: here.dead_letters(group), "the dead letter")
    assert (letter.value, letter["RECONSUME_TIME"]) == (b"value", "1")
    assert (letter["__dlq.errors.message"], letter["__dlq.errors.exception.class"]) == (
        "no dep_time",
        "java.lang.IllegalArgumentException",
    )


def test_by_value_the_copy_is_made_of_what_was_sent(here: Installation, sidecar: Running) -> None:
    group, topic = here.name("by-value"), here.name("not-even-there")
    headers = [{"name": "a", "value": b64(b"\xff")}, {"name": "b", "value": None}, {"name": "a"}]
    asked = where(topic, 7, key=b64(b"k"), value=b64(b"\x00\xff"), headers=headers, timestamp=1_700_000_000_000)
    answered = sidecar.send_back(group, asked | {"delayLevel": 1})
    assert (answered.status, answered.body["level"], answered.body["messageId"]) == (200, 1, f"{topic}/0/7")
    retry = retry_of(here, group)
    assert (retry.key, retry.value) == (b"k", b"\x00\xff")
    assert retry.headers[:3] == [("a", b"\xff"), ("b", None), ("a", None)]
    assert (retry["ORIGIN_MESSAGE_ID"], retry["BORN_TIMESTAMP"]) == (f"{topic}/0/7", "1700000000000")


def test_a_tombstone_by_value_and_a_retry_by_value(here: Installation, sidecar: Running) -> None:
    group = here.name("tombstone")
    retry_topic = here.settings.names.retry(group)
    history = {"RETRY_TOPIC": b"flights", "ORIGIN_MESSAGE_ID": b"flights/3/42", "RECONSUME_TIME": b"1"}
    given = [{"name": name, "value": b64(value)} for name, value in history.items()]
    asked = where(retry_topic, 0, value=None, headers=given, reconsumeTimes=1)
    answered = sidecar.send_back(group, asked)
    assert (answered.status, answered.body["reconsumeTimes"], answered.body["level"]) == (200, 2, 4)
    retry = retry_of(here, group)
    assert (retry.value, retry["ORIGIN_MESSAGE_ID"], retry["RECONSUME_TIME"]) == (None, "flights/3/42", "2")
    # The retry topic was made anew, and has another message at this place.
    for born in (b"1700000000000", b"1700000150000"):
        headers = [*given, {"name": "BORN_TIMESTAMP", "value": b64(born)}]
        anew = where(retry_topic, 7, value=b64(born), headers=headers, delayLevel=1)
        assert sidecar.send_back(group, anew).status == 200
    assert [one.value for one in here.waiting(1_000, group)] == [b"1700000000000", b"1700000150000"]
    strange = [*given, {"name": "BORN_TIMESTAMP", "value": b64(b"soon")}]
    answered = sidecar.send_back(group, where(retry_topic, 1, value=None, headers=strange, reconsumeTimes=1))
    assert answered.status == 200, "a header of another program stops no consumer"


@pytest.mark.rule("CC-07", "CC-08")
@pytest.mark.parametrize(("ack_index", "back"), [(-1, [0, 1, 2]), (0, [1, 2]), (2, []), (9, [])])
def test_of_a_list_what_comes_after_the_ack_index_is_sent_back(
    here: Installation, sidecar: Running, ack_index: int, back: list[int]
) -> None:
    name = f"list{ack_index}"
    group, topic = here.name(f"{name}-group"), here.topic(name)
    for number in range(3):
        here.produce(topic, b"%d" % number, key=b"k")
    body = {"records": [where(topic, number) for number in range(3)], "ackIndex": ack_index}
    answered = sidecar.send_back(group, body)
    assert answered.status == 200
    outcomes = [one["outcome"] for one in answered.body["records"]]
    assert [number for number, outcome in enumerate(outcomes) if outcome == "DELAYED"] == back
    assert {one for number, one in enumerate(outcomes) if number not in back} <= {"ACKNOWLEDGED"}
    assert sorted(record.value or b"" for record in here.waiting(1_000, group)) == [b"%d" % one for one in back]


def test_a_list_of_which_one_fails_is_no_success_and_can_be_sent_again(here: Installation, sidecar: Running) -> None:
    group, topic = one_record(here, "mixed")
    body = {"records": [where(topic), where(topic, 5)]}
    for _ in range(2):
        answered = sidecar.send_back(group, body)
        assert (answered.status, answered.kind) == (404, "records-failed")
        first, second = answered.body["records"]
        assert (first["outcome"], second["status"]) == ("DELAYED", 404)
        assert f"{topic}/0/5" in second["detail"]
    assert len(here.waiting(1_000, group)) == 1


def test_a_call_that_comes_again_makes_no_second_copy(here: Installation, sidecar: Running) -> None:
    group, topic = one_record(here, "again")
    with ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(lambda _: sidecar.send_back(group, where(topic)), range(8)))
    answers.append(sidecar.send_back(group, where(topic, value=b64(b"value"))))
    assert {answer.status for answer in answers} == {200}
    assert len({answer.body["dueAt"] for answer in answers}) == 1
    assert len(here.waiting(1_000, group)) == 1


def test_an_idempotency_key_decides_alone(here: Installation, sidecar: Running) -> None:
    group, topic = one_record(here, "keyed")
    here.produce(topic, b"other", key=b"key")
    for key in ("one", "one", "two"):
        assert sidecar.send_back(group, where(topic), idempotency_key=key).status == 200
    assert len(here.waiting(1_000, group)) == 2
    used = sidecar.send_back(group, where(topic, 1), idempotency_key="one")
    assert (used.status, used.kind) == (409, "idempotency-key-reused")


def test_after_a_restart_what_was_written_before_is_known(here: Installation) -> None:
    group, topic = one_record(here, "restart")
    settings = sidecar_settings(here.settings)
    answers = []
    for _ in range(2):
        with running_sidecar(settings) as running:
            answers.append(running.send_back(group, where(topic, delayLevel=2)))
    assert answers[0].status == answers[1].status == 200
    assert answers[0].body == answers[1].body
    assert len(here.waiting(1_000, group)) == 1
    # A dead letter is found too.
    retry = retry_of(here, group)
    asked = where(here.settings.names.retry(group), retry.offset, delayLevel=-1)
    for _ in range(2):
        with running_sidecar(settings) as running:
            answers.append(running.send_back(group, asked))
    assert answers[2].body == answers[3].body
    assert answers[2].body["outcome"] == "DEAD_LETTERED"
    wait_until(lambda: here.dead_letters(group), "the dead letter")
    assert len(here.waiting(0, group)) == 1


@pytest.mark.parametrize("restarts", [True, False])
def test_a_topic_that_was_made_anew_has_other_records_in_its_places(
    here: Installation, sidecar: Running, restarts: bool
) -> None:
    group, topic = one_record(here, f"anew-{restarts}")
    settings = sidecar_settings(here.settings)
    with running_sidecar(settings) if restarts else nullcontext(sidecar) as running:
        assert running.send_back(group, where(topic)).status == 200
    admin = here.admin._client
    admin.delete_topics([topic])[topic].result()
    wait_until(lambda: topic not in here.admin.partitions([topic]), "it is gone")
    here.admin.create(topic, 1, -1, {})
    here.produce(topic, b"new", key=b"key")
    with running_sidecar(settings) if restarts else nullcontext(sidecar) as running:
        for _ in range(2):
            assert running.send_back(group, where(topic)).status == 200
    assert [record.value for record in here.waiting(1_000, group)] == [b"value", b"new"]


@pytest.mark.parametrize(
    ("asked", "status", "kind"),
    [
        ({"offset": 9}, 404, "record-not-found"),
        ({"partition": 9}, 404, "record-not-found"),
        ({"topic": "there-is-none"}, 404, "record-not-found"),
        ({"reconsumeTimes": 3}, 409, "reconsume-times-disagree"),
        ({"offset": -1}, 422, "illegal-value"),
        ({"key": "YQ=="}, 422, "illegal-value"),
        ({"value": "a"}, 422, "illegal-value"),
        ({"delayLevl": 1}, 422, "illegal-value"),
        ({"records": [], "ackIndex": -2}, 422, "illegal-value"),
    ],
)
def test_what_is_refused(here: Installation, sidecar: Running, asked: dict[str, Any], status: int, kind: str) -> None:
    topic = here.name("refused")
    if not here.admin.partitions([topic]):
        here.topic("refused")
        here.produce(topic, b"value", key=b"key")
    answered = sidecar.send_back(here.name("refused-group"), where(topic) | asked)
    assert (answered.status, answered.kind) == (status, kind)
    assert answered.body["detail"]


def test_what_is_no_json_and_what_is_not_served(sidecar: Running) -> None:
    for body in (b"{", b'{"topic": "\xff"}', b"[" * 100_000, b'{"offset": %s}' % (b"9" * 5_000)):
        assert (answered := sidecar.send_back("g", body)).status == 400
        assert answered.kind == "no-json"
    assert (answered := call(sidecar.api, "GET", "/v2")).status == 404
    assert answered.kind == "no-such-route"
    assert (answered := call(sidecar.api, "GET", "/v1/messages")).status == 405
    assert answered.headers["allow"] == "POST"


@pytest.mark.rule("BR-01", "BR-04")
def test_groups_that_are_unknown_disabled_or_without_retries(bootstrap_servers: str) -> None:
    off = SubscriptionGroupConfig(group_name="off", consume_enable=False)
    none = SubscriptionGroupConfig(group_name="none", retry_queue_nums=0)
    with installation(bootstrap_servers, [off, none], auto_create=False) as here:
        topic = here.topic("some")
        here.produce(topic, b"value", key=b"key")
        with running_sidecar(sidecar_settings(here.settings)) as sidecar:
            unknown = sidecar.send_back("unknown", where(topic))
            assert (unknown.status, unknown.kind) == (404, "unknown-group")
            assert "reconsume groups set unknown" in unknown.body["detail"]
            assert sidecar.send_back("%25SYS%25", where(topic)).kind == "unknown-group"
            assert (disabled := sidecar.send_back("off", where(topic))).status == 403
            assert disabled.kind == "consume-disabled"
            dropped = sidecar.send_back("none", where(topic))
            assert (dropped.status, dropped.body["outcome"]) == (200, "DROPPED")


def test_a_closed_list_of_groups(here: Installation) -> None:
    mine = here.name("mine")
    with running_sidecar(sidecar_settings(here.settings, groups=[mine])) as sidecar:
        view = call(sidecar.api, "GET", f"/v1/groups/{mine}")
        assert view.status == 200
        assert view.body["retryTopicExists"] is True
        assert sidecar.send_back(here.name("other"), where("t")).kind == "unknown-group"


def test_a_group_with_a_slash_in_its_name(here: Installation, sidecar: Running) -> None:
    _, topic = one_record(here, "slash")
    group = here.name("air/port%2F")
    path = f"/v1/groups/{quote(group, safe='')}"
    assert call(sidecar.api, "GET", path).body["retryTopic"] == here.settings.names.retry(group)
    assert call(sidecar.api, "POST", f"{path}/send-back", where(topic)).body["outcome"] == "DELAYED"
    assert call(sidecar.api, "GET", f"{path}/send-back").status == 405


def test_what_a_consumer_has_to_know_and_the_making_of_its_topic(here: Installation, sidecar: Running) -> None:
    group = here.name("groß")
    path = f"/v1/groups/{here.settings.topic_prefix}gro%C3%9F"
    seen = call(sidecar.api, "GET", path)
    names = here.settings.names
    assert seen.body == {
        "group": group,
        "retryTopic": names.retry(group),
        "retryTopicExists": False,
        "deadLetterTopic": names.dead_letter(group),
        "retryMaxTimes": 16,
        "retryQueueNums": 1,
        "consumeEnable": True,
        "waits": "1s 2s ×15",
        "consumerSettings": {"auto.offset.reset": "earliest", "isolation.level": "read_committed"},
    }
    assert not here.admin.partitions([names.retry(group)]), "to look makes nothing"
    for _ in range(2):
        assert call(sidecar.api, "PUT", path).body == seen.body | {"retryTopicExists": True}
    assert here.admin.settings([names.retry(group)])[names.retry(group)]["message.timestamp.type"] == "LogAppendTime"
