"""Where a due record goes: the REAL_TOPIC header, if it is allowed, as an existing Kafka topic."""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from reconsume.bridge.admin import KafkaAdmin
from reconsume.bridge.groups import Groups
from reconsume.bridge.scheduler.deletions import Deletions
from reconsume.bridge.topics import TopicMaker
from reconsume.delay_levels.errors import IllegalName, KafkaRefused, TopicNotReady
from reconsume.delay_levels.names import DLQ_PREFIX, RETRY_PREFIX, TopicNames

__all__ = ["Target", "Targets", "Undeliverable"]

logger = logging.getLogger(__name__)


class Undeliverable(Exception):
    """This record can never be delivered as it is; the message says why."""


@dataclass(slots=True)
class Target:
    """A topic that exists.

    Attributes:
        topic: in Kafka.
        partitions: how many it has.
        kind: `retry`, `dlq` or `topic`.
        group: the consumer group of a retry or dead-letter topic, else empty.
    """

    topic: str
    partitions: int
    kind: str
    group: str


@dataclass(slots=True)
class Targets:
    """Finds targets, makes retry and dead-letter topics on demand, and remembers what exists.

    Args:
        names: the installation's topics.
        allowed_real_topics: regular expressions of other topics that a header may name.
        admin: to look for topics.
        maker: to make them.
        groups: the groups as known now, for `retryQueueNums`.
        deletions: when a topic that was deleted may be made again.
    """

    names: TopicNames
    allowed_real_topics: Sequence[str]
    admin: KafkaAdmin
    maker: TopicMaker
    groups: Callable[[], Groups]
    deletions: Deletions = field(default_factory=Deletions)
    _known: dict[bytes, Target] = field(default_factory=dict)
    _lanes: set[str] = field(default_factory=set)
    _unsure: set[str] = field(default_factory=set)
    _there: dict[str, int] = field(default_factory=dict)

    def find(self, real_topic: bytes) -> Target:
        """The target of a REAL_TOPIC header.

        Raises:
            Undeliverable: the header may not name this topic, or it cannot be made.
            KafkaNotReachable: ask again later.
        """
        known = self._known.get(real_topic)
        if known is None:
            known = self._known[real_topic] = self._look_up(real_topic)
        return known

    def require_lane(self, topic: str) -> None:
        """Make a delay topic that a changed table has brought and nobody has made.

        Brokers that make topics by themselves would make it with the clock of its producers.

        Raises:
            Undeliverable: it cannot be made.
            KafkaNotReachable: ask again later.
        """
        if topic in self._lanes:
            return
        try:
            if self._found(topic) is None:
                self.deletions.missed(topic)
                self.maker.make(self.maker.delay_topic(self.names.delay_ms(topic)))
        except (KafkaRefused, TopicNotReady) as error:
            raise Undeliverable(str(error)) from error
        self.deletions.saw(topic)
        self._lanes.add(topic)

    def forget(self) -> None:
        """Look everything up again: a topic that was known may be gone."""
        self._unsure = {one.topic for one in self._known.values()} | self._lanes
        self._known.clear()
        self._lanes.clear()
        self._there.clear()

    def _found(self, topic: str) -> int | None:
        """Its partitions; what was forgotten is asked for in one question, for it may be hundreds of topics."""
        if self._unsure:
            try:
                self._there.update(self.admin.partitions(self._unsure))
            except (KafkaRefused, TopicNotReady) as error:
                logger.debug("each target is looked up alone: %s", error)
            self._unsure.clear()
        partitions = self._there.pop(topic, None)
        return self.admin.partitions([topic]).get(topic) if partitions is None else partitions

    def _look_up(self, real_topic: bytes) -> Target:
        try:
            name = real_topic.decode()
            topic = self.names.kafka_topic(name)
        except UnicodeDecodeError:
            raise Undeliverable(f"REAL_TOPIC is not UTF-8: {real_topic[:80]!r}") from None
        except IllegalName as error:
            raise Undeliverable(f"REAL_TOPIC: {error}") from None
        kind, group = "topic", ""
        for prefix, of_kind in ((RETRY_PREFIX, "retry"), (DLQ_PREFIX, "dlq")):
            if name.startswith(prefix):
                kind, group = of_kind, name.removeprefix(prefix)
        if kind == "topic" and not self._is_allowed(name):
            raise Undeliverable(
                f"REAL_TOPIC {name!r} is no %RETRY% or %DLQ% name and matches no pattern of allowed_real_topics"
            )
        return Target(topic, self._partitions(topic, kind, group), kind, group)

    def _is_allowed(self, name: str) -> bool:
        """Never one of our own topics: a record must not be able to come back as a delay, or as a setting."""
        return not name.startswith(self.names.prefix) and any(
            re.fullmatch(pattern, name) for pattern in self.allowed_real_topics
        )

    def _partitions(self, topic: str, kind: str, group: str) -> int:
        try:
            found = self._found(topic)
            if found is None and kind == "topic":
                raise Undeliverable(f"topic {topic} does not exist")
            if found is None:
                if kind == "retry":
                    self.deletions.missed(topic)
                found = self.maker.make_for_group(topic, kind, group, self.groups())
        except (KafkaRefused, TopicNotReady) as error:
            raise Undeliverable(str(error)) from error
        self.deletions.saw(topic)
        return found
