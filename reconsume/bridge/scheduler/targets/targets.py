"""The target of a due record: the topic in its REAL_TOPIC header, if allowed."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import islice
from typing import Final

from reconsume.bridge.groups.groups import Groups
from reconsume.bridge.kafka.admin import KafkaAdmin
from reconsume.bridge.scheduler.targets.deletions import DeletedTopics
from reconsume.bridge.scheduler.targets.look_ups import LookUps
from reconsume.bridge.topics.topics import NamedTopic, TopicMaker
from reconsume.bridge.writing.lane_partitions import LanePartitions
from reconsume.delay_levels.errors import IllegalName, KafkaNotReachable, KafkaRefused, ReconsumeError, TopicNotReady
from reconsume.delay_levels.wire.allowed_topics import is_allowed
from reconsume.delay_levels.wire.names import DLQ_PREFIX, RETRY_PREFIX, TopicNames, prefix_and_group

_MOST_KNOWN: Final = 20_000
"""The maximum of remembered targets: headers name them, and anyone may write headers."""
_MADE_AT_ONCE: Final = 100
_AT_ONCE: Final = 500
"""Maximum of topics in one request; more would take long."""


_KINDS: Final = {RETRY_PREFIX: "retry", DLQ_PREFIX: "dlq", "": "topic"}


class Undeliverable(Exception):
    """The record can never be delivered unchanged; the message gives the reason."""


@dataclass(slots=True)
class Target:
    """An existing topic.

    Attributes:
        topic: the Kafka topic.
        partitions: the number of partitions.
        kind: `retry`, `dlq` or `topic`.
        group: the consumer group of a retry or dead-letter topic, else empty.
    """

    topic: str
    partitions: int
    kind: str
    group: str


@dataclass(slots=True)
class ListedTopics:
    """The cluster's topics with their numbers of partitions, listed periodically by another thread.

    Attributes:
        topics: replaced as a whole, never changed.
    """

    topics: Mapping[str, int] = field(default_factory=dict)


@dataclass(slots=True)
class Targets:
    """Finds targets, creates retry and dead-letter topics on demand, and caches existing topics.

    Guarantees:
        1. Only a definite refusal is a verdict on a record; after an unknown error it is held and tried again. A new
           topic has no leaders for a moment, and then seems not to exist.
           Test: tests/integration/scheduler/test_delivery.py.
        2. Listed topics (every 15 s, by another thread) need no look-up, and each list shows added partitions. A
           missing topic may be new, so it is looked up; a known one stays known until a write fails. After an aborted
           batch everything is looked up again, and the current list is ignored.
           Tests: tests/unit/bridge/scheduler/targets/test_targets.py,
           tests/integration/bridge/test_failing_look_ups.py.

    Args:
        names: the installation's topics.
        allowed_real_topics: regular expressions of other topics that a header may name.
        admin: looks topics up.
        maker: creates topics.
        groups: the groups as known now, for `retryQueueNums`.
        deletions: decides when a deleted topic may be recreated.
        look_ups: recent failures, and the time budget of look-ups.
        listed: the topics of the cluster.
    """

    names: TopicNames
    allowed_real_topics: Sequence[str]
    admin: KafkaAdmin
    maker: TopicMaker
    groups: Callable[[], Groups]
    deletions: DeletedTopics = field(default_factory=DeletedTopics)
    look_ups: LookUps = field(default_factory=LookUps)
    listed: ListedTopics = field(default_factory=ListedTopics)
    _coming: Callable[[], Iterable[bytes | None]] = field(default=tuple)
    _missing: set[str] = field(default_factory=set)
    _known: OrderedDict[bytes, Target] = field(default_factory=OrderedDict)
    _lanes: dict[str, int] = field(default_factory=dict)
    _unsure: set[str] = field(default_factory=set)
    _there: Mapping[str, int] = field(default_factory=dict)
    _taken: Mapping[str, int] | None = None
    _lane_partitions: LanePartitions = field(init=False)

    def __post_init__(self) -> None:
        self._lane_partitions = LanePartitions(self.groups)

    def expect(self, coming: Callable[[], Iterable[bytes | None]]) -> None:
        """Begin a batch with these REAL_TOPIC headers."""
        self._coming = coming
        self._missing.clear()

    def known(self, real_topic: bytes | None) -> Target | None:
        """Return the target of a REAL_TOPIC header, if it is known, without a look-up."""
        return None if real_topic is None else self._known.get(real_topic)

    def find(self, real_topic: bytes) -> Target:
        """Return the target of a REAL_TOPIC header.

        Raises:
            Undeliverable: the topic is not allowed, or cannot be created.
            KafkaNotReachable: ask again later.
        """
        if self.listed.topics is not self._taken:
            self._take_listed()
        known = self._known.get(real_topic)
        if known is None:
            known = self._look_up(real_topic)
            if len(self._known) >= _MOST_KNOWN:
                self._known.popitem(last=False)
            self._known[real_topic] = known
        return known

    def lane_partition(self, topic: str, target: str, key: bytes | None) -> int:
        """Return the partition of a delay topic for a group's record, or for a delayed message.

        A missing delay topic of a changed table is created here. Brokers with automatic creation would create it with
        producers' timestamps.
        Test: tests/integration/topics/test_table_changes.py.

        Raises:
            Undeliverable: the topic cannot be created.
            KafkaNotReachable: ask again later.
        """
        if self.listed.topics is not self._taken:
            self._take_listed()
        if topic not in self._lanes:
            self._lanes[topic] = self._partitions(topic, lambda: self._find_or_make_lane(topic))
        return self._lane_partitions.choose(topic, self._lanes[topic], target, key)

    def parked(self, group: str) -> str:
        """Return the parked topic of a group; its first record creates it.

        Raises:
            Undeliverable: the topic cannot be created.
            KafkaNotReachable: ask again later.
        """
        topic = self.names.parked(group)
        if topic not in self._lanes:
            self._lanes[topic] = self._partitions(topic, lambda: self._find_or_make_lane(topic, group))
        return topic

    def forget(self) -> None:
        """Look everything up again: a known topic may be gone. Recent failures stay remembered."""
        self._unsure = {one.topic for one in self._known.values()} | self._lanes.keys()
        self._known.clear()
        self._lanes.clear()
        self._there = {}
        self._taken = self.listed.topics

    def _take_listed(self) -> None:
        self._taken = self._there = self.listed.topics
        for target in self._known.values():
            target.partitions = self._there.get(target.topic) or target.partitions
        self._lanes = {topic: self._there.get(topic) or count for topic, count in self._lanes.items()}

    def _found(self, topic: str) -> int | None:
        """Return a topic's partitions. Forgotten topics are looked up in few requests, as they may be thousands."""
        if topic not in self._unsure:
            return self.admin.partitions([topic]).get(topic)
        some = {topic, *islice(self._unsure, _AT_ONCE)}
        refused: dict[str, ReconsumeError] = {}
        self._there = {**self._there, **self.admin.partitions(some, refused)}
        self._unsure -= some
        self._missing |= some - self._there.keys() - refused.keys()
        for one, error in refused.items():
            self.look_ups.remember(one, error)
        if topic in refused:
            raise refused[topic]
        return self._there.get(topic)

    def _look_up(self, real_topic: bytes) -> Target:
        named = self._named(real_topic)
        return Target(named.topic, self._partitions(named.topic, lambda: self._find_or_make(named)), *named[1:])

    def _named(self, real_topic: bytes) -> NamedTopic:
        try:
            name = real_topic.decode()
            topic = self.names.kafka_topic(name)
        except UnicodeDecodeError:
            raise Undeliverable(f"REAL_TOPIC is not UTF-8: {real_topic[:80]!r}") from None
        except IllegalName as error:
            raise Undeliverable(f"REAL_TOPIC: {error}") from None
        prefix, group = prefix_and_group(name)
        if not prefix and not self._is_allowed(name):
            raise Undeliverable(
                f"REAL_TOPIC {name!r} is neither a %RETRY% or %DLQ% name nor allowed by allowed_real_topics"
            )
        return NamedTopic(topic, _KINDS[prefix], group)

    def _is_allowed(self, name: str) -> bool:
        """Return whether a topic is allowed; never one of reconsume, or a record might become a delay or a setting."""
        return not name.startswith(self.names.prefix) and is_allowed(name, self.allowed_real_topics)

    def _partitions(self, topic: str, ask: Callable[[], int]) -> int:
        """Return the partitions from the list, or from the cluster."""
        found = self._there.get(topic)
        if found is None:
            try:
                found = self.look_ups.run(topic, ask)
            except (KafkaRefused, TopicNotReady) as error:
                raise Undeliverable(str(error)) from error
        self.deletions.saw(topic)
        return found

    def _find_or_make(self, named: NamedTopic) -> int:
        topic, others = named.topic, self._others()
        if topic not in self._missing:
            self._unsure |= {topic, *others}
            found = self._found(topic)
            if found is not None:
                return found
        self._missing.discard(topic)
        if named.kind == "topic":
            raise TopicNotReady(f"topic {topic} does not exist; {self.names.remedy_if_missing(topic)}")
        if named.kind == "retry":
            self.deletions.missed(topic)
        left = [others[one] for one in self._missing & others.keys() if self._may_be_made(others[one])]
        outcomes = self.maker.make_for_groups([named, *left[:_MADE_AT_ONCE]], self.groups())
        self._missing -= outcomes.keys()
        for one, error in outcomes.items():
            if isinstance(error, ReconsumeError):
                self.look_ups.remember(one, error)
        self._there = {**self._there, **{one: count for one, count in outcomes.items() if isinstance(count, int)}}
        outcome = outcomes[topic]
        if isinstance(outcome, ReconsumeError):
            raise outcome
        return outcome

    def _others(self) -> dict[str, NamedTopic]:
        """Return the batch's unknown targets by Kafka topic, to be looked up and created with this one."""
        found: dict[str, NamedTopic] = {}
        for real_topic in dict.fromkeys(self._coming()):
            if real_topic is not None and real_topic not in self._known:
                with suppress(Undeliverable):
                    named = self._named(real_topic)
                    if named.topic not in self._there and len(found) < _AT_ONCE:
                        found[named.topic] = named
        return found

    def _may_be_made(self, named: NamedTopic) -> bool:
        """Return whether a topic was looked up and is missing."""
        if named.kind == "topic" or self.look_ups.is_refused(named.topic):
            return False
        with suppress(KafkaNotReachable):
            self.deletions.missed(named.topic)
            return True
        return False

    def _find_or_make_lane(self, topic: str, parked_of: str = "") -> int:
        found = self._found(topic)
        if found is not None:
            return found
        self.deletions.missed(topic)
        parked = self.names.is_parked(topic)
        lane = self.maker.parked_topic(parked_of) if parked else self.maker.delay_topic(self.names.delay_ms(topic))
        self.maker.make(lane)
        return lane.partitions
