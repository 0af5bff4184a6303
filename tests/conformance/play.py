"""Plays the scenarios of a trace on a real Kafka, all at the same time, and keeps what happened."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import partial
from tempfile import TemporaryDirectory
from typing import Final

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient

from reconsume.bridge.groups.groups import Groups, SystemConfig
from reconsume.bridge.groups.groups_store import write_system
from reconsume.bridge.topics.topics import TopicMaker, wanted_topics
from reconsume.consumers import (
    ConsumeConcurrentlyContext,
    ConsumeConcurrentlyStatus,
    ConsumeOrderlyContext,
    ConsumeOrderlyStatus,
    Message,
    PushConsumer,
)
from reconsume.delay_levels.wire.properties import Header
from tests.conformance.scenarios import Settings
from tests.conformance.trace import Scenario, Trace, TracedMessage, Try
from tests.integration.installation import Installation, Record, scheduler, settings_for
from tests.support.waiting import wait_until

__all__ = ["Played", "PlayedCall", "play"]

_WARM_UP: Final = "warm_up"


@dataclass(frozen=True, slots=True)
class PlayedCall:
    """One call of the listener; `entered_ms` since the epoch, cut to whole milliseconds as Kafka's clock is."""

    messages: Sequence[Message]
    entered_ms: int

    @property
    def attempts(self) -> set[int]:
        return {message.reconsume_times for message in self.messages}


