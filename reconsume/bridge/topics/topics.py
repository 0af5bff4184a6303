"""The target state of reconsume's topics, and their creation."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Final, NamedTuple

from reconsume.bridge.groups.groups import Groups, SystemConfig
from reconsume.bridge.groups.groups_store import write_system
from reconsume.bridge.kafka.admin import ClusterFacts, KafkaAdmin, WantedTopic
from reconsume.bridge.kafka.cluster import Cluster
from reconsume.bridge.process.brokers_clock import monotonic_ms
from reconsume.bridge.process.clock import Clock
from reconsume.bridge.process.safe_logger import SafeLogger
from reconsume.bridge.process.settings import TopicSettings
from reconsume.bridge.topics.topic_plan import safe_in_sync
from reconsume.delay_levels.errors import KafkaNotReachable, KafkaRefused, ReconsumeError, SubscriptionGroupNotExist
from reconsume.delay_levels.wire.names import TopicNames
from reconsume.delay_levels.wire.timer import CANCELS_KEPT_MS, LONGEST_DELAY_MS

logger = SafeLogger(__name__)

_DAY_MS: Final = 86_400_000
_HEADER_ROOM_BYTES: Final = 65_536
"""The maximum size of reconsume's headers: two topic names, two ids, a cause of 6 KiB; with some reserve."""
_SAFE_REPLICATION: Final = 3
_FACTS_MS: Final = 60_000
_COMPACTED_WITHIN_MS: Final = 6 * 3_600_000
_JOBS_KEPT_MS: Final = 365 * _DAY_MS


class NamedTopic(NamedTuple):
    """The target topic of a record.

    Attributes:
        topic: the Kafka topic.
        kind: `retry`, `dlq` or `topic`.
        group: the consumer group of a retry or dead-letter topic, else empty.
    """

    topic: str
    kind: str
    group: str


