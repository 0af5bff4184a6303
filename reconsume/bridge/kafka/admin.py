"""Requests to a cluster about topics, settings and offsets. Requests never create a topic implicitly."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from confluent_kafka import Consumer, IsolationLevel, KafkaError, KafkaException, TopicCollection, TopicPartition
from confluent_kafka.admin import AclOperation, ConfigResource, NewPartitions, NewTopic, OffsetSpec, ResourceType

from reconsume.bridge.kafka.clients import make_consumer
from reconsume.bridge.kafka.connection_errors import ConnectionErrors
from reconsume.bridge.kafka.errors import translate
from reconsume.bridge.kafka.patient_client import UNANSWERED, AdminRequest, PatientClient, patiently
from reconsume.bridge.librdkafka.listed_groups import listed_members
from reconsume.bridge.librdkafka.listed_offsets import require_offset
from reconsume.bridge.librdkafka.undecodable import metadata_of
from reconsume.bridge.process.safe_logger import SafeLogger
from reconsume.delay_levels.errors import KafkaNotReachable, KafkaRefused, ReconsumeError

Partition = tuple[str, int]

logger = SafeLogger(__name__)

_ANSWER_SECONDS: Final = 2.0
_FENCED: Final = "fenced"
"""Part of the error for missing replicas if brokers exist but the controller has not heard of them lately."""


@dataclass(frozen=True, slots=True)
class ClusterFacts:
    """The facts of a cluster that new topics depend on."""

    brokers: int
    default_replication_factor: int
    message_max_bytes: int


class Commit(NamedTuple):
    """A committed offset of a partition, with its metadata."""

    offset: int
    metadata: str


@dataclass(frozen=True, slots=True)
class WantedTopic:
    """The target state of a topic; -1 replicas means the cluster's default.

    Attributes:
        may_grow: whether to add missing partitions, which moves keys to other partitions.
        least_retention_ms: a shorter retention, or a limit of bytes, deletes records that wait; 0 if none wait.
    """

    name: str
    partitions: int
    replication_factor: int
    settings: Mapping[str, str]
    may_grow: bool = False
    least_retention_ms: int = 0


class KafkaAdmin(PatientClient):
    """Requests to the cluster, and the creation of topics.

    All methods raise `KafkaNotReachable` if no broker answers within 16 s (`create`: 22 s), and `KafkaRefused` if the
    cluster refuses.
    """

    def topics(self) -> dict[str, int]:
        """Return all visible topics with their numbers of partitions."""
        topics = self._metadata("listing the topics").topics
        return {name: len(topic.partitions) for name, topic in topics.items() if topic.error is None}

    def replicas(self) -> dict[str, list[list[int]]]:
        """Return the brokers of each partition of all visible topics, with those that are away."""
        topics = self._metadata("asking for replicas").topics
        return {name: [one.replicas for one in topic.partitions.values()] for name, topic in topics.items()}

    def partitions(self, topics: Iterable[str], refused: dict[str, ReconsumeError] | None = None) -> dict[str, int]:
        """Return the number of partitions of each of these topics that exists.

        Args:
            topics: the topics to look for.
            refused: collects refusals by topic; without it the first refusal is raised.
        """
        return {topic: len(one.partitions) for topic, one in self._described(list(topics), refused).items()}

    @patiently
    def _described(self, topics: list[str], refused: dict[str, ReconsumeError] | None = None) -> dict[str, Any]:
        found: dict[str, Any] = {}
        for topic, told in self._describe(topics):
            if not isinstance(told, KafkaException):
                found[topic] = told
                continue
            why = [self._explain(told, f"looking for topic {topic}")]
            if refused is None or isinstance(why[0], KafkaNotReachable):
                raise why.pop() from told  # a frame that keeps its error keeps the client, by the error's traceback
            refused[topic] = why[0]
        return found

    def _describe(self, topics: list[str], **more: Any) -> Iterator[tuple[str, Any]]:
        """Return the brokers' description of each existing topic, or their error."""
        if not topics:
            return
        request = self._request(self._client.describe_topics, TopicCollection(topics), **more)
        for topic in request:
            try:
                yield topic, request.answer(topic)
            except KafkaException as error:
                if error.args[0].code() != KafkaError.UNKNOWN_TOPIC_OR_PART:
                    yield topic, error

    def unwritable(self, topics: Collection[str]) -> dict[str, str]:
        """Return the topics among these that this client may not write to, and why."""
        found: dict[str, str] = {}
        refusal = KafkaError(KafkaError.TOPIC_AUTHORIZATION_FAILED)
        for topic, told in self._describe(list(topics), include_authorized_operations=True):
            if isinstance(told, KafkaException):
                if told.args[0].code() != refusal.code():
                    raise self._explain(told, f"looking for topic {topic}") from told
            elif told.authorized_operations is None or AclOperation.WRITE in told.authorized_operations:
                continue
            found[topic] = str(translate(refusal, f"writing to topic {topic}"))
        return found

    def known_settings(self, topic: str) -> dict[str, str]:
        """Return the settings in force of a topic; none if the brokers do not say, as without the right to them."""
        try:
            return self.settings([topic])[topic]
        except ReconsumeError as error:
            logger.debug("settings of %s unknown: %s", topic, error)
            return {}

    def leaderless(self, topics: Iterable[str]) -> set[Partition]:
        """Return the partitions of these topics without a leader; a request for offsets of one fails for all others."""
        told = self._described(list(topics)).items()
        return {(name, one.id) for name, topic in told for one in topic.partitions if getattr(one.leader, "id", -1) < 0}

    def topic_ids(self, topics: Iterable[str], refused: dict[str, ReconsumeError] | None = None) -> dict[str, str]:
        """Return Kafka's id of each of these topics that exists; `refused` as in `partitions`."""
        return {topic: str(one.topic_id) for topic, one in self._described(list(topics), refused).items()}

    def settings(self, topics: Iterable[str]) -> dict[str, dict[str, str]]:
        """Return the settings in force of each topic, by name."""
        return self._settings_of([ConfigResource(ResourceType.TOPIC, topic) for topic in topics])

    @patiently
    def _settings_of(self, resources: list[ConfigResource]) -> dict[str, dict[str, str]]:
        if not resources:
            return {}
        request = self._request(self._client.describe_configs, resources)
        found = {}
        for one in request:
            entries = self._answer(request, one, f"reading the settings of {one.restype.name.lower()} {one.name}")
            found[one.name] = {name: entry.value for name, entry in entries.items() if entry.value is not None}
        return found

    def cluster_id(self) -> str:
        """Return the cluster's id."""
        return str(self._metadata("asking for the cluster's id").cluster_id)

    def facts(self) -> ClusterFacts:
        """Return the number of brokers and the defaults that new topics depend on.

        A broker that is away counts if a visible topic has a replica there. Without the right to read broker settings,
        Kafka's own defaults are assumed.
        """
        brokers = self.brokers()
        placed = {broker for partitions in self.replicas().values() for one in partitions for broker in one}
        try:
            values = self._broker_settings(min(brokers))
        except KafkaRefused as error:
            logger.warning("new topics use Kafka's defaults, not this cluster's: %s", error)
            values = {}
        return ClusterFacts(
            brokers=len(placed.union(brokers)),
            default_replication_factor=int(values.get("default.replication.factor", "1")),
            message_max_bytes=int(values.get("message.max.bytes", "1048588")),
        )

    def _broker_settings(self, broker: int) -> dict[str, str]:
        return self._settings_of([ConfigResource(ResourceType.BROKER, str(broker))])[str(broker)]

    def create(self, topic: str, partitions: int, replication_factor: int, settings: Mapping[str, str]) -> bool:
        """Create a topic and wait until it is usable; False if it existed."""
        made = self.create_all([WantedTopic(topic, partitions, replication_factor, settings)])[topic]
        if isinstance(made, ReconsumeError):
            raise made
        return made

    def create_all(self, topics: Sequence[WantedTopic]) -> dict[str, bool | ReconsumeError]:
        """Create many topics in one request; return for each whether it was created, or why not."""
        found: dict[str, bool | ReconsumeError] = {}
        self._create_others(topics, found)
        made = {one.name: one.partitions for one in topics if found[one.name] is True}
        if made:
            self._require_leaders(made)
        return found

    def add_partitions(self, topic: str, partitions: int) -> None:
        """Increase a topic's partitions to this number, if it has fewer, and wait until they are usable."""
        more = {"seconds": self._patience, "operation_timeout": self._patience}
        request = self._request(self._client.create_partitions, [NewPartitions(topic, partitions)], **more)
        try:
            self._answer(request, topic, f"adding partitions to topic {topic}")
        except KafkaRefused:
            if self.partitions([topic]).get(topic, 0) < partitions:  # else another operator has added them
                raise
        self._require_leaders({topic: partitions})

    @patiently
    def _create_others(self, topics: Sequence[WantedTopic], found: dict[str, bool | ReconsumeError]) -> None:
        """Request the topics without a result so far."""
        others = [
            NewTopic(one.name, one.partitions, one.replication_factor, config=dict(one.settings))
            for one in topics
            if one.name not in found
        ]
        request = self._request(
            self._client.create_topics, others, seconds=self._patience, operation_timeout=self._patience
        )
        for topic in request:
            try:
                found[topic] = self._created(request, topic)
            except KafkaRefused as error:
                found[topic] = error

    def _created(self, request: AdminRequest[str], topic: str) -> bool:
        try:
            request.answer(topic)
        except KafkaException as error:
            cause: KafkaError = error.args[0]
            if cause.code() == KafkaError.TOPIC_ALREADY_EXISTS:
                return False
            if cause.code() == KafkaError.INVALID_REPLICATION_FACTOR and _FENCED in cause.str():
                raise KafkaNotReachable(f"creating topic {topic}: {cause.str()}") from error
            raise self._explain(error, f"creating topic {topic}") from error
        return True

    @patiently
    def _require_leaders(self, partitions: Mapping[str, int]) -> None:
        """Check for leaders: a topic whose partitions have none accepts no record, and seems not to exist."""
        request = self._request(self._client.describe_topics, TopicCollection(list(partitions)), seconds=self._patience)
        for topic, count in partitions.items():
            try:
                described = request.answer(topic)
            except KafkaException as error:
                raise KafkaNotReachable(f"topic {topic} was created, and some brokers do not know it yet") from error
            if sum(one.leader is not None and one.leader.id >= 0 for one in described.partitions) < count:
                raise KafkaNotReachable(f"topic {topic} was created and has no leaders yet")

    def end_offsets(
        self, partitions: Iterable[Partition], *, earliest: bool = False, uncommitted: bool = False
    ) -> dict[Partition, int]:
        """Return the offset after the last committed record of each partition, or the first kept one.

        With `uncommitted`, records of open transactions count too.
        """
        spec = OffsetSpec.earliest() if earliest else OffsetSpec.latest()
        return self._offsets(list(partitions), spec, uncommitted=uncommitted)

    def offsets_at(
        self, partitions: Iterable[Partition], timestamp_ms: int, *, uncommitted: bool = False
    ) -> dict[Partition, int]:
        """Return the first offset of each partition with that timestamp or a later one; the end if none follows."""
        spec = OffsetSpec.for_timestamp(timestamp_ms)
        found = self._offsets(list(partitions), spec, uncommitted=uncommitted)
        after_all = [where for where, offset in found.items() if offset < 0]
        # The ends, and then the timestamp again: a record that comes in between has it.
        ends = self.end_offsets(after_all, uncommitted=uncommitted)
        found |= self._offsets(after_all, spec, uncommitted=uncommitted)
        return {where: ends[where] if offset < 0 else offset for where, offset in found.items()}

    @patiently
    def _offsets(self, partitions: list[Partition], spec: OffsetSpec, *, uncommitted: bool) -> dict[Partition, int]:
        if not partitions:
            return {}
        wanted = {TopicPartition(*where): spec for where in partitions}
        level = IsolationLevel.READ_UNCOMMITTED if uncommitted else IsolationLevel.READ_COMMITTED
        request = self._request(self._client.list_offsets, wanted, isolation_level=level)
        found: dict[Partition, int] = {}
        for one in request:
            doing = f"reading offsets of {one.topic}-{one.partition}"
            found[one.topic, one.partition] = require_offset(self._answer(request, one, doing).offset, doing)
        return found

    @patiently
    def delete_before(self, offsets: Mapping[Partition, int]) -> None:
        """Delete the records of each partition before an offset."""
        request = self._request(self._client.delete_records, [TopicPartition(*at, to) for at, to in offsets.items()])
        for one in request:
            self._answer(request, one, f"deleting records of {one.topic}-{one.partition}")

    def committed(self, group: str, partitions: Iterable[Partition]) -> dict[Partition, int]:
        """Return the committed offsets of a group for those of these partitions that have one."""
        return {where: one.offset for where, one in self.commits(group, partitions).items()}

    def commits(self, group: str, partitions: Iterable[Partition], *, stable: bool = False) -> dict[Partition, Commit]:
        """Return committed offsets of a group with their metadata.

        A consumer outside the group asks: librdkafka 2.16 kills the process if an admin client asks a broker that is
        not the group's coordinator any more, or not yet (librdkafka issue 5040).
        Test: tests/integration/bridge/test_lost_offsets.py. Remove when: issue 5040 is closed.

        Args:
            group: the group.
            partitions: the partitions.
            stable: wait for the end of transactions that commit offsets of these partitions.
        """
        asked = [TopicPartition(*where) for where in partitions]
        if not asked:
            return {}
        level = "read_committed" if stable else "read_uncommitted"
        consumer = make_consumer(self._settings | {"group.id": group, "isolation.level": level})
        try:
            return self._patiently(lambda: _commits(consumer, group, asked, self._heard))
        finally:
            consumer.close()

    def member_names(self, group: str) -> set[str]:
        """Return the members of a group by `group.instance.id`, or `client.id`, which Kafka puts before a UUID."""
        doing = f"looking at the members of group {group}"
        try:
            found = listed_members(self._client, group, _ANSWER_SECONDS, doing)
        except KafkaException as error:
            raise self._explain(error, doing) from error
        if not isinstance(found, set):
            raise translate(found, doing)
        return found


def _commits(
    consumer: Consumer, group: str, asked: list[TopicPartition], heard: ConnectionErrors
) -> dict[Partition, Commit]:
    doing = f"reading the offsets of group {group}"
    try:
        found = consumer.committed(asked, _ANSWER_SECONDS)
    except KafkaException as error:
        # Only a poll reports that the group may not be used; this call would wait for a coordinator in vain.
        told = consumer.poll(0)
        refusal = None if told is None else told.error()
        if refusal is None and error.args[0].code() in UNANSWERED:
            raise heard.no_answer(error.args[0], doing) from error
        raise translate(error if refusal is None else refusal, doing) from error
    for one in found:
        if one.error is not None and one.error.code() != KafkaError.UNKNOWN_TOPIC_OR_PART:
            raise translate(one.error, doing)
    return {(one.topic, one.partition): Commit(one.offset, metadata_of(one) or "") for one in found if one.offset >= 0}
