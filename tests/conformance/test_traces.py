"""The same scenarios on RocketMQ 4.9.3 and on reconsume, compared call by call.

Left out are the orderly and the broadcasting scenarios: those ways to consume are not built yet.
"""

from __future__ import annotations

import json
import time
from collections import defaultdict
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from reconsume.bridge.groups import Groups, SystemConfig
from reconsume.bridge.groups_store import write_system
from reconsume.bridge.topics import TopicMaker, wanted_topics
from reconsume.consumers import ConsumeConcurrentlyContext, ConsumeConcurrentlyStatus, Message, PushConsumer
from reconsume.delay_levels.levels import DelayLevels
from reconsume.delay_levels.properties import Header
from tests.integration.installation import Installation, Record, scheduler, settings_for
from tests.support.waiting import wait_until

pytestmark = pytest.mark.kafka

TRACE = [json.loads(line) for line in (Path(__file__).parent / "rocketmq-4.9.3.jsonl").read_text().splitlines()]
LEVELS = DelayLevels.parse(TRACE[0]["levels"])
LATE_MS = 500
"""How late a retry may be. RocketMQ finds a new retry topic only after up to 20 s; that wait is not compared."""

SETTINGS: dict[str, dict[str, Any]] = {
    "later_until_dlq_max3": {"max_reconsume_times": 3},
    "max0_goes_to_dlq": {"max_reconsume_times": 0},
    "level_minus1_goes_to_dlq": {"level": -1},
    "level5_fixed_then_success": {"level": 5},
    "level30_is_capped": {"level": 30},
    "null_means_retry": {},
    "tag_filter_with_retry": {"tags": "TagA"},
    "two_topics_one_group": {},
    "batch_ack_index_1_of_4": {"batch": 4, "ack_index": 1},
    "batch_later_ignores_ack_index": {"batch": 4, "ack_index": 1},
}
"""What the recorded listeners and consumers were set to."""

MessageKey = tuple[str, str]
"""Origin topic and body."""


@dataclass(frozen=True)
class Delivery:
    """One message in one call of a listener."""

    topic: str
    body: str
    reconsume_times: int
    level: int
    tags: str
    keys: str
    user: str


@dataclass
class Played:
    """What reconsume did in one scenario."""

    calls: list[tuple[float, list[Delivery]]] = field(default_factory=list)
    retry: list[Record] = field(default_factory=list)
    dead: list[Record] = field(default_factory=list)
    dead_letter_topic_exists: bool = False


def recorded_calls(scenario: str) -> list[dict[str, Any]]:
    return [line for line in TRACE if line["kind"] == "delivery" and line["scenario"] == scenario]


def recorded_topic(scenario: str, kind: str) -> dict[str, Any]:
    name = f"%{kind}%G_{scenario}"
    return next(line for line in TRACE if line["kind"] == "topic" and line["topic"] == name)


def recorded(message: dict[str, Any]) -> Delivery:
    properties = message["properties"]
    return Delivery(
        message["topic"],
        message["body"],
        message["reconsumeTimes"],
        message["delayTimeLevel"],
        properties["TAGS"],
        properties["KEYS"],
        properties["user"],
    )


class Player:
    """Plays one scenario: its listener answers what the recorded one answered."""

    def __init__(self, scenario: str, here: Installation) -> None:
        self.scenario = scenario
        self.here = here
        self.played = Played()
        self.answers = {
            (message["topic"], message["body"], message["reconsumeTimes"]): call["returned"]
            for call in recorded_calls(scenario)
            for message in call["messages"]
        }
        self.first = {
            (message["topic"], message["body"]): message
            for call in reversed(recorded_calls(scenario))
            for message in call["messages"]
            if message["reconsumeTimes"] == 0
        }

    @property
    def group(self) -> str:
        return f"G_{self.scenario}"

    def produce(self) -> None:
        """Everything is there before the consumer starts, so a batch of four can be one."""
        for topic in sorted({topic for topic, _ in self.first}):
            assert self.here.admin.create(topic, 1, -1, {}), f"{topic} exists: these tests need a fresh Kafka"
        for (topic, body), message in sorted(self.first.items()):
            names = ("TAGS", "KEYS", "user")
            headers: list[Header] = [(name, message["properties"][name].encode()) for name in names]
            self.here.produce(topic, body.encode(), headers=headers)

    def consumer(self) -> PushConsumer:
        set_to = SETTINGS[self.scenario]
        consumer = PushConsumer(
            self.group,
            bootstrap_servers=self.here.settings.bootstrap_servers,
            conf={"auto.offset.reset": "earliest"},
            topic_prefix=self.here.settings.topic_prefix,
            max_reconsume_times=set_to.get("max_reconsume_times"),
            consume_message_batch_max_size=set_to.get("batch", 1),
        )
        for topic in {topic for topic, _ in self.first}:
            consumer.subscribe(topic, set_to.get("tags", "*"))
        return consumer.register_message_listener(self.on_messages)

    def on_messages(
        self, messages: Sequence[Message], context: ConsumeConcurrentlyContext
    ) -> ConsumeConcurrentlyStatus | None:
        set_to = SETTINGS[self.scenario]
        deliveries = [delivered(message) for message in messages]
        self.played.calls.append((time.monotonic(), deliveries))
        context.delay_level_when_next_consume = set_to.get("level", 0)
        first = deliveries[0]
        answer = self.answers[first.topic, first.body, first.reconsume_times]
        if first.reconsume_times == 0 or answer == "RECONSUME_LATER":
            context.ack_index = set_to.get("ack_index", context.ack_index)
        return None if answer == "null" else ConsumeConcurrentlyStatus[answer]

    def is_over(self) -> bool:
        expected = sum(len(call["messages"]) for call in recorded_calls(self.scenario))
        dead = len(recorded_topic(self.scenario, "DLQ")["stored"])
        seen = sum(len(messages) for _, messages in self.played.calls)
        return seen >= expected and (dead == 0 or len(self.here.dead_letters(self.group)) >= dead)

    def look_at_topics(self) -> None:
        topic = self.here.settings.names.dead_letter(self.group)
        self.played.retry, self.played.dead = self.here.retries(self.group), self.here.dead_letters(self.group)
        self.played.dead_letter_topic_exists = topic in self.here.admin.partitions([topic])