class TopicMaker:
    """Creates reconsume's topics by the settings and the cluster's facts.

    Args:
        admin: the admin client.
        names: the installation's topics.
        settings: the settings of this process, used while GROUPS has no published topic settings.
        groups: the groups as known now, with the published settings.
        clock: monotonic milliseconds.
    """

    def __init__(
        self,
        admin: KafkaAdmin,
        names: TopicNames,
        settings: TopicSettings,
        groups: Callable[[], Groups] = Groups,
        clock: Clock = monotonic_ms,
    ) -> None:
        self._admin = admin
        self._names = names
        self._own = settings
        self._groups = groups
        self._ignored: list[str] = []
        self._clock = clock
        self._facts: ClusterFacts | None = None
        self._ask_at = 0.0

    @property
    def _settings(self) -> TopicSettings:
        """Return the installation's topic settings, the same for every process that creates topics."""
        published = self._groups().system.topic_settings
        if published is None:
            return self._own
        own = {name: getattr(self._own, name) for name in sorted(self._own.model_fields_set)}
        ignored = [f"topics.{name} {value}" for name, value in own.items() if value != getattr(published, name)]
        if ignored and ignored != self._ignored:
            self._ignored = ignored
            logger.warning(
                "settings ignored, because topic %s has other ones: %s; to publish these: reconsume topics apply",
                *(self._names.groups, ", ".join(ignored)),
            )
        return published

    @property
    def facts(self) -> ClusterFacts:
        """Return the cluster's facts, which are requested again after a minute: brokers are added.

        A broker that is away and has no replica yet is missing in an answer, and a topic would keep too few replicas.
        So the most that were seen count, until the cluster refuses a topic.
        """
        known, now = self._facts, self._clock()
        if known is None or now >= self._ask_at:
            found = self._admin.facts()
            known = replace(found, brokers=max(found.brokers, 0 if known is None else known.brokers))
            self._facts, self._ask_at = known, now + _FACTS_MS
        return known

    def make(self, wanted: WantedTopic) -> bool:
        """Create a topic; False if another process created it first."""
        made = self._create([wanted])[wanted.name]
        if isinstance(made, ReconsumeError):
            raise made
        return made

    def _create(self, topics: Sequence[WantedTopic]) -> dict[str, bool | ReconsumeError]:
        """Create topics together; unless a number of replicas is set, refused ones get what the cluster can give."""
        found = self._admin.create_all(topics)
        refused = [one for one in topics if isinstance(found[one.name], KafkaRefused)]
        if refused:
            self._facts = None
            if self._settings.replication_factor is None:
                found |= self._create_smaller(refused)
        return found

    def _create_smaller(self, refused: Iterable[WantedTopic]) -> dict[str, bool]:
        """Create those of these topics that want more replicas than brokers run; return those that exist now.

        KRaft places a replica on a broker that is away. ZooKeeper does not, and no Kafka does on one that is not
        registered. A message that fails meanwhile must not wait for that broker.
        """
        running = len(self._admin.brokers())
        in_sync = {"min.insync.replicas": str(safe_in_sync(running))}
        smaller = [
            replace(one, replication_factor=running, settings={**one.settings, **in_sync})
            for one in refused
            if one.replication_factor > running
        ]
        told = self._admin.create_all(smaller) if smaller else {}
        made = {topic: is_new for topic, is_new in told.items() if isinstance(is_new, bool)}
        if new := sorted(topic for topic, is_new in made.items() if is_new):
            logger.warning(
                "topics created with too few replicas, because a broker is away replicas=%d topics=%s; when all "
                "brokers run, `reconsume topics plan` shows how to add the others",
                *(running, ", ".join(new)),
            )
        return made

    def grow(self, wanted: WantedTopic) -> None:
        """Add the missing partitions of a topic."""
        self._admin.add_partitions(wanted.name, wanted.partitions)

    def make_for_groups(self, named: Iterable[NamedTopic], groups: Groups) -> dict[str, int | ReconsumeError]:
        """Create retry and dead-letter topics together; return the partitions of each, or the error.

        Raises:
            KafkaNotReachable: no answer, or some topics are not visible yet; ask again.
        """
        topics, refused = list[WantedTopic](), dict[str, ReconsumeError]()
        for one in named:
            try:
                is_retry = one.kind == "retry"
                topics.append(self.retry_topic(one.group, groups) if is_retry else self.dead_letter_topic(one.group))
            except SubscriptionGroupNotExist as error:
                refused[one.topic] = error
        outcomes = self._create(topics) if topics else {}
        refused |= {topic: told for topic, told in outcomes.items() if isinstance(told, ReconsumeError)}
        made = outcomes.keys() - refused.keys()
        found = self._admin.partitions(made) if made else {}
        if missing := made - found.keys():
            raise KafkaNotReachable(f"topic {min(missing)} was created, and some brokers do not know it yet")
        return {**refused, **found}

    def retry_topic(self, group: str, groups: Groups) -> WantedTopic:
        """Return `%RETRY%<group>`, with `retryQueueNums` partitions (RocketMQ: BR-06)."""
        partitions = max(1, groups.find(group).retry_queue_nums)
        return self._wanted(self._names.retry(group), partitions, self._retention_ms())

    def dead_letter_topic(self, group: str) -> WantedTopic:
        """Return `%DLQ%<group>`, kept forever, because its records exist nowhere else (RocketMQ: NM-08)."""
        return self._wanted(self._names.dead_letter(group), 1, -1)

    def parked_topic(self, group: str) -> WantedTopic:
        """Return the topic for due records of a paused group: one partition, so in order, without a retention.

        Workers delete delivered records that are older than twice `retention_days`: `DeliveredParked`.
        """
        return self._wanted(self._names.parked(group), 1, -1)

    def delay_topic(self, delay_ms: int) -> WantedTopic:
        """Return a delay topic, kept for at least twice its delay, so an outage of the schedulers loses nothing.

        `DELAY.0s` holds delayed messages up to the shortest level. Bulk partitions are for floods: `LanePartitions`.
        """
        longest_ms = delay_ms or min(filter(None, self._groups().table.delays_ms), default=0)
        retention = max(self._retention_ms(), 2 * longest_ms)
        partitions = self._settings.delay_partitions + self._settings.bulk_partitions
        topic = self._wanted(self._names.delay(delay_ms), partitions, retention)
        return replace(topic, may_grow=True, least_retention_ms=2 * longest_ms)

    def send_back_topic(self) -> WantedTopic:
        """Return the inbox of plain clients."""
        return self._wanted(self._names.send_back, self._settings.delay_partitions, self._retention_ms())

    def quarantine_topic(self) -> WantedTopic:
        """Return the quarantine: kept forever, for records of any delay topic plus the reason."""
        return self._wanted(self._names.quarantine, 1, -1, {"max.message.bytes": str(self._limit + _HEADER_ROOM_BYTES)})

    def dead_letter_states_topic(self) -> WantedTopic:
        """Return the compacted topic with the last state of each dead letter."""
        return self._wanted(self._names.dead_letter_states, 1, None, {"cleanup.policy": "compact"})

    def jobs_topic(self) -> WantedTopic:
        """Return the topic of jobs: compacted soon, because jobs write progress constantly; kept for a year."""
        compacted = {"cleanup.policy": "compact,delete", "segment.ms": str(_COMPACTED_WITHIN_MS)}
        return self._wanted(self._names.jobs, 1, _JOBS_KEPT_MS, compacted)

    def groups_topic(self) -> WantedTopic:
        """Return the compacted topic of group settings; reconcile reads removals as long as records of then."""
        compacted = {"cleanup.policy": "compact", "delete.retention.ms": str(self._retention_ms())}
        return self._wanted(self._names.groups, 1, None, compacted)

    def cancel_topic(self) -> WantedTopic:
        """Return the topic of withdrawals, kept as long as messages may wait plus the memory of workers."""
        return self._wanted(self._names.cancel, 1, LONGEST_DELAY_MS + CANCELS_KEPT_MS)

    def positions_topic(self) -> WantedTopic:
        """Return the topic of positions: compacted soon, because it is read whole and each transaction adds records."""
        compacted = {
            "cleanup.policy": "compact",
            "segment.bytes": str(4 * 1024 * 1024),
            "segment.ms": str(10 * 60_000),
            "delete.retention.ms": str(60_000),
        }
        return self._wanted(self._names.positions, 1, None, compacted)

    def withdrawn_topic(self) -> WantedTopic:
        """Return the topic of known withdrawals: compacted soon, because starting workers read all of it."""
        compacted = {"cleanup.policy": "compact,delete", "segment.ms": str(_COMPACTED_WITHIN_MS)}
        return self._wanted(self._names.withdrawn, 1, LONGEST_DELAY_MS + CANCELS_KEPT_MS, compacted)

    def _retention_ms(self) -> int:
        return int(self._settings.retention_days * _DAY_MS)

    @property
    def _limit(self) -> int:
        return self._settings.max_message_bytes or self.facts.message_max_bytes + _HEADER_ROOM_BYTES

    def _wanted(
        self, name: str, partitions: int, retention_ms: int | None, more: Mapping[str, str] | None = None
    ) -> WantedTopic:
        replicas = self._settings.replication_factor
        if replicas is None:
            safe = self.facts.brokers >= _SAFE_REPLICATION
            replicas = max(_SAFE_REPLICATION, self.facts.default_replication_factor) if safe else -1
        settings = {"message.timestamp.type": "LogAppendTime", "max.message.bytes": str(self._limit)}
        if retention_ms is not None:
            # A limit of bytes, which a cluster may have by default, would delete records that still wait.
            settings |= {"cleanup.policy": "delete", "retention.ms": str(retention_ms), "retention.bytes": "-1"}
        if replicas >= _SAFE_REPLICATION:
            settings["min.insync.replicas"] = str(safe_in_sync(replicas))
        return WantedTopic(name, partitions, replicas, settings | dict(more or {}))


