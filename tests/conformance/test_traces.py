"""The scenarios that a real RocketMQ 4.9.3 ran, on a real Kafka: the same calls, the same topics."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import replace
from itertools import chain
from pathlib import Path
from statistics import median
from typing import Final, NamedTuple

import pytest

from reconsume.consumers import Message
from reconsume.delay_levels.rules.levels import DelayLevels
from tests.conformance.known_differences import (
    NOT_MADE,
    ON_DEAD_LETTERS,
    ON_ORDERLY_DEAD_LETTERS,
    ONLY_OURS,
    ONLY_ROCKETMQ,
    OTHER_VALUE,
    comparable,
)
from tests.conformance.play import Played, play
from tests.conformance.scenarios import PLAYED
from tests.conformance.trace import TracedMessage, read_trace
from tests.integration.installation import Record

pytestmark = pytest.mark.kafka

TRACE: Final = read_trace()
LEVELS: Final = DelayLevels.parse(TRACE.levels)
LATE_MS: Final = 500
SLACK: Final = 5
"""A busy machine makes all retries late, and single ones by this many times the median."""
SUSPEND_MS: Final = 1_000
ORDERLY: Final = [name for name, settings in PLAYED.items() if settings.orderly]
DOCUMENT: Final = Path(__file__).parents[2] / "docs" / "differences-from-rocketmq.md"
each_scenario = pytest.mark.parametrize("name", PLAYED)


class Seen(NamedTuple):
    """What must be equal of a message, delivered or stored; sorts by attempt."""

    reconsume_times: int
    topic: str
    body: str
    queue_id: int
    delay_time_level: int
    properties: tuple[tuple[str, str], ...]


@pytest.fixture(scope="module")
def played(bootstrap_servers: str) -> dict[str, Played]:
    """All scenarios at once: one after the other would take a minute."""
    return play(bootstrap_servers, TRACE, PLAYED)


def test_every_scenario_is_played() -> None:
    assert sorted(PLAYED) == sorted(TRACE.scenarios)


@each_scenario
def test_a_listener_of_the_trace_returned_one_thing_for_one_attempt_of_a_message(name: str) -> None:
    calls = TRACE.scenarios[name].calls
    assert len({(message.topic, message.body, call.attempt) for call in calls for message in call.messages}) == sum(
        len(call.messages) for call in calls
    )


@pytest.mark.rule(
    "CC-02", "CC-04", "CC-07", "CC-10", "CC-18", "BR-13", "BR-15", "BR-17", "DP-01", "TN-02", "T-02", "T-05", "T-06"
)
@each_scenario
def test_the_listener_sees_what_it_saw_with_rocketmq(name: str, played: Mapping[str, Played]) -> None:
    ours, theirs = calls_here(played[name]), calls_there(name)
    assert sorted(chain(*ours)) == sorted(chain(*theirs)), "each message on each attempt, and no other delivery"
    for attempt in {message.reconsume_times for call in theirs for message in call}:
        here, there = of_attempt(ours, attempt), of_attempt(theirs, attempt)
        assert max(map(len, here)) <= TRACE.scenarios[name].batch_size
        # How retries are cut into batches is chance with RocketMQ too: it gave the four of its last attempt as one
        # and three (batch_later_ignores_ack_index, calls 5 and 6), because one was due a moment before the others.
        # So a batch is compared where it was cut alike, and always on the first attempt: there all were waiting.
        if attempt == 0 or sorted(map(len, here)) == sorted(map(len, there)):
            assert here == there


@pytest.mark.rule("OR-01", "OR-05", "T-32")
@pytest.mark.parametrize("name", ORDERLY)
def test_an_orderly_listener_was_called_in_the_same_order(name: str, played: Mapping[str, Played]) -> None:
    here = [[seen_here(message) for message in call.messages] for call in played[name].calls]
    there = [[seen_there(message) for message in call.messages] for call in TRACE.scenarios[name].calls]
    assert here == there


@pytest.mark.rule("DP-05", "SC-03", "T-23", "OR-02")
@each_scenario
def test_a_retry_comes_when_its_level_says(name: str, played: Mapping[str, Played]) -> None:
    """Measured by the level and not by the trace, whose first retries may hold RocketMQ's 20 s search for a topic.

    No tolerance for clocks: both ends are cut to whole milliseconds, as Kafka's append time between them is.
    """
    late = late_ms(name, played[name])
    usual = median(ms for each in PLAYED for ms in late_ms(each, played[each]).values())
    assert usual <= LATE_MS, "half of the retries are late"
    most = max(LATE_MS, SLACK * usual)
    assert {key: ms for key, ms in late.items() if not 0 <= ms <= most} == {}, f"neither early nor {most:g} ms late"
    assert len(late) == sum(call.attempt > 0 for call in TRACE.scenarios[name].calls for _ in call.messages)


def late_ms(name: str, one: Played) -> dict[tuple[str, bytes | None, int], int]:
    """How late each retry of a scenario came after the time that its level says; negative if it was early."""
    entered = {
        (message.topic, message.body, message.reconsume_times): (call.entered_ms, message)
        for call in one.calls
        for message in call.messages
    }
    late = {}
    for (topic, body, attempt), (entered_ms, message) in entered.items():
        if attempt > 0:
            wait_ms = SUSPEND_MS if name in ORDERLY else LEVELS.delay_ms(message.delay_time_level)
            late[topic, body, attempt] = entered_ms - entered[topic, body, attempt - 1][0] - wait_ms
    return late


@pytest.mark.rule(
    "BP-01", "BR-06", "BR-10", "BR-13", "BR-17", "DP-02", "NM-01", "NM-02", "NM-08", "SC-06", "T-03", "T-09"
)
@each_scenario
def test_the_retry_and_dead_letter_topics_hold_what_rocketmqs_held(name: str, played: Mapping[str, Played]) -> None:
    scenario = TRACE.scenarios[name]
    assert set(scenario.kept) == {scenario.retry_topic, scenario.dead_letter_topic}
    for topic, there in scenario.kept.items():
        records = played[name].kept[topic]
        assert (records is not None) == (there.exists and topic not in NOT_MADE), f"{topic} exists"
        assert not (topic in NOT_MADE and there.messages)
        dead = topic == scenario.dead_letter_topic
        here = [seen_in_topic(record, topic, dead_letter=dead) for record in records or []]
        messages = [in_its_place(one) for one in there.messages] if dead and name in ORDERLY else there.messages
        assert sorted(here) == sorted(seen_there(message, dead_letter=dead) for message in messages)


@pytest.mark.rule("BR-19")
@each_scenario
def test_all_copies_of_a_message_have_one_origin(name: str, played: Mapping[str, Played]) -> None:
    """Ours says where the first copy is; RocketMQ's only has to be one for each message."""
    scenario = TRACE.scenarios[name]
    there = defaultdict(set)
    for kept in scenario.kept.values():
        for message in map(in_its_place, kept.messages) if name in ORDERLY else kept.messages:
            there[message.properties["RETRY_TOPIC"], message.body].add(message.properties["ORIGIN_MESSAGE_ID"])
    here = defaultdict(set)
    for record in records_of(played[name]):
        here[record["RETRY_TOPIC"] or "", (record.value or b"").decode()].add(record["ORIGIN_MESSAGE_ID"])
    assert all(len(ids) == 1 for ids in there.values())
    assert here == {(topic, body): {f"{topic}/0/{body.removeprefix('m')}"} for topic, body in there}


