"""Real flights through real consumers and schedulers, one of which is killed now and then; and a count of it all."""

from __future__ import annotations

import json
import signal
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial
from itertools import cycle, islice
from typing import Final, cast

from confluent_kafka import OFFSET_BEGINNING, Consumer, Producer, TopicPartition
from confluent_kafka import Message as KafkaMessage

from reconsume.bridge.groups.groups import Groups, SystemConfig
from reconsume.bridge.groups.groups_store import write_system
from reconsume.bridge.kafka.cluster import Cluster
from reconsume.bridge.process.settings import Settings, TopicSettings
from reconsume.bridge.topics.topics import TopicMaker, wanted_topics
from reconsume.cli.demo.rows import read_rows
from reconsume.consumers import ConsumeConcurrentlyContext, ConsumeConcurrentlyStatus, Message
from reconsume.delay_levels.wire.names import TopicNames
from reconsume.delay_levels.wire.properties import Header
from tests.integration.installation import LATER, SUCCESS, Installation, settings_for
from tests.integration.scheduler.test_faults import worker_process
from tests.support.waiting import PATIENCE

__all__ = ["Count", "Flown", "fly"]

MAX_RECONSUME_TIMES: Final = 3
TABLE: Final = "1s 1s 1s 2s 3s"
"""Retries wait on levels 3, 4 and 5."""
COLUMNS: Final = {"departures": "dep_delay", "arrivals": "arr_delay"}
"""The groups, and what each of them fails for."""
_QUIET_SECONDS: Final = 120
_FAILS_ONCE_MORE: Final = (15, 60, 120)
"""A flight that is later than so many minutes fails once, twice, three times."""


def failures(delay: str) -> int:
    """How often a flight fails; one that never flew does always."""
    if delay == "NA":
        return MAX_RECONSUME_TIMES + 1
    return sum(int(delay) > limit for limit in _FAILS_ONCE_MORE)


@dataclass
class Count:
    """What the topics hold, read in plain Python.

    Attributes:
        sent: send-backs by group, whether they are for the dead-letter topic, delay topic and level.
        delivered: by group, whether they are dead letters, and count.
        attempts: of each group, message and count: sent back, and delivered.
    """

    names: TopicNames
    sent: Counter[tuple[str, bool, str, int]] = field(default_factory=Counter)
    delivered: Counter[tuple[str, bool, int]] = field(default_factory=Counter)
    attempts: dict[tuple[str, str, int], list[int]] = field(default_factory=dict)

    @property
    def deliveries(self) -> int:
        return self.delivered.total()

    def add(self, message: KafkaMessage) -> None:
        topic = (message.topic() or "").removeprefix(self.names.prefix)
        told = {name: (value or b"").decode() for name, value in cast("list[Header]", message.headers() or [])}
        if not topic.startswith(("DELAY.", "RETRY.", "DLQ.")):
            assert not topic.startswith("QUARANTINE"), told
            return
        target = told["REAL_TOPIC"]
        if not topic.startswith("DELAY."):
            target = self.names.rocketmq_name(self.names.prefix + topic)
        dead, group = target.startswith("%DLQ%"), target.split("%", 2)[2]
        number = int(told["RECONSUME_TIME"])
        both = self.attempts.setdefault((group, told["ORIGIN_MESSAGE_ID"], number), [0, 0])
        if topic.startswith("DELAY."):
            self.sent[group, dead, topic, int(told["DELAY"])] += 1
            both[0] += 1
        else:
            self.delivered[group, dead, number] += 1
            both[1] += 1


@dataclass
class Flown:
    """A history that is complete.

    Attributes:
        expected: deliveries that the flights themselves ask for, as `Count.delivered`.
    """

    installation: Installation
    groups: tuple[str, ...]
    expected: Counter[tuple[str, bool, int]]
    count: Count


