"""A whole installation on the Kafka under test: its topics, its groups, a scheduler in a thread, a way to look."""

from __future__ import annotations

import sys
import threading
import traceback
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, cast

from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition
from confluent_kafka.admin import AdminClient

from reconsume.bridge.groups.groups import Groups, SubscriptionGroupConfig, SystemConfig
from reconsume.bridge.groups.groups_store import read_groups, write_group, write_system
from reconsume.bridge.kafka.admin import KafkaAdmin, Partition
from reconsume.bridge.kafka.cluster import Cluster
from reconsume.bridge.kafka.group_consumer import GroupConsumer
from reconsume.bridge.kafka.partitioning import all_partitions
from reconsume.bridge.process.settings import ManagementSettings, SchedulerSettings, Settings, TopicSettings
from reconsume.bridge.scheduler.service import SchedulerService
from reconsume.bridge.topics.topics import TopicMaker, wanted_topics
from reconsume.consumers import ConsumeConcurrentlyContext, ConsumeConcurrentlyStatus, Message, PushConsumer
from reconsume.delay_levels.errors import ReconsumeError
from reconsume.delay_levels.progress.metadata import KeptProgress, decode_progress
from reconsume.delay_levels.wire.properties import Header
from tests.support.waiting import PATIENCE, wait_until

__all__ = [
    "LATER",
    "LEVELS",
    "SUCCESS",
    "Deliveries",
    "Installation",
    "Record",
    "installation",
    "scheduler",
    "settings_for",
]

SUCCESS = ConsumeConcurrentlyStatus.CONSUME_SUCCESS
LATER = ConsumeConcurrentlyStatus.RECONSUME_LATER
LEVELS = "1s 1s 1s 2s"
"""The first retry waits 1 s (level 3), all others 2 s."""
_at_work: set[str | None] = set()
"""Identities of the schedulers that run."""


@dataclass(frozen=True, slots=True)
class Record:
    """A record as it stands on a topic."""

    key: bytes | None
    value: bytes | None
    headers: list[Header]
    timestamp: int
    partition: int
    offset: int

    def __getitem__(self, name: str) -> str | None:
        """The text of a header, None where it is absent."""
        return next((value.decode() for key, value in self.headers if key == name and value is not None), None)


@dataclass
class Deliveries:
    """A listener that remembers what it was given and does what it is told.

    Attributes:
        decide: gives the status for a batch; it may raise.
        batches: what it was called with, in order.
    """

    decide: Callable[[Sequence[Message], ConsumeConcurrentlyContext], ConsumeConcurrentlyStatus | None]
    batches: list[list[Message]] = field(default_factory=list)
    contexts: list[ConsumeConcurrentlyContext] = field(default_factory=list)

    def __call__(
        self, messages: Sequence[Message], context: ConsumeConcurrentlyContext
    ) -> ConsumeConcurrentlyStatus | None:
        self.batches.append(list(messages))
        self.contexts.append(context)
        return self.decide(messages, context)

    @property
    def messages(self) -> list[Message]:
        """All messages that were delivered, those delivered twice too."""
        return [message for batch in list(self.batches) for message in batch]

    @property
    def seen(self) -> list[tuple[bytes | None, int]]:
        """Body and reconsume times of each delivery."""
        return [(message.body, message.reconsume_times) for message in self.messages]