@pytest.mark.parametrize("name", [name for name, settings in PLAYED.items() if settings.max_reconsume_times])
def test_a_dead_letter_names_its_target_and_its_attempts(name: str, played: Mapping[str, Played]) -> None:
    scenario = TRACE.scenarios[name]
    (letter,) = played[name].kept[scenario.dead_letter_topic] or []
    expected = {
        "REAL_TOPIC": scenario.dead_letter_topic,
        "REAL_QID": "0",
        "__dlq.errors.delivery.count": str(sum(call.messages[0].body == "m0" for call in scenario.calls)),
    }
    assert {header: letter[header] for header in expected} == expected


def test_no_known_difference_is_out_of_date(played: Mapping[str, Played]) -> None:
    """A difference that is gone must leave the table, and each of the table is told to users."""
    theirs: set[str] = set()
    for name in PLAYED:
        scenario = TRACE.scenarios[name]
        theirs.update(*(message.properties for call in scenario.calls for message in call.messages))
        if name not in ORDERLY:
            theirs.update(*(message.properties for kept in scenario.kept.values() for message in kept.messages))
    ours = {header for name in PLAYED for record in records_of(played[name]) for header, _ in record.headers}
    assert theirs - ours == set(ONLY_ROCKETMQ)
    assert {header[: header.rfind(".") + 1] or header for header in ours - theirs} >= set(ONLY_OURS)
    assert set(OTHER_VALUE) | set(ON_DEAD_LETTERS) <= theirs & ours
    section = DOCUMENT.read_text(encoding="utf-8").partition("## What the traces show")[2].partition("\n## ")[0]
    told = [*ONLY_ROCKETMQ, *ONLY_OURS, *ON_DEAD_LETTERS, *ON_ORDERLY_DEAD_LETTERS, *OTHER_VALUE]
    assert [name for name in told if f"`{name.rstrip('.')}" not in section] == []