def delivered(message: Message) -> Delivery:
    return Delivery(
        message.topic,
        (message.body or b"").decode(),
        message.reconsume_times,
        message.delay_time_level,
        message.tags or "",
        message.keys or "",
        message.properties["user"],
    )


@pytest.fixture(scope="module")
def played(bootstrap_servers: str) -> dict[str, Played]:
    """All scenarios at the same time, with one scheduler, as they were recorded."""
    here = Installation(settings_for(bootstrap_servers))
    system = SystemConfig(message_delay_level=str(LEVELS))
    maker = TopicMaker(here.admin, here.settings.names, here.settings.topics)
    for topic in wanted_topics(maker, Groups(system)):
        maker.make(topic)
    write_system(here.settings, system)
    players = [Player(scenario, here) for scenario in SETTINGS]
    with ExitStack() as stack:
        stack.enter_context(scheduler(here.settings))
        for player in players:
            player.produce()
        for player in players:
            stack.enter_context(player.consumer())
        for player in players:
            wait_until(player.is_over, 60, f"the end of {player.scenario}")
    for player in players:
        player.look_at_topics()
    return {player.scenario: player.played for player in players}


@pytest.mark.parametrize("scenario", SETTINGS)
@pytest.mark.rule(
    "CC-02", "CC-04", "CC-07", "CC-10", "BR-13", "BR-15", "BR-17", "DP-01", "TN-02", "T-02", "T-05", "T-06"
)
def test_each_message_is_delivered_as_rocketmq_delivers_it(scenario: str, played: dict[str, Played]) -> None:
    theirs: defaultdict[MessageKey, list[Delivery]] = defaultdict(list)
    for call in recorded_calls(scenario):
        for message in call["messages"]:
            theirs[message["topic"], message["body"]].append(recorded(message))
    ours: defaultdict[MessageKey, list[Delivery]] = defaultdict(list)
    for _, messages in played[scenario].calls:
        for one in messages:
            ours[one.topic, one.body].append(one)
    assert ours == theirs


@pytest.mark.parametrize("scenario", [name for name, set_to in SETTINGS.items() if "batch" in set_to])
@pytest.mark.rule("CC-18")
def test_the_first_batch_is_as_large_as_with_rocketmq(scenario: str, played: dict[str, Played]) -> None:
    """Only the first: how retries are grouped is chance, and the recorded run split one batch itself."""
    assert len(played[scenario].calls[0][1]) == len(recorded_calls(scenario)[0]["messages"])


@pytest.mark.parametrize("scenario", SETTINGS)
@pytest.mark.rule("DP-05", "SC-03", "T-23")
def test_a_retry_waits_for_its_level_and_is_at_most_half_a_second_late(
    scenario: str, played: dict[str, Played]
) -> None:
    last: dict[MessageKey, float] = {}
    for called_at, messages in played[scenario].calls:
        for one in messages:
            if one.reconsume_times > 0:
                waited_ms = (called_at - last[one.topic, one.body]) * 1_000
                delay_ms = LEVELS.delay_ms(one.level)
                assert delay_ms <= waited_ms <= delay_ms + LATE_MS, one
            last[one.topic, one.body] = called_at


@pytest.mark.parametrize("scenario", SETTINGS)
@pytest.mark.rule("BR-06", "BR-10", "DP-02", "NM-01", "NM-02", "SC-06", "T-09")
def test_the_retry_topic_holds_what_rocketmqs_holds(scenario: str, played: dict[str, Played]) -> None:
    theirs = recorded_topic(scenario, "RETRY")["stored"]
    names = ("DELAY", "KEYS", "REAL_QID", "REAL_TOPIC", "RETRY_TOPIC", "TAGS", "user")
    expected = {
        (one["body"], str(one["reconsumeTimes"]), *(one["properties"][name] for name in names)) for one in theirs
    }
    found = [
        ((one.value or b"").decode(), one["RECONSUME_TIME"], *(one[name] for name in names))
        for one in played[scenario].retry
    ]
    assert len(found) == len(theirs)
    assert set(found) == expected


@pytest.mark.parametrize("scenario", SETTINGS)
@pytest.mark.rule("BR-13", "BR-17", "NM-08", "T-03")
def test_the_dead_letter_topic_holds_what_rocketmqs_holds(scenario: str, played: dict[str, Played]) -> None:
    """RocketMQ leaves REAL_TOPIC at the last retry topic, or leaves it out; ours names the dead-letter topic."""
    theirs = recorded_topic(scenario, "DLQ")
    assert played[scenario].dead_letter_topic_exists == theirs["exists"]
    names = ("DELAY", "KEYS", "RETRY_TOPIC", "TAGS", "user")
    expected = [
        (one["body"], str(one["reconsumeTimes"]), *(one["properties"][name] for name in names))
        for one in theirs["stored"]
    ]
    found = [
        ((one.value or b"").decode(), one["RECONSUME_TIME"], *(one[name] for name in names))
        for one in played[scenario].dead
    ]
    assert found == expected
    assert all(one["REAL_TOPIC"] == f"%DLQ%G_{scenario}" for one in played[scenario].dead)
