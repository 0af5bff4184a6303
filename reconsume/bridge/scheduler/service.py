"""A scheduler process: put the worker together, start it afresh when it breaks, stop it in order."""

from __future__ import annotations

import logging
import socket
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Final

from confluent_kafka import Consumer

from reconsume.bridge.admin import KafkaAdmin, Partition
from reconsume.bridge.brokers_clock import BrokersClock, monotonic_ms
from reconsume.bridge.clients import make_consumer
from reconsume.bridge.groups import Groups
from reconsume.bridge.groups_follower import GroupsFollower
from reconsume.bridge.kafka import consumer_settings
from reconsume.bridge.known_offsets import KnownOffsets, asking
from reconsume.bridge.management import LogLevel, ManagementServer
from reconsume.bridge.membership import Membership, MembershipLost
from reconsume.bridge.metrics import SchedulerMetrics
from reconsume.bridge.scheduler.cancels import CancelsFollower
from reconsume.bridge.scheduler.deletions import Deletions
from reconsume.bridge.scheduler.observer import WorkerObserver
from reconsume.bridge.scheduler.read_ahead import ReadAhead
from reconsume.bridge.scheduler.routing import Router
from reconsume.bridge.scheduler.scout import Scout
from reconsume.bridge.scheduler.stalls import ReadingStopped, StallWatch
from reconsume.bridge.scheduler.targets import Targets
from reconsume.bridge.scheduler.timers import Lanes, Timers
from reconsume.bridge.scheduler.waiting import EndsSampler, PartitionHead
from reconsume.bridge.scheduler.worker import Worker
from reconsume.bridge.scheduler.writers import AtLeastOnceWriter, BatchWriter, TransactionalWriter, WriterBroken
from reconsume.bridge.settings import Settings
from reconsume.bridge.topics import TopicMaker
from reconsume.delay_levels.errors import KafkaNotReachable, ReconsumeError, TopicNotReady, WorkerFenced
from reconsume.delay_levels.levels import DelayLevels

__all__ = ["FencedLives", "SchedulerService", "starting_groups"]

logger = logging.getLogger(__name__)

_AGAIN_SECONDS: Final = 2.0
_FENCED_TOO_OFTEN: Final = 3
_LONG_LIFE_MS: Final = 60_000
"""Two workers with one identity push each other out within seconds, and both deliver something in between."""


def starting_groups(settings: Settings) -> Groups:
    """What holds before the GROUPS topic is read; an explicit setting of this process wins, with a warning."""
    table = None
    if settings.message_delay_level is not None:
        table = DelayLevels.parse(settings.message_delay_level)
        logger.warning("this process uses its own level table, whatever the GROUPS topic says: %s", table)
    return Groups(own_table=table, own_auto_create=settings.auto_create_subscription_group)


class FencedLives:
    """Counts how often a worker was pushed out soon after it had begun."""

    def __init__(self) -> None:
        self._fenced = 0

    def is_too_much(self, error: ReconsumeError, lived_ms: float) -> bool:
        """Take note of the end of a life; True if another live worker must have this one's identity.

        Args:
            error: what ended it.
            lived_ms: how long it was; after a long one being pushed out is an upgrade or a restart elsewhere.
        """
        if not isinstance(error, WorkerFenced):
            self._fenced = 0
            return False
        self._fenced = 1 if lived_ms >= _LONG_LIFE_MS else self._fenced + 1
        return self._fenced >= _FENCED_TOO_OFTEN


