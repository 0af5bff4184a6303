"""The part of `confluent_kafka.admin.AdminClient` that reconsume uses."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from concurrent.futures import Future
from types import SimpleNamespace
from typing import Any, Final, TypeVar

from confluent_kafka import KafkaError, KafkaException, TopicCollection, TopicPartition
from confluent_kafka.admin import ConfigResource, NewTopic, OffsetSpec, ResourceType

from reconsume.testing.cluster import InMemoryCluster

T = TypeVar("T")
_CLUSTER_ID: Final = "in-memory"
_BROKER: Final = {"default.replication.factor": "1", "message.max.bytes": "1048588"}


class InMemoryClient:
    """The methods that all in-memory clients share."""

    _cluster: InMemoryCluster

    def list_topics(self, topic: str | None = None, timeout: float = -1) -> Any:  # noqa: ARG002
        """Return topics with their partitions, and one broker, as `confluent_kafka.admin.ClusterMetadata`."""
        with self._cluster.changed:
            topics = {
                name: SimpleNamespace(
                    topic=name,
                    error=None,
                    partitions={
                        number: SimpleNamespace(id=number, replicas=[1]) for number in range(len(one.partitions))
                    },
                )
                for name, one in self._cluster.topics.items()
                if topic in (None, name)
            }
        return SimpleNamespace(topics=topics, brokers={1: SimpleNamespace(id=1)}, cluster_id=_CLUSTER_ID)

    def cluster_id(self, timeout: float = -1) -> str:  # noqa: ARG002
        """Return the id of the in-memory cluster."""
        return _CLUSTER_ID

    def set_sasl_credentials(self, username: str, password: str) -> None:
        """Ignore the credentials."""


class InMemoryAdmin(InMemoryClient):
    """An admin client whose futures are always done."""

    def __init__(self, cluster: InMemoryCluster) -> None:
        self._cluster = cluster

    def poll(self, timeout: float = -1) -> int:  # noqa: ARG002
        """Do nothing: this client has no callbacks."""
        return 0

    def describe_topics(self, topics: TopicCollection, **_: Any) -> dict[str, Future[Any]]:
        """Describe topics; the future of a missing topic holds an error."""
        found = {}
        for name in topics.topic_names:
            topic = self._cluster.topics.get(name)
            if topic is None:
                found[name] = _failed(KafkaError.UNKNOWN_TOPIC_OR_PART, name)
            else:
                leader = SimpleNamespace(id=1)
                partitions = [SimpleNamespace(id=number, leader=leader) for number in range(len(topic.partitions))]
                found[name] = _done(SimpleNamespace(name=name, topic_id=id(topic), partitions=partitions))
        return found

    def create_topics(self, new_topics: Iterable[NewTopic], **_: Any) -> dict[str, Future[Any]]:
        """Create topics; the future of an existing topic holds an error."""
        return {
            one.topic: _done(None)
            if self._cluster.create(one.topic, max(1, one.num_partitions), one.config)
            else _failed(KafkaError.TOPIC_ALREADY_EXISTS, one.topic)
            for one in new_topics
        }

    def describe_configs(self, resources: Iterable[ConfigResource], **_: Any) -> dict[ConfigResource, Future[Any]]:
        """Return topic settings, and the two broker settings that decide about new topics."""
        found = {}
        for one in resources:
            settings: Mapping[str, str] | None = _BROKER
            if one.restype == ResourceType.TOPIC:
                topic = self._cluster.topics.get(one.name)
                settings = None if topic is None else topic.settings
            if settings is None:
                found[one] = _failed(KafkaError.UNKNOWN_TOPIC_OR_PART, one.name)
            else:
                found[one] = _done({name: SimpleNamespace(value=value) for name, value in settings.items()})
        return found

    def list_offsets(self, request: Mapping[TopicPartition, OffsetSpec], **_: Any) -> dict[TopicPartition, Future[Any]]:
        """Return the first offset or the end offset of each partition."""
        earliest = OffsetSpec.earliest()
        return {
            where: _done(
                SimpleNamespace(
                    offset=0 if spec is earliest else len(self._cluster.log((where.topic, where.partition)))
                )
            )
            for where, spec in request.items()
        }


def _done(value: T) -> Future[T]:
    future: Future[T] = Future()
    future.set_result(value)
    return future


def _failed(code: int, what: str) -> Future[Any]:
    future: Future[Any] = Future()
    future.set_exception(KafkaException(KafkaError(code, what)))
    return future
