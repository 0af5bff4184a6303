"""A scheduler worker on a Kafka in memory: the real one, stepped instead of run."""

from __future__ import annotations

from collections.abc import Callable

from reconsume.bridge.admin import KafkaAdmin
from reconsume.bridge.clients import clock_of, make_consumer
from reconsume.bridge.groups import Groups
from reconsume.bridge.kafka import consumer_settings
from reconsume.bridge.known_offsets import KnownOffsets
from reconsume.bridge.metrics import SchedulerMetrics
from reconsume.bridge.scheduler.cancels import CancelledKeys
from reconsume.bridge.scheduler.observer import WorkerObserver
from reconsume.bridge.scheduler.read_ahead import ReadAhead
from reconsume.bridge.scheduler.routing import Router
from reconsume.bridge.scheduler.targets import Targets
from reconsume.bridge.scheduler.timers import Lanes, Timers
from reconsume.bridge.scheduler.worker import Worker
from reconsume.bridge.scheduler.writers import TransactionalWriter
from reconsume.bridge.settings import Settings
from reconsume.bridge.topics import TopicMaker
from reconsume.testing.cluster import Cluster, Unwritten
from reconsume.testing.producer import as_message

__all__ = ["SteppedScheduler"]


class SteppedScheduler:
    """One worker over all partitions.

    Args:
        settings: of the installation; its address leads to the cluster.
        cluster: the Kafka in memory.
        groups: the groups as known now.
    """

    def __init__(self, settings: Settings, cluster: Cluster, groups: Callable[[], Groups]) -> None:
        names, base, scheduler = settings.names, settings.client_settings(), settings.scheduler
        clock = clock_of(base)
        admin = KafkaAdmin(base)
        targets = Targets(names, settings.allowed_real_topics, admin, TopicMaker(admin, names, settings.topics), groups)
        timers = Timers(names, Lanes(names, admin, groups), _Cancels(cluster, names.cancel), clock)
        self._read_ahead = ReadAhead(scheduler.read_ahead_records, scheduler.read_ahead_mib * 1024 * 1024)
        self._writer = TransactionalWriter(base, names.prefix + "scheduler", scheduler.transaction_timeout_ms)
        self._writer.start()
        self.group = names.prefix + "scheduler"
        self._consumer = make_consumer(
            consumer_settings(base, "reconsume-scheduler")
            | {"group.id": self.group, "partition.assignment.strategy": "cooperative-sticky"}
        )
        self._worker = Worker(
            self._consumer,
            self._writer,
            router=Router(names, targets, groups, timers),
            names=names,
            read_ahead=self._read_ahead,
            observer=WorkerObserver(names, SchedulerMetrics(), clock),
            refused=lambda _topic: None,
            max_batch_records=scheduler.max_batch_records,
            clock=clock,
            known=KnownOffsets(admin.topic_ids, steady_ms=0),
        )
        self._worker.join_group()

    def step(self) -> None:
        """Read what is there, deliver what is due."""
        self._worker.run_once(0)

    def next_due_ms(self) -> float | None:
        """When something is due."""
        return self._read_ahead.next_due_ms()

    def close(self) -> None:
        """Let go."""
        self._consumer.close()
        self._writer.close()


class _Cancels:
    """The CANCEL topic, read to its end whenever somebody asks."""

    def __init__(self, cluster: Cluster, topic: str) -> None:
        self._cluster = cluster
        self._topic = topic
        self._keys = CancelledKeys()
        self._read = 0

    def __contains__(self, uniq_key: str) -> bool:
        self._catch_up()
        return uniq_key in self._keys

    def require(self, due_ms: float) -> None:
        """Everything is known always."""

    def _catch_up(self) -> None:
        records = self._cluster.records(self._topic)
        for (topic, partition), one in records[self._read :]:
            record = Unwritten(topic, partition, one.key, one.value, one.headers)
            self._keys.learn(as_message(record, partition, one.offset, one.timestamp), self._cluster.clock())
        self._read = len(records)