@dataclass
class Installation:
    """Topics under a prefix of their own, so that tests on one Kafka do not disturb each other."""

    settings: Settings

    @property
    def cluster(self) -> Cluster:
        """A new one each time: settings and clients may change."""
        return Cluster(self.settings)

    @property
    def admin(self) -> KafkaAdmin:
        return self.cluster.admin

    def name(self, name: str) -> str:
        """A name for an origin topic or a group that no other test uses."""
        return f"{self.settings.topic_prefix}{name}"

    def unique(self, name: str) -> str:
        """The same where the prefix is shared with others."""
        return f"{name}-{uuid.uuid4().hex[:8]}"

    def make_topics(self, groups: Sequence[SubscriptionGroupConfig] = ()) -> None:
        """The topics of the level table, and whatever these groups' policies need more."""
        maker = TopicMaker(self.admin, self.settings.names, self.settings.topics)
        known = Groups(SystemConfig(message_delay_level=LEVELS), {group.group_name: group for group in groups})
        for topic in wanted_topics(maker, known):
            maker.make(topic)

    def write_groups(self, groups: Sequence[SubscriptionGroupConfig] = (), *, auto_create: bool = True) -> None:
        write_system(self.cluster, SystemConfig(message_delay_level=LEVELS, auto_create_subscription_group=auto_create))
        for group in groups:
            write_group(self.cluster, group)

    def wait_until_published(self) -> None:
        """Until a scheduler with these settings has told which topics it delivers to."""
        allowed = tuple(self.settings.allowed_real_topics)
        wait_until(lambda: read_groups(self.cluster).allowed_real_topics == allowed, "allowed_real_topics in GROUPS")

    def topic(self, name: str, partitions: int = 1) -> str:
        """Make an origin topic."""
        topic = self.name(name)
        self.admin.create(topic, partitions, -1, {})
        return topic

    def delete(self, topic: str) -> None:
        """Delete a topic, once it is there, and wait until it is gone."""
        wait_until(lambda: self.admin.partitions([topic]), f"{topic} is there")
        client = AdminClient(self.settings.client_settings())  # its answers never come once it is forgotten
        client.delete_topics([topic])[topic].result(PATIENCE)
        wait_until(lambda: not self.admin.partitions([topic]), f"{topic} is gone")

    def producer(self) -> Producer:
        """One that keeps the order: a retry of another one stores a batch behind the next, as in a topic just made."""
        return Producer(self.settings.client_settings() | {"enable.idempotence": True})

    def produce(
        self,
        topic: str,
        *values: bytes | None,
        key: bytes | None = None,
        headers: Sequence[Header] = (),
        partition: int = -1,
    ) -> None:
        """Produce and wait until it is acknowledged."""
        producer = self.producer()
        for value in values:
            producer.produce(topic, value=value, key=key, headers=cast("Any", list(headers)), partition=partition)
        assert producer.flush(PATIENCE) == 0
        producer.close()

    def consumer(
        self,
        group: str,
        topic: str,
        listener: Any,
        *,
        tags: str = "*",
        conf: Mapping[str, Any] | None = None,
        **more: Any,
    ) -> PushConsumer:
        """A consumer that is not started; it reads its topic from the beginning."""
        of_the_classic_protocol = {} if conf and "group.protocol" in conf else {"heartbeat.interval.ms": 500}
        consumer = PushConsumer(
            group,
            bootstrap_servers=self.settings.bootstrap_servers,
            conf={"auto.offset.reset": "earliest"} | of_the_classic_protocol | dict(conf or {}),
            topic_prefix=self.settings.topic_prefix,
            **more,
        )
        return consumer.subscribe(topic, tags).register_message_listener(listener)

    def read(self, topic: str) -> list[Record]:
        """All committed records of a topic as it is now; none if it does not exist."""
        partitions = self.admin.partitions([topic]).get(topic, 0)
        reading = {"group.id": "looks", "enable.partition.eof": True, "fetch.wait.max.ms": 10}
        consumer = Consumer(self.settings.client_settings() | reading | {"auto.offset.reset": "earliest"})
        # Before librdkafka is connected it waits 500 ms to ask for the first offset; of most topics it is 0.
        consumer.assign([TopicPartition(topic, number, 0) for number in range(partitions)])
        records, ended = list[Record](), set[int | None]()
        while len(ended) < partitions:
            # In a list, because a message without a value is false.
            message = wait_until(lambda: consumer.consume(1, 0.1), f"more of {topic}, or its end")[0]
            error = message.error()
            if error is None:
                headers = cast("list[Header]", message.headers() or [])
                where = message.partition() or 0, message.offset() or 0
                records.append(Record(message.key(), message.value(), headers, message.timestamp()[1], *where))
            else:
                assert error.code() == KafkaError._PARTITION_EOF, error
                ended.add(message.partition())  # told again after each record that comes later
        consumer.close()
        return records

    def retries(self, group: str) -> list[Record]:
        return self.read(self.settings.names.retry(group))

    def dead_letters(self, group: str) -> list[Record]:
        return self.read(self.settings.names.dead_letter(group))

    def waiting(self, delay_ms: int, group: str) -> list[Record]:
        """What was ever put on a delay topic for a group."""
        records = self.read(self.settings.names.delay(delay_ms))
        return [record for record in records if (record["REAL_TOPIC"] or "").endswith(f"%{group}")]

    def committed(self, group: str, topic: str, partition: int = 0) -> int | None:
        """After the marks of transactions that are committed: brokers write them a moment after the answer."""
        where = topic, partition
        found = KafkaAdmin(self.settings.client_settings(), patience=60).commits(group, [where], stable=True).get(where)
        return None if found is None else found.offset

    def wait_for_marks(self, *topics: str) -> None:
        """Until what is committed is shown: brokers write a transaction's marks a moment after their answer."""
        places = all_partitions(self.admin.partitions(topics))

        def are_written() -> bool:
            written = self.admin.end_offsets(places, uncommitted=True)
            return self.admin.end_offsets(places) == written

        wait_until(are_written, f"the marks of transactions on {', '.join(topics)}")

    def all_committed(self, group: str) -> dict[Partition, int]:
        """Of all topics that there are."""
        partitions = [(topic, one) for topic, count in self.admin.topics().items() for one in range(count)]
        return self.admin.committed(group, partitions)

    def finished(self, group: str, topic: str) -> int:
        """How many offsets of a topic's first partition are finished, by what is committed."""
        return (self.committed(group, topic) or 0) + len(self.kept(group, topic).done)

    def members(self, group: str) -> int:
        """How many members the group has now."""
        admin = AdminClient(self.settings.client_settings())
        return len(admin.describe_consumer_groups([group])[group].result().members)

    def kept(self, group: str, topic: str, partition: int = 0) -> KeptProgress:
        """What stands beside the committed offset."""
        consumer = Consumer({"bootstrap.servers": self.settings.bootstrap_servers, "group.id": group})
        try:
            [found] = consumer.committed([TopicPartition(topic, partition)], 30)
        finally:
            consumer.close()
        return decode_progress(max(found.offset, 0), found.metadata)