def wanted_topics(maker: TopicMaker, groups: Groups) -> list[WantedTopic]:
    """Return every topic of the installation: lanes of all levels and policies, and topics of registered groups."""
    durations = {0, *groups.table.delays_ms}
    for config in groups.by_name.values():
        durations.update(config.policy(groups.table).distinct_delays_ms())
    return [
        maker.groups_topic(),
        maker.send_back_topic(),
        maker.quarantine_topic(),
        maker.cancel_topic(),
        maker.positions_topic(),
        maker.withdrawn_topic(),
        maker.dead_letter_states_topic(),
        maker.jobs_topic(),
        *(maker.delay_topic(delay_ms) for delay_ms in sorted(durations)),
        *(maker.retry_topic(group, groups) for group in sorted(groups.by_name)),
        *(maker.dead_letter_topic(group) for group in sorted(groups.by_name)),
        *(maker.parked_topic(group) for group in sorted(groups.by_name) if groups.is_paused(group)),
    ]


def make_parked_topics(cluster: Cluster, groups: Groups) -> None:
    """Create missing parked topics of paused groups.

    Call this before a pause: records that a worker cannot park go to the quarantine.

    Raises:
        KafkaRefused: a topic may not be created.
    """
    paused = {cluster.names.parked(group): group for group in groups.by_name if groups.is_paused(group)}
    maker = TopicMaker(cluster.admin, cluster.names, cluster.settings.topics, lambda: groups)
    for topic in sorted(paused.keys() - cluster.admin.partitions(paused).keys()):
        maker.make(maker.parked_topic(paused[topic]))


def install(cluster: Cluster, system: SystemConfig) -> TopicMaker:
    """Create missing topics and publish the settings for all groups; return the maker of further topics."""
    groups = Groups(system)
    maker = TopicMaker(cluster.admin, cluster.names, cluster.settings.topics, lambda: groups)
    for topic in wanted_topics(maker, groups):
        maker.make(topic)
    write_system(cluster, system)
    return maker