def calls_here(one: Played) -> list[list[Seen]]:
    """Our calls, in the order of what they held: calls of two topics may overlap."""
    return sorted([seen_here(message) for message in call.messages] for call in one.calls)


def calls_there(name: str) -> list[list[Seen]]:
    return sorted([seen_there(message) for message in call.messages] for call in TRACE.scenarios[name].calls)


def of_attempt(calls: Iterable[list[Seen]], attempt: int) -> list[list[Seen]]:
    return [call for call in calls if call[0].reconsume_times == attempt]


def seen_here(message: Message) -> Seen:
    return Seen(
        message.reconsume_times,
        message.topic,
        (message.body or b"").decode(),
        message.kafka.partition,
        message.delay_time_level,
        in_order(comparable(message.properties, dead_letter=False)),
    )


def in_its_place(letter: TracedMessage) -> TracedMessage:
    """A dead letter of an orderly consumer, made like any other; ON_ORDERLY_DEAD_LETTERS says why."""
    assert letter.properties["RECONSUME_TIME"] == str(letter.reconsume_times)
    assert letter.properties["DELAY"] != "0"
    assert "ORIGIN_MESSAGE_ID" not in letter.properties
    changed = {"DELAY": "0", "ORIGIN_MESSAGE_ID": ""}
    return replace(
        letter,
        reconsume_times=letter.reconsume_times + 1,
        delay_time_level=0,
        properties={**letter.properties, **changed},
    )


def seen_there(message: TracedMessage, *, dead_letter: bool = False) -> Seen:
    return Seen(
        message.reconsume_times,
        message.topic,
        message.body,
        message.queue_id,
        message.delay_time_level,
        in_order(comparable(message.properties, dead_letter=dead_letter)),
    )


def seen_in_topic(record: Record, topic: str, *, dead_letter: bool) -> Seen:
    """Retry and dead-letter topics have one partition here, as RocketMQ's had one queue."""
    properties = {name: (value or b"").decode() for name, value in record.headers}
    return Seen(
        int(properties["RECONSUME_TIME"]),
        topic,
        (record.value or b"").decode(),
        0,
        int(properties["DELAY"]),
        in_order(comparable(properties, dead_letter=dead_letter)),
    )


def in_order(properties: Mapping[str, str]) -> tuple[tuple[str, str], ...]:
    return tuple(sorted(properties.items()))


def records_of(one: Played) -> list[Record]:
    """All that its retry and dead-letter topics hold."""
    return [record for records in one.kept.values() for record in records or []]
