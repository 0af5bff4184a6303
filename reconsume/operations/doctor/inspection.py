"""Further requests to a cluster, for operators: states, members, rights."""

from __future__ import annotations

import time
from collections.abc import Iterable
from functools import cached_property
from types import SimpleNamespace
from typing import Any, Final, NamedTuple

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AclOperation, NewTopic

from reconsume.bridge.kafka.admin import KafkaAdmin, Partition
from reconsume.bridge.kafka.client_settings import transactional_settings
from reconsume.bridge.kafka.cluster import Cluster
from reconsume.bridge.kafka.connection_errors import Trouble
from reconsume.bridge.kafka.errors import translate
from reconsume.bridge.writing.transactions import Transactions
from reconsume.delay_levels.errors import KafkaRefused

_TIMEOUT: Final = 10.0
_SLICE_SECONDS: Final = 1.0
_TOO_LONG_MS: Final = 2**31 - 1
"""A timeout of transactions that brokers refuse."""
_SILENT: Final = SimpleNamespace(log=lambda *_: None)
"""A logger that drops librdkafka's lines: it calls that refusal fatal, and `log_level` 0 lets fatal errors through."""


class TopicState(NamedTuple):
    """The current state of a topic; `replicas` is the minimum over its partitions."""

    partitions: int
    replicas: int
    in_sync: int


class Inspector(KafkaAdmin):
    """Requests that only operators need; raises as `KafkaAdmin` does."""

    def connect(self) -> list[tuple[str, int]] | Trouble | None:
        """Return the brokers' advertised addresses, or why there is no connection."""
        deadline = time.monotonic() + _TIMEOUT
        while time.monotonic() < deadline and not self._heard.is_hopeless:
            try:
                found = self._client.list_topics(timeout=_SLICE_SECONDS)
            except KafkaException:
                self._client.poll(0)
            else:
                return [(str(one.host), one.port) for one in found.brokers.values()]
        return self._heard.trouble()

    def states(self) -> dict[str, TopicState]:
        """Return the states of all visible topics."""
        found = {}
        for name, topic in self._metadata("looking at the cluster").topics.items():
            if topic.error is None and topic.partitions:
                partitions = topic.partitions.values()
                replicas, in_sync = ([len(getattr(one, kind)) for one in partitions] for kind in ("replicas", "isrs"))
                found[name] = TopicState(len(topic.partitions), min(replicas), min(in_sync))
        return found

    def open_transactions(self, partitions: Iterable[Partition], before_ms: int) -> dict[Partition, int]:
        """Return the first offset of transactions that began before this time and are still open.

        Readers of committed records cannot pass it.
        """
        asked = set(partitions)
        committed, written = self.end_offsets(asked), self.end_offsets(asked, uncommitted=True)
        held = [where for where in asked if committed[where] < written[where]]
        later = self.offsets_at(held, before_ms, uncommitted=True)
        return {where: committed[where] for where in held if committed[where] < later[where]}

    def leaders(self, topic: str) -> dict[int, int]:
        """Return for each broker one partition of the topic that it leads."""
        found = self._metadata("looking at the cluster").topics.get(topic)
        partitions = {} if found is None else found.partitions
        return {one.leader: number for number, one in partitions.items() if one.leader >= 0}

    def members(self, group: str) -> dict[str, set[Partition]]:
        """Return the members of a group with their partitions."""
        found = self._patiently(lambda: self._describe_group(group))
        return {
            one.member_id: {(part.topic, part.partition) for part in one.assignment.topic_partitions}
            for one in found.members
        }

    def broker_settings(self) -> dict[str, str]:
        """Return the settings in force of one broker."""
        return self._broker_settings(min(self.brokers()))

    def rights_on_topics(self, topics: Iterable[str]) -> dict[str, set[str]]:
        """Return this client's rights on each topic, by their ACL names; none on an invisible topic."""
        found = {}
        for topic, told in self._describe(list(topics), seconds=_TIMEOUT, include_authorized_operations=True):
            if not isinstance(told, KafkaException):
                found[topic] = _names(told.authorized_operations)
            elif told.args[0].code() == KafkaError.TOPIC_AUTHORIZATION_FAILED:
                found[topic] = set()
            else:
                raise translate(told, f"looking at topic {topic}") from told
        return found

    def rights_on_group(self, group: str) -> set[str]:
        """Return this client's rights on a group."""
        try:
            return _names(self._patiently(lambda: self._describe_group(group)).authorized_operations)
        except KafkaRefused:
            return set()

    def _describe_group(self, group: str) -> Any:
        request = self._request(
            self._client.describe_consumer_groups, [group], seconds=_TIMEOUT, include_authorized_operations=True
        )
        return self._answer(request, group, f"looking at group {group}")

    def may_create(self, topic: str) -> bool:
        """Return whether this client may create a topic of that name, without creating it."""
        new = NewTopic(topic, num_partitions=1, replication_factor=-1)
        request = self._request(self._client.create_topics, [new], seconds=_TIMEOUT, validate_only=True)
        try:
            request.answer(topic)
        except KafkaException as error:
            return bool(error.args[0].code() != KafkaError.TOPIC_AUTHORIZATION_FAILED)
        return True


class InspectedCluster(Cluster):
    """A cluster with an inspector as its admin client."""

    @cached_property
    def admin(self) -> Inspector:
        """Return the shared client."""
        return Inspector(self.base, "reconsume-doctor")

    def may_write_transactions(self, transactional_id: str) -> bool:
        """Return whether this client may use a transactional id; registers nothing, so no writer is fenced."""
        settings = transactional_settings(self.base, transactional_id, _TOO_LONG_MS)
        transactions = Transactions(settings | {"logger": _SILENT})
        try:
            transactions.register(_TIMEOUT)
        except KafkaException as error:
            # Brokers check the right before the timeout.
            if error.args[0].code() == KafkaError.INVALID_TRANSACTION_TIMEOUT:
                return True
            told = translate(error, f"registering the transactional id {transactional_id}")
            if isinstance(told, KafkaRefused):
                return False
            raise told from error
        finally:
            transactions.close()
        return True


def _names(operations: Iterable[AclOperation] | None) -> set[str]:
    return {"".join(part.capitalize() for part in one.name.split("_")) for one in operations or ()}
