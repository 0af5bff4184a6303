"""The topics, and the messages in them, that a group wants."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Self

from reconsume.bridge.kafka.admin import KafkaAdmin
from reconsume.delay_levels.errors import IllegalSetting, ReconsumeError
from reconsume.delay_levels.foreign_values import regular_expression
from reconsume.delay_levels.wire.names import TopicNames
from reconsume.delay_levels.wire.namespaces import Namespace


@dataclass(frozen=True, slots=True)
class TagExpression:
    """`*`, or tags separated by `||`; None means all (RocketMQ: TF-03)."""

    tags: frozenset[str] | None

    @classmethod
    def parse(cls, expression: str | None) -> Self:
        """Read an expression; empty, None and `*` mean all.

        Raises:
            IllegalSetting: nothing is left between the `||`.
        """
        if expression is None or expression.strip() in ("", "*"):
            return cls(None)
        tags = frozenset(tag.strip() for tag in expression.split("||") if tag.strip())
        if not tags:
            raise IllegalSetting(f"tag expression {expression!r} has no tags; write 'TagA || TagB', or '*' for all")
        return cls(tags)

    def wants(self, tag: str | None) -> bool:
        """Return whether a tag matches exactly; no tag never matches a set of tags (RocketMQ: TF-01, TF-02, TF-03)."""
        return self.tags is None or (tag is not None and tag in self.tags)


class Subscriptions:
    """The subscription of a consumer: topics by name, and patterns `^…` that match the whole name.

    Topics of reconsume and Kafka's own (`__…`) never match a pattern. The tags of a topic are those of its own
    subscription, else those of the first matching pattern.

    Args:
        names: the installation's topics.
        namespace: the consumer's; names and patterns are relative to it.
    """

    def __init__(self, names: TopicNames, namespace: Namespace | None = None) -> None:
        self._names = names
        self._namespace = namespace or Namespace()
        self._topics: dict[str, TagExpression] = {}
        self._patterns: dict[str, tuple[re.Pattern[str], TagExpression]] = {}

    def add(self, topic: str, expression: str | None) -> None:
        """Subscribe; the last expression for a name or a pattern counts.

        Raises:
            IllegalSetting: an invalid name, pattern or expression.
        """
        tags = TagExpression.parse(expression)
        if topic.startswith("^"):
            self._patterns[topic] = (regular_expression(topic, "pattern"), tags)
        else:
            kafka_topic = self._namespace.kafka_topic(topic, self._names)
            if kafka_topic != topic and self._names.is_ours(kafka_topic):
                raise IllegalSetting(f"topic {topic!r}: subscribe to it by its name in Kafka, {kafka_topic}")
            self._names.check_consumable(kafka_topic)
            self._topics[kafka_topic] = tags

    def __iter__(self) -> Iterator[str]:
        return iter(self._topics)

    def __bool__(self) -> bool:
        return bool(self._topics or self._patterns)

    @property
    def has_patterns(self) -> bool:
        """Return whether the topics depend on those that exist."""
        return bool(self._patterns)

    def get(self, topic: str) -> TagExpression | None:
        """Return the wanted tags of a Kafka topic; None if it is not subscribed, as the retry topic."""
        return self._topics[topic] if topic in self._topics else self._first_match(topic)

    def remedy_if_missing(self, topic: str) -> str:
        """Return the command that creates a subscribed Kafka topic."""
        return self._names.remedy_if_missing(topic)

    def existing(self, admin: KafkaAdmin, refused: dict[str, ReconsumeError] | None = None) -> dict[str, int]:
        """Return the number of partitions of each existing subscribed topic; `refused` as in `KafkaAdmin`."""
        found = admin.topics() if self._patterns else admin.partitions(self._topics, refused)
        return {topic: found[topic] for topic in self.among(found)}

    def among(self, existing: Iterable[str]) -> list[str]:
        """Return which of these topics are subscribed."""
        return sorted(topic for topic in existing if self.get(topic) is not None)

    def _first_match(self, topic: str) -> TagExpression | None:
        prefix = self._namespace.topic_prefix
        if self._names.is_ours(topic) or topic.startswith("__") or not topic.startswith(prefix):
            return None
        name = topic.removeprefix(prefix)
        return next((tags for pattern, tags in self._patterns.values() if pattern.fullmatch(name)), None)