class SchedulerService:
    """One worker of the scheduler, as a process runs it.

    Args:
        settings: of the process.
        on_start: called with the management address when it is served.
        log_level: what `/loglevel` shows and changes; None leaves that path out.
    """

    def __init__(
        self,
        settings: Settings,
        on_start: Callable[[str], None] = lambda _address: None,
        log_level: LogLevel | None = None,
    ) -> None:
        self._settings = settings
        self._on_start = on_start
        self._log_level = log_level
        self._base = settings.client_settings()
        self._metrics = SchedulerMetrics()
        self._clock = BrokersClock()
        self._observer = WorkerObserver(settings.names, self._metrics, self._clock)
        self._admin = KafkaAdmin(self._base, "reconsume-scheduler")
        self._known = KnownOffsets(self._admin.topic_ids)
        self._group = settings.topic_prefix + "scheduler"
        self._follower = GroupsFollower(self._base, settings.names.groups, starting_groups(settings))
        self._metrics.scraped.table = lambda: str(self._follower.groups.table)
        self._cancels = CancelsFollower(self._base, settings.names.cancel, self._clock)
        self._instance = settings.scheduler.instance_id or socket.gethostname()
        self._stalls = StallWatch()
        self._deletions = Deletions()
        self._at_work: Worker | None = None

    def run(self, stop: threading.Event) -> None:
        """Work until told to stop; a broker that is away is waited for.

        Raises:
            TopicNotReady: the topics of the scheduler are missing.
            WorkerFenced: another live worker has the same instance id.
            KafkaRefused: rights are missing.
        """
        management = self._settings.management
        server = ManagementServer(
            management.host, management.port, self._metrics.registry, self._observer, self._log_level
        )
        self._on_start(server.address)
        self._follower.start()
        self._cancels.start()
        sampler_stop = threading.Event()
        sampler = EndsSampler(
            self._observer.waiting, self._admin, self._clock, self._note_commits, self._look_for_stalls
        )
        sampling = threading.Thread(target=sampler.run, args=(sampler_stop,), name="reconsume-backlog", daemon=True)
        sampling.start()
        try:
            self._run(stop)
        finally:
            sampler_stop.set()
            self._follower.close()
            self._cancels.close()
            server.close()
            sampling.join()

    def _run(self, stop: threading.Event) -> None:
        """One life after the other."""
        lives = FencedLives()
        while not stop.is_set():
            born = monotonic_ms()
            try:
                self._work(stop)
            except KafkaNotReachable as error:
                logger.warning("waiting for Kafka: %s", error)
            except (ReadingStopped, MembershipLost) as error:
                logger.error("reading has stopped, starting afresh: %s", error)  # noqa: TRY400 - it is no surprise
            except WriterBroken as broken:
                if lives.is_too_much(broken.error, monotonic_ms() - born):
                    raise broken.error from broken
                logger.warning("starting afresh: %s", broken.error)
            self._observer.not_ready()
            self._observer.alive(self._clock())
            stop.wait(_AGAIN_SECONDS if not stop.is_set() else 0)

    def _work(self, stop: threading.Event) -> None:
        """One life of a worker: until stopped, or until its producer breaks."""
        self._check_topics()
        if not self._follower.wait_until_loaded(stop):
            return
        writer = self._writer()
        try:
            writer.start()
            membership = Membership(self._consumer_settings())
            consumer = make_consumer(membership.settings)
            scout = Scout(lambda: make_consumer(self._scout_settings()))
            try:
                self._at_work = self._worker(consumer, writer, scout, membership)
                self._at_work.run(stop)
            finally:
                self._at_work = None
                scout.close()
                consumer.close()
        finally:
            writer.close()

    def _worker(self, consumer: Consumer, writer: BatchWriter, scout: Scout, membership: Membership) -> Worker:
        settings, names = self._settings, self._settings.names
        maker = TopicMaker(self._admin, names, settings.topics)
        targets = Targets(names, settings.allowed_real_topics, self._admin, maker, self._groups, self._deletions)
        timers = Timers(names, Lanes(names, self._admin, self._groups), self._cancels, self._clock)
        scheduler = settings.scheduler
        return Worker(
            consumer,
            writer,
            router=Router(names, targets, self._groups, timers),
            names=names,
            read_ahead=ReadAhead(scheduler.read_ahead_records, scheduler.read_ahead_mib * 1024 * 1024),
            observer=self._observer,
            refused=self._refused,
            max_batch_records=scheduler.max_batch_records,
            clock=self._clock,
            saw=self._clock.saw,
            scout=scout,
            known=self._known,
            membership=membership,
        )

    def _note_commits(self) -> None:
        """What other workers commit too: any of their partitions may come here."""
        is_scheduled, topics = self._settings.names.is_scheduled, self._admin.topics()
        scheduled = {topic: count for topic, count in topics.items() if is_scheduled(topic)}
        for topic in scheduled:
            self._deletions.saw(topic)
        lanes = [(topic, one) for topic, count in scheduled.items() for one in range(count)]
        worker = self._at_work
        if self._known.look(asking(self._admin, self._group), lanes) and worker is not None:
            worker.look_at_offsets()

    def _look_for_stalls(self, heads: Sequence[PartitionHead], ends: Mapping[Partition, int]) -> None:
        worker, stalled = self._at_work, self._stalls.look(monotonic_ms(), heads, ends)
        if stalled and worker is not None:
            worker.give_up(", ".join(stalled))

    def _groups(self) -> Groups:
        return self._follower.groups

    def _writer(self) -> BatchWriter:
        scheduler = self._settings.scheduler
        identity = f"{self._settings.topic_prefix}scheduler-{self._instance}"
        if scheduler.delivery == "at_least_once":
            return AtLeastOnceWriter(self._base, identity, self._clock)
        asked = self._settings.names.quarantine
        return TransactionalWriter(self._base, identity, scheduler.transaction_timeout_ms, self._clock, asked)

    def _consumer_settings(self) -> dict[str, object]:
        """Small prefetch, because what is paused is fetched again; short waits, because being late is a defect."""
        return consumer_settings(self._base, f"reconsume-scheduler-{self._instance}") | {
            "group.id": self._group,
            "auto.offset.reset": "earliest",
            "partition.assignment.strategy": "cooperative-sticky",
            "session.timeout.ms": 10_000,
            "heartbeat.interval.ms": 1_000,
            # So long at most a rebalance waits for a member that is no more: a coordinator that was elected twice
            # within a moment does not see sessions expire. The worker polls more often.
            "max.poll.interval.ms": 60_000,
            "fetch.wait.max.ms": 50,
            "fetch.queue.backoff.ms": 10,
            "queued.min.messages": 10_000,
            "queued.max.messages.kbytes": 32_768,
            # The metrics tell a partition that was read to its end from one with more to come.
            "enable.partition.eof": True,
        }

    def _scout_settings(self) -> dict[str, object]:
        """No member of the group: it is given offsets and commits none."""
        return consumer_settings(self._base, f"reconsume-scheduler-{self._instance}-scout") | {
            "group.id": self._group,
            "auto.offset.reset": "error",
            "fetch.wait.max.ms": 50,
            "fetch.queue.backoff.ms": 10,
            "queued.max.messages.kbytes": 32_768,
        }

    def _check_topics(self) -> None:
        names = self._settings.names
        needed = (names.send_back, names.delay(0), names.quarantine, names.cancel)
        existing = self._admin.partitions(needed)
        missing = [topic for topic in needed if topic not in existing]
        if missing:
            raise TopicNotReady(f"missing topics: {', '.join(missing)}; make them: reconsume topics apply")

    def _refused(self, topic: str) -> str | None:
        """A delay topic that keeps the producer's clock would deliver early, late, or out of order."""
        try:
            kind = self._admin.settings([topic])[topic].get("message.timestamp.type")
        except ReconsumeError as error:
            # Without the right to look, the topic is trusted; the records' own timestamps tell the same.
            logger.warning("cannot check the settings of %s: %s", topic, error)
            return None
        if kind == "LogAppendTime":
            return None
        return (
            f"its message.timestamp.type is {kind}, so the clocks of its producers would decide when records are due; "
            f"mend it: kafka-configs.sh --alter --entity-type topics --entity-name {topic} "
            "--add-config message.timestamp.type=LogAppendTime, then restart the scheduler workers"
        )
