"""The contents of the in-memory Kafka: topics, records, groups with members and offsets; no clients or threads."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from itertools import count
from typing import Final, NamedTuple

from confluent_kafka import TIMESTAMP_CREATE_TIME, TIMESTAMP_LOG_APPEND_TIME, KafkaError, murmur2

from reconsume.bridge.kafka.admin import Commit, Partition
from reconsume.bridge.process.clock import Clock
from reconsume.delay_levels.wire.properties import Header

LONGEST_WAIT_SECONDS: Final = 0.01
"""The longest wait of a client outside the test's thread before it checks whether it was stopped."""


@dataclass(frozen=True, slots=True)
class StoredRecord:
    """A record in its partition; `sequence` counts all records of the cluster, `timestamp` is type and milliseconds."""

    sequence: int
    offset: int
    key: bytes | None
    value: bytes | None
    headers: tuple[Header, ...]
    timestamp: tuple[int, int]


class Unwritten(NamedTuple):
    """A record before it is stored; partition -1 means "by key", timestamp 0 means "now"."""

    topic: str
    partition: int
    key: bytes | None
    value: bytes | None
    headers: tuple[Header, ...]
    timestamp: int = 0


@dataclass(slots=True)
class Topic:
    """A topic and the records of each partition."""

    name: str
    partitions: list[list[StoredRecord]]
    settings: dict[str, str]
    keyless: int = 0

    def partition_for(self, key: bytes | None) -> int:
        """Choose the partition by key, as a Java client does; records without a key take turns."""
        if key is not None:
            return murmur2(key, len(self.partitions))
        self.keyless += 1
        return (self.keyless - 1) % len(self.partitions)


@dataclass(eq=False, slots=True)
class Member:
    """One consumer of a group: the topics it subscribes to and the partitions it owns."""

    wants: Callable[[str], bool]
    held: set[Partition] = field(default_factory=set)


@dataclass(slots=True)
class Group:
    """A consumer group; `generation` grows whenever its members change."""

    generation: int = 0
    members: list[Member] = field(default_factory=list)
    offsets: dict[Partition, Commit] = field(default_factory=dict)


_DEFAULTS: Final = {"message.timestamp.type": "CreateTime", "cleanup.policy": "delete"}


class InMemoryCluster:
    """The stored state. Callers that read or write several values at once hold `changed`.

    Args:
        clock: gives the time in milliseconds.
        creates: whether a topic of this name is created, with one partition, at the first subscription or write.

    Attributes:
        changed: the lock, and the condition that wakes waiting clients.
        turns: counts changes.
        logs: the records of each partition.
        driver: the thread that runs the steps; clients used in it never block.
    """

    def __init__(self, clock: Clock, creates: Callable[[str], bool]) -> None:
        self.clock = clock
        self.changed = threading.Condition(threading.RLock())
        self.turns = 0
        self.driver = threading.get_ident()
        self.topics: dict[str, Topic] = {}
        self.logs: dict[Partition, list[StoredRecord]] = {}
        self.transactional_ids: dict[str, int] = {}
        self._creates = creates
        self._groups: dict[str, Group] = {}
        self._sequence = count()

    def group(self, name: str) -> Group:
        """Return the group of this name; create it if necessary."""
        return self._groups.setdefault(name, Group())

    def happened(self) -> None:
        """Count a change and wake the waiting threads."""
        with self.changed:
            self.turns += 1
            self.changed.notify_all()

    def create(self, name: str, partitions: int, settings: Mapping[str, str] | None = None) -> bool:
        """Create a topic; False if it exists."""
        with self.changed:
            if name in self.topics:
                return False
            self.topics[name] = Topic(name, [[] for _ in range(partitions)], _DEFAULTS | dict(settings or {}))
            self.logs.update(((name, number), log) for number, log in enumerate(self.topics[name].partitions))
            self.happened()
            return True

    def create_if_allowed(self, name: str) -> None:
        """Create a topic, unless the name is a pattern or belongs to reconsume."""
        if not name.startswith("^") and self._creates(name):
            self.create(name, 1)

    def check(self, record: Unwritten) -> KafkaError | None:
        """Return why a record cannot be written, None if it can."""
        with self.changed:
            self.create_if_allowed(record.topic)
            if record.topic not in self.topics:
                return KafkaError(KafkaError.UNKNOWN_TOPIC_OR_PART, f"topic {record.topic} does not exist")
            last = len(self.topics[record.topic].partitions) - 1
            if record.partition > last:
                text = f"topic {record.topic} has no partition {record.partition}, only 0 to {last}"
                return KafkaError(KafkaError._UNKNOWN_PARTITION, text)
            return None

    def append(self, record: Unwritten) -> tuple[int, StoredRecord]:
        """Store a checked record; return its partition and the stored record."""
        with self.changed:
            topic = self.topics[record.topic]
            partition = record.partition if record.partition >= 0 else topic.partition_for(record.key)
            now, log = int(self.clock()), topic.partitions[partition]
            if topic.settings["message.timestamp.type"] == "LogAppendTime":
                timestamp = (TIMESTAMP_LOG_APPEND_TIME, now)
            else:
                timestamp = (TIMESTAMP_CREATE_TIME, record.timestamp or now)
            stored = StoredRecord(next(self._sequence), len(log), record.key, record.value, record.headers, timestamp)
            log.append(stored)
            self.happened()
            return partition, stored

    def log(self, where: Partition) -> list[StoredRecord]:
        """Return the records of a partition; empty if the partition does not exist."""
        return self.logs.get(where, [])

    def records(self, topic: str) -> list[tuple[Partition, StoredRecord]]:
        """Return all records of a topic in the order of writing; empty if the topic does not exist."""
        with self.changed:
            partitions = self.topics[topic].partitions if topic in self.topics else []
            found = [((topic, number), one) for number, log in enumerate(partitions) for one in log]
        return sorted(found, key=lambda one: one[1].sequence)

    def commit(self, group: str, offsets: Iterable[tuple[Partition, Commit]]) -> None:
        """Store the committed offsets of a group."""
        with self.changed:
            self.group(group).offsets.update(offsets)

    def join(self, group: str, member: Member) -> None:
        """Add a member, or replace its subscription."""
        with self.changed:
            of = self.group(group)
            if member not in of.members:
                of.members.append(member)
            of.generation += 1
            self.happened()

    def leave(self, group: str, member: Member) -> None:
        """Remove a member."""
        with self.changed:
            of = self.group(group)
            if member in of.members:
                of.members.remove(member)
                of.generation += 1
            member.held.clear()
            self.happened()

    def share(self, group: str, member: Member) -> set[Partition]:
        """Return the partitions that this member should own: every nth of each topic, in the order of joining."""
        with self.changed:
            members = self.group(group).members
            shares: set[Partition] = set()
            for name, topic in self.topics.items():
                wanting = [one for one in members if one.wants(name)]
                if member in wanting:
                    mine = wanting.index(member)
                    shares.update((name, number) for number in range(mine, len(topic.partitions), len(wanting)))
            return shares

    def free(self, group: str, member: Member, partitions: Iterable[Partition]) -> set[Partition]:
        """Return those of these partitions that no other member still owns."""
        with self.changed:
            taken = {where for one in self.group(group).members if one is not member for where in one.held}
            return set(partitions) - taken