@dataclass(slots=True)
class Script:
    """A listener that does what the trace's listener did, and remembers its calls."""

    scenario: Scenario
    settings: Settings
    calls: list[PlayedCall] = field(default_factory=list)

    def concurrently(
        self, messages: Sequence[Message], context: ConsumeConcurrentlyContext
    ) -> ConsumeConcurrentlyStatus | None:
        context.delay_level_when_next_consume = self.settings.delay_level
        if max(message.reconsume_times for message in messages) < self.scenario.last_attempt:
            context.ack_index = self.settings.ack_index
        returned = self._returned(messages)
        return None if returned is None else ConsumeConcurrentlyStatus[returned]

    def in_order(self, messages: Sequence[Message], _context: ConsumeOrderlyContext) -> ConsumeOrderlyStatus | None:
        returned = self._returned(messages)
        return None if returned is None else ConsumeOrderlyStatus[returned]

    def _returned(self, messages: Sequence[Message]) -> str | None:
        self.calls.append(PlayedCall(messages, time.time_ns() // 1_000_000))
        one = messages[0]
        last = "SUCCESS" if self.settings.orderly else "CONSUME_SUCCESS"
        return self.scenario.returned.get(Try(one.topic, (one.body or b"").decode(), one.reconsume_times), last)

    @property
    def delivered(self) -> int:
        return sum(len(call.messages) for call in list(self.calls))


@dataclass(frozen=True, slots=True)
class Played:
    """What one scenario did here; `kept` is by RocketMQ topic name, None where the topic does not exist."""

    calls: list[PlayedCall]
    kept: Mapping[str, list[Record] | None]


def play(bootstrap_servers: str, trace: Trace, told: Mapping[str, Settings]) -> dict[str, Played]:
    """Play scenarios at the same time, each with a group, topics and a consumer of its own, and one scheduler.

    Args:
        bootstrap_servers: of a real Kafka. Topics and groups have the trace's names, and are removed after.
        trace: gives the level table and the scenarios.
        told: which scenarios, and their settings.

    Raises:
        AssertionError: a scenario has not delivered as much as RocketMQ did within 40 s.
    """
    here = Installation(settings_for(bootstrap_servers))
    scenarios = [trace.scenarios[name] for name in told]
    _make_installation(here, trace.levels)
    scripts = {scenario.name: Script(scenario, told[scenario.name]) for scenario in scenarios}
    with scheduler(here.settings):
        _warm_up(here)
        with _names_of_the_trace(here, scenarios):
            # All of a batch is there before its consumer starts, so that the first batch is whole, as in the trace.
            for scenario in scenarios:
                _publish(here, scenario, told[scenario.name])
            with ExitStack() as consumers:
                store = consumers.enter_context(TemporaryDirectory())
                for script in scripts.values():
                    consumers.enter_context(_consumer(here, script, store))
                for script in scripts.values():
                    _wait_for_deliveries(script)
            # A send-back that RocketMQ did not make would show as one retry too many below.
            wait_until(lambda: _all_moved(here), "the scheduler has delivered all that was sent back")
            return {
                name: Played(script.calls, {topic: _read_kept(here, topic) for topic in script.scenario.kept})
                for name, script in scripts.items()
            }


def _make_installation(here: Installation, levels: str) -> None:
    system = SystemConfig(message_delay_level=levels)
    maker = TopicMaker(here.admin, here.settings.names, here.settings.topics)
    for topic in wanted_topics(maker, Groups(system)):
        maker.make(topic)
    write_system(here.cluster, system)


@contextmanager
def _names_of_the_trace(here: Installation, scenarios: Sequence[Scenario]) -> Iterator[None]:
    """Origin topics and groups are called as in the trace, so a run before that was killed may have left them."""
    topics = [topic for scenario in scenarios for topic in scenario.topics]
    groups = [scenario.group for scenario in scenarios]
    admin = AdminClient(here.settings.client_settings())

    def remove() -> None:
        _expect(KafkaError.UNKNOWN_TOPIC_OR_PART, admin.delete_topics(topics).values())
        _expect(KafkaError.GROUP_ID_NOT_FOUND, admin.delete_consumer_groups(groups).values())
        wait_until(lambda: not here.admin.partitions(topics), "the topics are gone")

    remove()
    for topic in topics:
        here.admin.create(topic, 1, -1, {})
    try:
        yield
    finally:
        remove()


def _expect(code: int, futures: Iterable[object]) -> None:
    """Wait for all; only this error may be."""
    for future in futures:
        try:
            future.result()  # type: ignore[attr-defined]  # confluent_kafka gives futures without a type
        except KafkaException as error:
            if error.args[0].code() != code:
                raise


def _publish(here: Installation, scenario: Scenario, settings: Settings) -> None:
    for message in scenario.first_copies:
        here.produce(message.topic, message.body.encode(), headers=_headers(message))
    if settings.unwanted_tag is not None:
        here.produce(scenario.topics[0], b"unwanted", headers=[("TAGS", settings.unwanted_tag.encode())])


def _headers(message: TracedMessage) -> list[Header]:
    return [(name, message.properties[name].encode()) for name in ("TAGS", "KEYS", "user")]


def _warm_up(here: Installation) -> None:
    """Wait until the scheduler delivers: a fresh broker first makes its topics for groups and transactions.

    Into the lane itself and not the inbox, because `_all_moved` compares offsets of the lanes, and what is written
    in a transaction has one more.
    """
    names = here.settings.names
    here.produce(names.delay(0), b"", headers=[("REAL_TOPIC", f"%DLQ%{_WARM_UP}".encode())])
    wait_until(lambda: here.dead_letters(_WARM_UP), "the scheduler delivers")


def _consumer(here: Installation, script: Script, store: str) -> PushConsumer:
    scenario = script.scenario
    first, *others = scenario.topics
    consumer = here.consumer(
        scenario.group,
        first,
        script.concurrently,
        tags=script.settings.tags,
        max_reconsume_times=script.settings.max_reconsume_times,
        consume_message_batch_max_size=scenario.batch_size,
        message_model=script.settings.message_model,
        offset_store=store,
    )
    for topic in others:
        consumer.subscribe(topic, script.settings.tags)
    if script.settings.orderly:
        consumer.register_message_listener(script.in_order, orderly=True)
    return consumer


def _wait_for_deliveries(script: Script) -> None:
    expected = sum(len(call.messages) for call in script.scenario.calls)
    what = f"{script.scenario.name}: {expected} deliveries, as RocketMQ made"
    wait_until(partial(_has_delivered, script, expected), what)


def _has_delivered(script: Script, expected: int) -> bool:
    return script.delivered >= expected


def _all_moved(here: Installation) -> bool:
    names = here.settings.names
    lanes = [(topic, 0) for topic in here.admin.topics() if names.is_scheduled(topic)]
    moved = here.all_committed(f"{names.prefix}scheduler")
    return all(moved.get(lane, 0) == end for lane, end in here.admin.end_offsets(lanes).items())


def _read_kept(here: Installation, rocketmq_topic: str) -> list[Record] | None:
    topic = here.settings.names.kafka_topic(rocketmq_topic)
    return here.read(topic) if here.admin.partitions([topic]) else None