@contextmanager
def installation(
    bootstrap_servers: str,
    groups: Sequence[SubscriptionGroupConfig] = (),
    *,
    auto_create: bool = True,
    prefix: str | None = None,
    allowed: Sequence[str] = (),
) -> Iterator[Installation]:
    """An installation with all its topics and one scheduler, which delivers messages to the allowed topics."""
    settings = settings_for(bootstrap_servers, prefix)
    one = Installation(settings.model_copy(update={"allowed_real_topics": list(allowed)}))
    one.make_topics(groups)
    one.write_groups(groups, auto_create=auto_create)
    with scheduler(one.settings):
        if allowed:
            one.wait_until_published()
        yield one


def settings_for(bootstrap_servers: str, prefix: str | None = None) -> Settings:
    """Settings with a prefix that was never used; one partition for each delay topic keeps tests small."""
    prefix = prefix or f"t{uuid.uuid4().hex[:8]}."
    return Settings(
        bootstrap_servers=bootstrap_servers,
        topic_prefix=prefix,
        topics=TopicSettings(delay_partitions=1, bulk_partitions=0),
        scheduler=SchedulerSettings(instance_id=prefix),
        management=ManagementSettings(port=0),
    )


@contextmanager
def scheduler(settings: Settings) -> Iterator[None]:
    """A scheduler worker; what ended it before its time fails the test."""
    identity = settings.scheduler.instance_id
    assert identity not in _at_work, "two schedulers of one identity shut each other out"
    _at_work.add(identity)
    stop = threading.Event()
    failures: list[BaseException] = []

    def work() -> None:
        try:
            SchedulerService(settings).run(stop)
        except BaseException as error:  # noqa: BLE001 - raised below, in the test's own thread
            failures.append(error)

    thread = threading.Thread(target=work, name="scheduler-under-test")
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join(PATIENCE)
        _at_work.discard(identity)
    if failures:
        raise failures[0]
    assert not thread.is_alive(), f"it does not end:\n{_stack_of(thread)}"


def _stack_of(thread: threading.Thread) -> str:
    return "".join(traceback.format_stack(sys._current_frames().get(thread.ident or 0)))


def wait_for_coordinator(consumer: GroupConsumer, topic: str) -> None:
    """On a broker that is new no group has a coordinator for a moment, and librdkafka hangs in a transaction then."""

    def has_coordinator() -> bool:
        try:
            consumer.committed([(topic, 0)], 5)
        except ReconsumeError:
            return False
        return True

    wait_until(has_coordinator, "the group has a coordinator")
