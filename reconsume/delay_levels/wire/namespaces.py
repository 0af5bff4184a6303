"""RocketMQ's namespaces: `ns%` before the names of groups and topics (RocketMQ: TN-10).

A Kafka group may be any text, so `orders` in the namespace `shop` is the consumer group `shop%orders`, which also
determines its retry and dead-letter topics. `%` is illegal in topics of the user, so the namespace is encoded as all
names are, and the topic stays unchanged: `shop.25flights`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from reconsume.delay_levels.errors import IllegalName
from reconsume.delay_levels.foreign_values import of_type
from reconsume.delay_levels.wire.names import DLQ_PREFIX, RETRY_PREFIX, TopicNames, encode_name

_MARK: Final = "%"


@dataclass(frozen=True, slots=True)
class Namespace:
    """Wraps and unwraps names; without a name it changes nothing.

    Raises:
        IllegalName: from the constructor: the name is blank or contains `%`, which ends a namespace.
    """

    name: str = ""

    def __post_init__(self) -> None:
        if of_type(self.name, "namespace", str) and (not self.name.strip() or _MARK in self.name):
            raise IllegalName(f"the namespace {self.name!r} is blank or holds '%'; use a name such as 'shop'")

    @property
    def topic_prefix(self) -> str:
        """The prefix of the namespace's Kafka topics: `shop.25`; empty without a namespace."""
        return encode_name(self.name + _MARK) if self.name else ""

    def wrap(self, resource: str) -> str:
        """Return `ns%resource`, `%RETRY%ns%group`, `%DLQ%ns%group`; wrapped names stay unchanged."""
        kind, rest = _parted(resource)
        if not self.name or rest.startswith(self.name + _MARK):
            return resource
        return f"{kind}{self.name}{_MARK}{rest}"

    def unwrap(self, resource: str) -> str:
        """Return the name without this namespace; names of other namespaces stay unchanged."""
        kind, rest = _parted(resource)
        return kind + rest.removeprefix(self.name + _MARK) if self.name else resource

    def kafka_topic(self, topic: str, names: TopicNames) -> str:
        """Return the Kafka topic of a user's name; topics of reconsume belong to no namespace.

        Raises:
            IllegalName: the result is no legal Kafka topic.
        """
        if topic.startswith((RETRY_PREFIX, DLQ_PREFIX)):
            return names.kafka_topic(self.wrap(topic))
        if names.is_ours(topic) or topic.startswith(self.topic_prefix):
            return names.kafka_topic(topic)
        names.kafka_topic(self.unwrap(topic))
        return names.kafka_topic(self.topic_prefix + self.unwrap(topic))


def _parted(resource: str) -> tuple[str, str]:
    for kind in (RETRY_PREFIX, DLQ_PREFIX):
        if resource.startswith(kind):
            return kind, resource.removeprefix(kind)
    return "", resource
