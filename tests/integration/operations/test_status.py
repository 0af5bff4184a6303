"""`reconsume status` on topics that hold transactions, a backlog, or records that were delivered out of turn."""

from __future__ import annotations

import sys
import time
from typing import Any

import pytest
from confluent_kafka import Consumer, TopicPartition

from reconsume.bridge.kafka.cluster import Cluster
from reconsume.bridge.reading import commits_of_groups
from reconsume.cli.actions.status import show_status, watch_status
from reconsume.delay_levels.progress.done_ahead import encode_done
from reconsume.delay_levels.wire.names import DOCTOR_GROUP
from reconsume.operations.status import collect_status
from tests.integration.installation import Installation, scheduler, settings_for
from tests.support.waiting import wait_until

pytestmark = pytest.mark.kafka


@pytest.fixture
def one(bootstrap_servers: str) -> Installation:
    one = Installation(settings_for(bootstrap_servers))
    one.make_topics()
    one.write_groups()
    return one


def commit(one: Installation, group: str, offset: TopicPartition) -> None:
    consumer = Consumer(one.settings.client_settings() | {"group.id": group})
    consumer.commit(offsets=[offset], asynchronous=False)
    consumer.close()


@pytest.mark.parametrize("child", [sys.executable, "false", "there is no such program"])
def test_many_groups_are_asked_at_once_and_one_by_one_where_the_child_dies(
    one: Installation, monkeypatch: pytest.MonkeyPatch, child: str
) -> None:
    monkeypatch.setattr(commits_of_groups, "FEW", 0)
    monkeypatch.setattr(sys, "executable", child)
    groups = [one.name(f"g{number}") for number in range(3)]
    for number, group in enumerate(groups):
        topic = one.settings.names.retry(group)
        one.admin.create(topic, 1, -1, {})
        one.produce(topic, b"first", b"second", b"third")
        if number:
            commit(one, group, TopicPartition(topic, 0, number))
    report = collect_status(one.cluster).as_json()
    assert [of_group(report, group)["retry_lag"] for group in groups] == [3, 2, 1]


def of_group(report: dict[str, Any], group: str) -> dict[str, Any]:
    return next(line for line in report["groups"] if line["group"] == group)


def waiting(report: dict[str, Any]) -> dict[str, tuple[int, bool]]:
    return {line["topic"]: (line["waiting"], line["waiting_exact"]) for line in report["waiting"]}


def test_the_marks_of_transactions_do_not_count(one: Installation, capsys: pytest.CaptureFixture[str]) -> None:
    group = one.name("g")
    back = [("REAL_TOPIC", f"%RETRY%{group}".encode()), ("RETRY_TOPIC", b"flights")]
    dead = [("REAL_TOPIC", f"%DLQ%{group}".encode()), ("RETRY_TOPIC", b"flights")]
    with scheduler(one.settings):
        for number in range(3):
            one.produce(one.settings.names.send_back, b"%d" % number, headers=back)
            wait_until(lambda: len(one.retries(group)) == number + 1, "the retry")  # noqa: B023 - called at once
        one.produce(one.settings.names.send_back, b"dead", headers=dead)
        wait_until(lambda: one.dead_letters(group), "the dead letter")
    commit(one, group, TopicPartition(one.settings.names.retry(group), 0, 1))
    report = collect_status(one.cluster).as_json()
    assert of_group(report, group) == {
        "group": group,
        "retry_lag": 2,
        "retry_lag_exact": True,
        "dead_letters": 1,
        "dead_letters_exact": True,
        "parked": 0,
        "parked_exact": True,
    }
    assert set(waiting(report).values()) == {(0, True)}
    assert (report["quarantined"], report["quarantined_exact"]) == (0, True)
    show_status(one.cluster, as_json=False)
    assert "~" not in capsys.readouterr().out


def test_the_doctors_own_group_is_not_shown(one: Installation) -> None:
    for group in (DOCTOR_GROUP, "departures"):
        one.admin.create(one.settings.names.retry(group), 1, -1, {})
    assert [line["group"] for line in collect_status(one.cluster).as_json()["groups"]] == ["departures"]


def test_what_was_delivered_out_of_turn_does_not_wait(one: Installation) -> None:
    lane = one.settings.names.delay(0)
    one.produce(lane, *(b"%d" % number for number in range(6)))
    held = TopicPartition(lane, 0, 1, encode_done(1, [2, 4]))
    commit(one, f"{one.settings.topic_prefix}scheduler", held)
    assert waiting(collect_status(one.cluster).as_json())[lane] == (3, True)


def lane_of(report: dict[str, Any], topic: str) -> dict[str, Any]:
    return next(line for line in report["waiting"] if line["topic"] == topic)


def test_what_is_overdue_and_when_the_next_record_is_due(one: Installation) -> None:
    names, hour = one.settings.names, 3_600_000
    one.admin.create(names.delay(hour), 2, -1, {"message.timestamp.type": "LogAppendTime"})
    before = int(time.time() * 1_000)
    one.produce(names.delay(hour), b"first", partition=1)
    one.produce(names.delay(hour), b"second", partition=0)
    after = int(time.time() * 1_000)
    waits = lane_of(collect_status(one.cluster).as_json(), names.delay(hour))
    assert (waits["waiting"], waits["overdue"]) == (2, 0)
    assert before + hour <= waits["next_due_ms"] <= after + hour
    late = collect_status(Cluster(one.settings, lambda: after + hour + 5_000)).as_json()
    assert (lane_of(late, names.delay(hour))["overdue"], lane_of(late, names.delay(hour))["overdue_exact"]) == (2, True)
    # Where each record has its own moment nobody can tell.
    one.produce(names.delay(0), b"now")
    held = lane_of(collect_status(one.cluster).as_json(), names.delay(0))
    assert (held["waiting"], held["overdue"], held["next_due_ms"]) == (1, 0, None)
    empty = lane_of(collect_status(one.cluster).as_json(), names.delay(1_000))
    assert (empty["waiting"], empty["overdue"], empty["next_due_ms"]) == (0, 0, None)


def test_it_is_shown_again_and_again_until_it_is_stopped(one: Installation, capsys: pytest.CaptureFixture[str]) -> None:
    rests: list[float] = []

    def rest(seconds: float) -> None:
        rests.append(seconds)
        if len(rests) == 3:
            raise KeyboardInterrupt

    watch_status(one.cluster, as_json=True, rest=rest)
    assert rests == [2, 2, 2]
    assert capsys.readouterr().out.count('"quarantined"') == 3


@pytest.mark.parametrize(("count", "exact", "shown"), [(500, True, " 500 "), (501, False, " ~501 ")])
def test_a_backlog_is_not_read_but_estimated_and_says_so(
    one: Installation, capsys: pytest.CaptureFixture[str], count: int, exact: bool, shown: str
) -> None:
    lane = one.settings.names.delay(2_000)
    one.produce(lane, *(b"v" for _ in range(count)))
    assert waiting(collect_status(one.cluster).as_json())[lane] == (count, exact)
    show_status(one.cluster, as_json=False)
    text = capsys.readouterr().out
    assert shown in next(line for line in text.splitlines() if lane in line)
    assert ("~: estimated by offsets" in text) == (not exact)
