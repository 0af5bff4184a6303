"""The operator of the cluster: creates topics, deletes one by mistake, revokes rights and restores them."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from functools import partial
from typing import Any, Final, TypeVar

from confluent_kafka import KafkaException
from confluent_kafka.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
)

from reconsume.bridge.groups.groups import Groups, SystemConfig
from reconsume.bridge.kafka.cluster import Cluster
from reconsume.bridge.topics.topics import TopicMaker, install
from reconsume.cli.chaos.poison import GROUP_OF_POISON, LARGEST_BATCH, ORIGIN_OF_POISON, UNMADE_PREFIX
from reconsume.cli.chaos.workload import GROUP, ORIGIN, PARTITIONS, PROCESSED
from reconsume.cli.judging.judge import LEVEL_TABLE
from reconsume.delay_levels.errors import ReconsumeError

_PATIENCE_SECONDS: Final = 60.0
_ANSWER_SECONDS: Final = 10.0
_AGAIN_SECONDS: Final = 0.5
_EVERYBODY: Final = "User:*"

T = TypeVar("T")


class Operator:
    """Knows the installation's topics, and waits for a restarting broker.

    Args:
        cluster: the cluster, not through proxies.
    """

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._holds_poison = False
        self._admin, self._names = cluster.admin, cluster.names

    def _change(self, ask: Callable[[AdminClient], Mapping[Any, Future[Any]]]) -> None:
        """Run a change with a new client: one whose connections were reset may wait for its controller for minutes."""
        client = AdminClient(self._cluster.base)
        for future in ask(client).values():
            future.result()

    def make_topics(self) -> None:
        """Create the missing topics of the level table and the workload."""
        _insist(self._make_topics)

    def _make_topics(self) -> None:
        install(self._cluster, SystemConfig(message_delay_level=LEVEL_TABLE))
        for name in (ORIGIN, PROCESSED):
            self._admin.create(name, PARTITIONS, -1, {"message.timestamp.type": "LogAppendTime"})

    def prepare_poison(self) -> None:
        """Create the topics of the poisoned group, and revoke the right to create those of unmade groups."""
        self._holds_poison = True
        _insist(self._prepare_poison)

    def _prepare_poison(self) -> None:
        self._admin.create(ORIGIN_OF_POISON, PARTITIONS, -1, {"message.timestamp.type": "LogAppendTime"})
        maker = TopicMaker(self._admin, self._names, self._cluster.settings.topics)
        retry = maker.retry_topic(GROUP_OF_POISON, Groups())
        settings = {**retry.settings, "max.message.bytes": str(LARGEST_BATCH)}
        self._admin.create(retry.name, retry.partitions, retry.replication_factor, settings)
        unmade = ResourceType.TOPIC, self._names.retry(UNMADE_PREFIX), ResourcePatternType.PREFIXED
        # A right to create topics in the cluster covers all names. Other names stay allowed, because no rule concerns
        # them.
        cluster = ResourceType.BROKER, "kafka-cluster", ResourcePatternType.LITERAL
        self._add_rules([rule for one in (unmade, cluster) for rule in _all_but(AclOperation.CREATE, *one)])

    def delete(self, choice: int) -> None:
        """Delete one of the topics that hold no message."""
        names = self._names
        topics = [names.cancel] if self._holds_poison else [names.cancel, names.quarantine]
        topic = topics[choice % len(topics)]
        _insist(partial(self._delete, topic))

    def _delete(self, topic: str) -> None:
        if topic in self._admin.topics():
            self._change(lambda client: client.delete_topics([topic], request_timeout=_ANSWER_SECONDS))

    def take_reading(self, choice: int) -> str:
        """Revoke the right to read one of the topics on the messages' path; return the topic."""
        names = self._names
        lanes = [names.delay(seconds * 1_000) for seconds in (0, 1, 2, 3)]
        topics = [ORIGIN, names.retry(GROUP), *lanes]
        topic = topics[choice % len(topics)]
        self._take(AclOperation.READ, topic)
        return topic

    def take_writing(self) -> str:
        """Revoke the right to write to the poisoned group's retry topic; return the topic."""
        topic = self._names.retry(GROUP_OF_POISON)
        self._take(AclOperation.WRITE, topic)
        return topic

    def _take(self, operation: AclOperation, topic: str) -> None:
        rules = _all_but(operation, ResourceType.TOPIC, topic, ResourcePatternType.LITERAL)
        _insist(partial(self._add_rules, rules))

    def _add_rules(self, rules: list[AclBinding]) -> None:
        self._change(lambda client: client.create_acls(rules, request_timeout=_ANSWER_SECONDS))

    def give_back(self, topic: str) -> None:
        """Undo `take_reading` or `take_writing`."""
        rules = AclBindingFilter(
            ResourceType.TOPIC,
            topic,
            ResourcePatternType.LITERAL,
            _EVERYBODY,
            "*",
            AclOperation.ANY,
            AclPermissionType.ANY,
        )
        _insist(lambda: self._change(lambda client: client.delete_acls([rules], request_timeout=_ANSWER_SECONDS)))


def _all_but(operation: AclOperation, kind: ResourceType, name: str, pattern: ResourcePatternType) -> list[AclBinding]:
    """Return rules that allow everyone all but this operation: once a rule exists, everything else is denied."""
    return [
        AclBinding(kind, name, pattern, _EVERYBODY, "*", one, permission)
        for one, permission in ((AclOperation.ALL, AclPermissionType.ALLOW), (operation, AclPermissionType.DENY))
    ]


def _insist(call: Callable[[], T]) -> T:
    """Repeat a call while a broker is down; after a minute raise the last error."""
    deadline = time.monotonic() + _PATIENCE_SECONDS
    while True:
        try:
            return call()
        except (KafkaException, ReconsumeError):
            if time.monotonic() > deadline:
                raise
        time.sleep(_AGAIN_SECONDS)
