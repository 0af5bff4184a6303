"""A scheduler worker on the in-memory Kafka: the real worker, stepped by the test."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import suppress

from reconsume.bridge.groups.groups import Groups
from reconsume.bridge.kafka.client_settings import consumer_settings
from reconsume.bridge.kafka.cluster import Cluster
from reconsume.bridge.kafka.group_consumer import GroupConsumer
from reconsume.bridge.metrics.registry import SchedulerMetrics
from reconsume.bridge.scheduler.delivery.writers import TransactionalWriter
from reconsume.bridge.scheduler.observer import WorkerObserver
from reconsume.bridge.scheduler.queues.read_ahead import ReadAhead
from reconsume.bridge.scheduler.targets.look_ups import LookUps
from reconsume.bridge.scheduler.targets.routing import Router
from reconsume.bridge.scheduler.targets.targets import Targets
from reconsume.bridge.scheduler.targets.timers import DelayTopics, Timers
from reconsume.bridge.scheduler.worker import Worker
from reconsume.bridge.topics.topics import TopicMaker
from reconsume.delay_levels.errors import MalformedProperty
from reconsume.delay_levels.wire.withdrawals import Withdrawals, requested_withdrawal
from reconsume.testing.cluster import InMemoryCluster


class SteppedScheduler:
    """One worker over all partitions.

    Args:
        handle: the installation; its address is that of the cluster.
        cluster: the Kafka in memory.
        groups: the groups as known now.
    """

    def __init__(self, handle: Cluster, cluster: InMemoryCluster, groups: Callable[[], Groups]) -> None:
        settings, names, admin, clock = handle.settings, handle.names, handle.admin, handle.clock
        scheduler = settings.scheduler
        maker = TopicMaker(admin, names, settings.topics, groups)
        targets = Targets(
            *(names, settings.allowed_real_topics, admin, maker, groups),
            look_ups=LookUps(refused_ms=0),  # topics that the test creates are visible at once
        )
        timers = Timers(names, DelayTopics(names, admin, groups), _Cancels(cluster, names.cancel), clock)
        self._read_ahead = ReadAhead(scheduler.read_ahead_records, scheduler.read_ahead_mib * 1024 * 1024, clock)
        self._writer = TransactionalWriter(handle.base, names.scheduler_group, scheduler.transaction_timeout_ms)
        self._writer.start()
        self.group = names.scheduler_group
        self._consumer = GroupConsumer(
            consumer_settings(handle.base, "reconsume-scheduler")
            | {"group.id": self.group, "partition.assignment.strategy": "cooperative-sticky"}
        )
        self._worker = Worker(
            self._consumer,
            self._writer,
            router=Router(names, targets, groups, timers),
            names=names,
            read_ahead=self._read_ahead,
            observer=WorkerObserver(names, SchedulerMetrics(), clock, elapsed=clock),
            refused=lambda _topics: {},
            max_batch_records=scheduler.max_batch_records,
            transaction_timeout_ms=scheduler.transaction_timeout_ms,
            clock=clock,
            elapsed=clock,
        )
        self._worker.join_group()

    def step(self) -> None:
        """Read new records and deliver due ones."""
        self._worker.run_once(0)

    def next_due_ms(self) -> float | None:
        """Return when the next record is due."""
        return self._read_ahead.next_due_ms()

    def close(self) -> None:
        """Release the worker's resources."""
        self._consumer.close()
        self._writer.close()


class _Cancels:
    """The CANCEL topic, read to its end on each use."""

    def __init__(self, cluster: InMemoryCluster, topic: str) -> None:
        self._cluster = cluster
        self._topic = topic
        self._withdrawals = Withdrawals()
        self._read = 0

    def __contains__(self, withdrawal: bytes) -> bool:
        self._catch_up()
        return withdrawal in self._withdrawals

    def require(self, due_ms: float) -> None:
        """Do nothing: all withdrawals are always known."""

    def met(self, withdrawals: Iterable[bytes]) -> None:
        """Do nothing: a test is too short to forget withdrawals."""

    def _catch_up(self) -> None:
        records = self._cluster.records(self._topic)
        for _, one in records[self._read :]:
            with suppress(MalformedProperty):
                self._withdrawals.add(*requested_withdrawal(one.headers, one.timestamp[1]), self._cluster.clock())
        self._read = len(records)
