"""The comparison of the cluster's topics with their target state."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

from reconsume.bridge.kafka.admin import WantedTopic

_BREAKING: Final = ("message.timestamp.type", "cleanup.policy")


def safe_in_sync(replicas: int) -> int:
    """Return the `min.insync.replicas` of a topic with this many: one may be away, and writes continue."""
    return max(1, min(2, replicas - 1))


@dataclass(frozen=True, slots=True)
class TopicDifference:
    """An existing topic that differs from its target state; never changed without a request."""

    topic: str
    setting: str
    is_now: str
    should_be: str
    breaks: bool
    """Whether it breaks a guarantee, so that it must be fixed."""

    def remedy(self, servers: str) -> str:
        """Return the command that fixes it, with Kafka's own tool."""
        where = f"--bootstrap-server {servers} --alter"
        if self.setting == "partitions":
            return f"kafka-topics.sh {where} --topic {self.topic} --partitions {self.should_be}"
        if self.setting == "replicas":
            return (
                "when all brokers run, write replicas.json as docs/operate.md#more-replicas shows, then: "
                f"kafka-reassign-partitions.sh --bootstrap-server {servers} --execute "
                "--reassignment-json-file replicas.json"
            )
        return (
            f"kafka-configs.sh {where} --entity-type topics --entity-name {self.topic} "
            f"--add-config {self.setting}={self.should_be}"
        )


@dataclass(frozen=True, slots=True)
class TopicPlan:
    """The topics that `topics apply` would create, and those that it would leave unchanged.

    Attributes:
        growing: topics that get more partitions, with their current number.
    """

    missing: list[WantedTopic] = field(default_factory=list)
    growing: list[tuple[WantedTopic, int]] = field(default_factory=list)
    present: list[str] = field(default_factory=list)
    differences: list[TopicDifference] = field(default_factory=list)


def plan_topics(
    wanted: Iterable[WantedTopic],
    existing: Mapping[str, int],
    settings: Mapping[str, Mapping[str, str]],
    replicas: Mapping[str, int],
) -> TopicPlan:
    """Compare the target state with the cluster.

    Args:
        wanted: all required topics.
        existing: topics of the cluster with their numbers of partitions.
        settings: the settings in force of existing topics.
        replicas: the replicas of existing topics.
    """
    plan = TopicPlan()
    for topic in wanted:
        if topic.name not in existing:
            plan.missing.append(topic)
            continue
        plan.present.append(topic.name)
        partitions = existing[topic.name]
        if topic.may_grow and partitions < topic.partitions:
            plan.growing.append((topic, partitions))
            partitions = topic.partitions
        found = replicas.get(topic.name, topic.replication_factor)
        plan.differences.extend(_differences(topic, partitions, found, settings.get(topic.name, {})))
    return plan


def _differences(
    topic: WantedTopic, partitions: int, replicas: int, settings: Mapping[str, str]
) -> list[TopicDifference]:
    found = [
        TopicDifference(topic.name, name, str(is_now), str(should_be), breaks=False)
        for name, is_now, should_be in (
            ("partitions", partitions, topic.partitions),
            ("replicas", replicas, topic.replication_factor),
        )
        if is_now < should_be
    ]
    for name, target in topic.settings.items():
        # With the target's value and fewer replicas, writes would stop while any replica is away.
        should_be = str(safe_in_sync(replicas)) if name == "min.insync.replicas" else target
        if (is_now := settings.get(name)) is None or is_now == should_be:
            continue
        if name in ("max.message.bytes", "retention.ms", "min.insync.replicas") and _at_least(is_now, should_be):
            continue
        breaks = name in _BREAKING or _deletes_waiting(topic, name, is_now)
        found.append(TopicDifference(topic.name, name, is_now, should_be, breaks))
    return found


def _deletes_waiting(topic: WantedTopic, name: str, is_now: str) -> bool:
    """Return whether a setting of a delay topic may delete records before they are due."""
    if name == "retention.ms":
        return int(is_now) < topic.least_retention_ms
    return name == "retention.bytes" and topic.least_retention_ms > 0


def _at_least(is_now: str, should_be: str) -> bool:
    """Return whether a value is large enough; more room, retention or replicas than wanted are fine, -1 is forever."""
    return int(is_now) == -1 or (int(should_be) != -1 and int(is_now) >= int(should_be))