def fly(bootstrap_servers: str, flights: int, kills: int) -> Flown:
    """So many flights, for two groups that fail at different ones; beyond 20,000 the same ones come again.

    Two schedulers; each time that another part of the deliveries is done, one is killed (SIGKILL) and started again.
    """
    settings = settings_for(bootstrap_servers).model_copy(update={"topics": TopicSettings(delay_partitions=2)})
    one = Installation(settings)
    system = SystemConfig(message_delay_level=TABLE)
    maker = TopicMaker(one.admin, settings.names, settings.topics)
    for wanted in wanted_topics(maker, Groups(system)):
        maker.make(wanted)
    write_system(Cluster(settings), system)
    topic = one.topic("flights", 4)
    groups = {one.name(name): column for name, column in COLUMNS.items()}
    expected = _produce(one, topic, groups, flights)
    count = Count(settings.names)
    with ExitStack() as stack:
        workers = [_Worker(settings, f"{settings.topic_prefix}{number}", stack) for number in (1, 2)]
        for group, column in groups.items():
            stack.enter_context(one.consumer(group, topic, _listener(column), max_reconsume_times=MAX_RECONSUME_TIMES))
        done = 0
        for _ in _counting(one, count):
            if count.deliveries >= expected.total():
                break
            assert all(worker.is_alive() for worker in workers)
            if done < kills and count.deliveries > expected.total() * (done + 1) // (kills + 1):
                workers[done % 2].kill_and_start_again()
                done += 1
        assert done == kills
    return Flown(one, tuple(groups), expected, count)


class _Worker:
    """A scheduler in a process of its own."""

    def __init__(self, settings: Settings, instance: str, stack: ExitStack) -> None:
        self._start = partial(worker_process, settings, instance)
        self._stack = stack
        self._process = stack.enter_context(self._start())

    def is_alive(self) -> bool:
        return self._process.poll() is None

    def kill_and_start_again(self) -> None:
        self._process.send_signal(signal.SIGKILL)
        self._process.wait()
        self._process = self._stack.enter_context(self._start())


def _listener(column: str) -> Callable[..., ConsumeConcurrentlyStatus]:
    def listen(messages: Sequence[Message], _context: ConsumeConcurrentlyContext) -> ConsumeConcurrentlyStatus:
        flight = json.loads(messages[0].body or b"")
        return LATER if failures(flight[column]) > messages[0].reconsume_times else SUCCESS

    return listen


def _produce(one: Installation, topic: str, groups: Mapping[str, str], flights: int) -> Counter[tuple[str, bool, int]]:
    """Write the flights; gives the deliveries that they ask for."""
    expected: Counter[tuple[str, bool, int]] = Counter()
    rows = list(read_rows(None))
    producer = Producer(one.settings.client_settings() | {"linger.ms": 20})
    for number, row in enumerate(islice(cycle(rows), flights)):
        producer.produce(topic, json.dumps(row | {"number": number}), row["tailnum"])
        if number % 1_000 == 0:
            producer.flush(PATIENCE)
        for group, column in groups.items():
            times = failures(row[column])
            dead = times > MAX_RECONSUME_TIMES
            expected.update((group, False, attempt) for attempt in range(1, times + 1 - dead))
            expected.update([(group, True, times)] if dead else [])
    assert producer.flush(PATIENCE) == 0
    producer.close()
    return expected


def _counting(one: Installation, count: Count) -> Iterator[None]:
    """Reads all topics of the installation into the count, those too that are made meanwhile."""
    consumer = Consumer(one.settings.client_settings() | {"group.id": "counts", "isolation.level": "read_committed"})
    assigned: set[tuple[str, int]] = set()
    look_at, deadline = 0.0, time.monotonic() + _QUIET_SECONDS
    try:
        while True:
            if time.monotonic() >= look_at:
                there = {
                    (topic, number)
                    for topic, partitions in one.admin.topics().items()
                    for number in range(partitions)
                    if topic.startswith(one.settings.topic_prefix)
                }
                new = there - assigned
                consumer.incremental_assign([TopicPartition(*place, OFFSET_BEGINNING) for place in new])
                assigned |= new
                look_at = time.monotonic() + 1
            messages = consumer.consume(5_000, 0.2)
            for message in messages:
                assert message.error() is None, message.error()
                count.add(message)
            if messages:
                deadline = time.monotonic() + _QUIET_SECONDS
            assert time.monotonic() < deadline, f"nothing comes any more after {count.deliveries} deliveries"
            yield
    finally:
        consumer.close()
