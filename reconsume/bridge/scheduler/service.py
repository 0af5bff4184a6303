"""A scheduler process: builds the worker, restarts it when it breaks, stops it in order."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, closing
from typing import Final

from reconsume.bridge.groups.groups import Groups
from reconsume.bridge.groups.groups_follower import GroupsFollower
from reconsume.bridge.http.management import LogLevel, ManagementServer
from reconsume.bridge.kafka.admin import KafkaAdmin, Partition
from reconsume.bridge.kafka.client_settings import compresses, consumer_settings, transactional_settings
from reconsume.bridge.kafka.group_consumer import GroupConsumer
from reconsume.bridge.librdkafka.membership import Membership, MembershipLost
from reconsume.bridge.metrics.registry import SchedulerMetrics
from reconsume.bridge.process.brokers_clock import BrokersClock, monotonic_ms
from reconsume.bridge.process.identity import stable_identity
from reconsume.bridge.process.ports import SCHEDULER_MANAGEMENT
from reconsume.bridge.process.safe_logger import SafeLogger
from reconsume.bridge.process.settings import Settings
from reconsume.bridge.scheduler.deleted_unread import DeletedUnread
from reconsume.bridge.scheduler.delivery.at_least_once_writer import AtLeastOnceWriter
from reconsume.bridge.scheduler.delivery.delivered_parked import DeliveredParked
from reconsume.bridge.scheduler.delivery.orphaned_transactions import OrphanedTransactions, end_transactions
from reconsume.bridge.scheduler.delivery.positions import PositionLog
from reconsume.bridge.scheduler.delivery.refusals import Refusals
from reconsume.bridge.scheduler.delivery.trials import OF_TRIALS
from reconsume.bridge.scheduler.delivery.writers import BatchWriter, TransactionalWriter, WriterBroken
from reconsume.bridge.scheduler.membership.group_member import GroupMember
from reconsume.bridge.scheduler.observer import WorkerObserver
from reconsume.bridge.scheduler.queues.backlog import EndsSampler, PartitionHead
from reconsume.bridge.scheduler.queues.pace import TransactionPace
from reconsume.bridge.scheduler.queues.read_ahead import ReadAhead
from reconsume.bridge.scheduler.stalls import ReadingStopped, StallWatch
from reconsume.bridge.scheduler.targets.allowed_topics import publish_allowed_topics
from reconsume.bridge.scheduler.targets.deletions import DeletedTopics
from reconsume.bridge.scheduler.targets.routing import Router
from reconsume.bridge.scheduler.targets.targets import ListedTopics, Targets
from reconsume.bridge.scheduler.targets.timers import DelayTopics, Timers
from reconsume.bridge.scheduler.topic_checks import TopicChecks
from reconsume.bridge.scheduler.withdrawals.cancels import CancelsFollower
from reconsume.bridge.scheduler.worker import Worker
from reconsume.bridge.topics.topics import TopicMaker
from reconsume.delay_levels.errors import KafkaNotReachable, ReconsumeError, WorkerFenced
from reconsume.delay_levels.rules.levels import DelayLevels

logger = SafeLogger(__name__)

_MEMBER: Final = "reconsume-scheduler-"
"""Prefix of a worker's instance id in its client id and `group.instance.id`."""
_AGAIN_SECONDS: Final = 2.0
_GROUPS_SECONDS: Final = 30.0
"""A worker that waits for GROUPS logs that and reports itself alive this often, before liveness would end it."""
_DAY_MS: Final = 86_400_000
_LOOK_UP_SECONDS: Final = 2.0
"""Time limit of the worker's own requests, during which it delivers nothing."""
_FENCED_TOO_OFTEN: Final = 3
_LONG_LIFE_MS: Final = 60_000
"""Two workers with one identity fence each other within seconds, and both deliver something in between."""


def starting_groups(settings: Settings) -> Groups:
    """Return the groups before GROUPS is read; an explicit setting of this process overrides, with a warning."""
    table = None
    if settings.message_delay_level is not None:
        table = DelayLevels.parse(settings.message_delay_level)
        logger.warning("this process uses its own level table instead of the one in GROUPS: %s", table)
    return Groups(own_table=table, own_auto_create=settings.auto_create_subscription_group)


class FencedLives:
    """Counts how often a worker was fenced soon after its start."""

    def __init__(self) -> None:
        self._fenced = 0

    def is_too_much(self, error: ReconsumeError, lived_ms: float, *, was_shut_out: bool = False) -> bool:
        """Note the end of a worker; return True if another live worker must have its identity.

        Args:
            error: the error that ended it.
            lived_ms: how long it ran; after a long run, fencing means an upgrade or a restart elsewhere.
            was_shut_out: whether the group removed the worker, as after a pause; others then end its transactions.
        """
        if was_shut_out:
            return False
        if not isinstance(error, WorkerFenced):
            self._fenced = 0
            return False
        self._fenced = 1 if lived_ms >= _LONG_LIFE_MS else self._fenced + 1
        return self._fenced >= _FENCED_TOO_OFTEN


class SchedulerService:
    """A worker of the scheduler as a process.

    Args:
        settings: the settings of the process.
        on_start: called with the management address as soon as it answers.
        log_level: serves `/loglevel`; None omits that path.
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
        self._observer = WorkerObserver(settings.names, self._metrics, self._clock, self._scheduled_partitions)
        self._admin = KafkaAdmin(self._base, "reconsume-scheduler")
        self._look_up_admin = KafkaAdmin(self._base, "reconsume-scheduler", patience=_LOOK_UP_SECONDS)
        self._group = settings.names.scheduler_group
        self._follower = GroupsFollower(self._base, settings.names.groups, starting_groups(settings))
        self._metrics.scraped.table = lambda: str(self._follower.groups.table)
        self._cancels = CancelsFollower(self._base, settings.names, self._clock)
        self._metrics.scraped.withdrawals = lambda: len(self._cancels)
        own = settings.scheduler.instance_id
        self._identity = None if own else stable_identity("scheduler", f"{settings.bootstrap_servers} {self._group}")
        self._instance = own or (self._identity.name if self._identity else "")
        self._orphans = OrphanedTransactions(self._other_workers, self._end_transactions)
        self._was_shut_out = False
        self._stalls = StallWatch()
        self._deleted_unread = DeletedUnread()
        self._deletions = DeletedTopics()
        self._listed = ListedTopics()
        self._delivered_parked = DeliveredParked(self._admin, settings.names, self._retention_ms, self._clock)
        self._checks = TopicChecks(settings, self._admin, self._look_up_admin)
        self._at_work: Worker | None = None

    def run(self, stop: threading.Event) -> None:
        """Work until told to stop; wait for an unreachable broker.

        Raises:
            TopicNotReady: the topics of the scheduler are missing.
            WorkerFenced: another live worker has the same instance id.
            KafkaRefused: rights are missing, or the brokers refuse the session timeout.
        """
        self._admin.stop = stop
        management = self._settings.management
        server = ManagementServer(
            *(management.host, management.port, self._metrics.registry, self._observer, self._log_level),
            default_port=SCHEDULER_MANAGEMENT,
        )
        with ExitStack() as parts:
            if self._identity is not None:
                parts.callback(self._identity.release)
            parts.callback(server.close)
            self._on_start(server.address)
            self._start_threads(stop, parts)
            self._run(stop)

    def _start_threads(self, stop: threading.Event, parts: ExitStack) -> None:
        """Start all background threads; each is ended, even if another one fails to end."""
        for one in (self._orphans, self._cancels, self._follower):
            parts.callback(one.close)
        self._follower.start()
        sampler_stop = threading.Event()
        sampler = EndsSampler(
            self._observer.waiting, self._admin, self._clock, self._see_topics, self._look_at_partitions
        )
        sampling = threading.Thread(target=sampler.run, args=(sampler_stop,), name="reconsume-backlog", daemon=True)
        sampling.start()
        parts.callback(sampling.join)
        parts.callback(sampler_stop.set)
        publishing = (self._settings, self._follower, stop)
        threading.Thread(target=publish_allowed_topics, args=publishing, name="reconsume-publish", daemon=True).start()
        if self._settings.scheduler.delivery == "transactional":
            self._orphans.start()

    def _run(self, stop: threading.Event) -> None:
        """Run one worker after the other."""
        lives = FencedLives()
        while not stop.is_set():
            born = monotonic_ms()
            try:
                self._work(stop)
            except KafkaNotReachable as error:
                if not stop.is_set():
                    logger.warning("waiting for Kafka: %s", error)
            except (ReadingStopped, MembershipLost) as error:
                logger.error("reading stopped, restarting the consumer: %s", error)  # noqa: TRY400 - it is no surprise
            except (WriterBroken, WorkerFenced) as ended:
                why = ended.error if isinstance(ended, WriterBroken) else ended
                # The group reports a second worker with this instance id.
                self._was_shut_out &= isinstance(ended, WriterBroken)
                if lives.is_too_much(why, monotonic_ms() - born, was_shut_out=self._was_shut_out):
                    raise why from ended
                logger.warning("restarting the consumer: %s", why)
            self._observer.not_ready()
            self._observer.alive()
            stop.wait(0 if stop.is_set() or self._was_shut_out else _AGAIN_SECONDS)

    def _work(self, stop: threading.Event) -> None:
        """Run one worker, until it is stopped or its producer breaks."""
        self._was_shut_out = False
        self._checks.check()
        if not self._follower.wait_until_loaded(stop, _GROUPS_SECONDS):
            if stop.is_set():
                return
            topic, seconds = self._settings.names.groups, f"{_GROUPS_SECONDS:g}"
            raise KafkaNotReachable(f"topic {topic} was not read within {seconds} s; check that it has a leader")
        positions = PositionLog(self._base, self._settings.names.positions, self._transactional_id(self._instance))
        with closing(self._writer(positions)) as writer:
            writer.start()
            # Not before the brokers' time is known: by a clock that is ahead, withdrawals would be over.
            self._cancels.start()
            # Missing rights end the process here, not at the first partition.
            positions.uncommitted()
            membership = Membership(self._consumer_settings())
            consumer = GroupConsumer(membership.settings)
            is_static = self._settings.scheduler.static_membership
            member = GroupMember(consumer, self._settings.names, is_static=is_static, noticed=self._orphans.noticed)
            try:
                self._at_work = self._worker(consumer, writer, membership, member, positions)
                self._at_work.run(stop)
            except WorkerFenced as error:
                # After a session without an answer, brokers treat the worker as a second one: see `GroupMember`.
                if member.was_shut_out:
                    raise KafkaNotReachable("no answer from the group's coordinator for a session") from error
                raise
            finally:
                self._at_work = None
                try:
                    with closing(consumer):
                        if stop.is_set():
                            consumer.leave()
                finally:
                    self._was_shut_out = member.was_shut_out

    def _worker(
        self,
        consumer: GroupConsumer,
        writer: BatchWriter,
        membership: Membership,
        member: GroupMember,
        positions: PositionLog,
    ) -> Worker:
        settings, names = self._settings, self._settings.names
        admin = self._look_up_admin
        maker = TopicMaker(admin, names, settings.topics, self._groups)
        targets = Targets(
            *(names, settings.allowed_real_topics, admin, maker, self._groups, self._deletions), listed=self._listed
        )
        timers = Timers(names, DelayTopics(names, admin, self._groups, self._listed), self._cancels, self._clock)
        scheduler, router = settings.scheduler, Router(names, targets, self._groups, timers)
        trials = writer if isinstance(writer, TransactionalWriter) else None
        refusals = Refusals(router, trials, admin.unwritable, admin.known_settings, compresses=compresses(self._base))
        return Worker(
            consumer,
            writer,
            router=router,
            refusals=refusals,
            names=names,
            read_ahead=ReadAhead(
                scheduler.read_ahead_records, scheduler.read_ahead_mib * 1024 * 1024, self._clock, self._clock.saw
            ),
            observer=self._observer,
            refused=self._checks.refused,
            max_batch_records=scheduler.max_batch_records,
            transaction_timeout_ms=scheduler.transaction_timeout_ms,
            pace=TransactionPace(scheduler.gather_ms),
            clock=self._clock,
            is_time_in_doubt=lambda: self._clock.is_in_doubt,
            positions=positions,
            membership=membership,
            member=member,
        )

    def _see_topics(self) -> None:
        names, topics, worker = self._settings.names, self._admin.topics(), self._at_work
        self._listed.topics = topics
        for topic in filter(names.is_ours, topics):
            self._deletions.saw(topic)
        if names.positions not in topics and worker is not None and not self._admin.partitions([names.positions]):
            # No transaction can be committed without it; the next worker creates it. A starting broker may list none.
            worker.give_up(f"topic {names.positions} is gone")

    def _scheduled_partitions(self) -> int:
        names, topics = self._settings.names, self._listed.topics
        return sum(count for topic, count in topics.items() if names.is_scheduled(topic) or names.is_parked(topic))

    def _look_at_partitions(self, heads: Sequence[PartitionHead], ends: Mapping[Partition, int]) -> None:
        worker, stalled = self._at_work, self._stalls.look(monotonic_ms(), heads, ends)
        if stalled and worker is not None:
            worker.give_up(", ".join(stalled))
        self._delivered_parked.delete(head.where for head in heads)
        if worker is not None:
            worker.saw_ids(self._admin.topic_ids({head.where[0] for head in heads}))
        # Not the parked topics: workers delete what they have delivered.
        watched = [head for head in heads if self._settings.names.is_scheduled(head.where[0])]
        firsts = self._admin.end_offsets([head.where for head in watched], earliest=True)
        for level, line in self._deleted_unread.look(watched, firsts, ends):
            logger.log(level, "%s", line)

    def _retention_ms(self) -> float:
        topics = self._groups().system.topic_settings or self._settings.topics
        return topics.retention_days * _DAY_MS

    def _groups(self) -> Groups:
        return self._follower.groups

    def _writer(self, positions: PositionLog) -> BatchWriter:
        scheduler, identity = self._settings.scheduler, self._transactional_id(self._instance)
        if scheduler.delivery == "at_least_once":
            return AtLeastOnceWriter(self._base, identity, self._clock, positions)
        asked, timeout_ms = self._settings.names.quarantine, scheduler.transaction_timeout_ms
        return TransactionalWriter(self._base, identity, timeout_ms, self._clock, asked, positions)

    def _transactional_id(self, instance: str) -> str:
        return f"{self._group}-{instance}"

    def _other_workers(self) -> set[str]:
        """Return the instance ids of the other members of the group."""
        names = self._admin.member_names(self._group)
        return {name.removeprefix(_MEMBER) for name in names if name.startswith(_MEMBER)} - {self._instance}

    def _end_transactions(self, instance: str) -> None:
        timeout_ms = self._settings.scheduler.transaction_timeout_ms
        for of_kind in ("", OF_TRIALS):
            name = self._transactional_id(instance) + of_kind
            end_transactions(transactional_settings(self._base, name, timeout_ms))

    def _consumer_settings(self) -> dict[str, object]:
        """Return settings with a small prefetch, which a pause discards, and short waits, because lateness matters."""
        scheduler, name = self._settings.scheduler, _MEMBER + self._instance
        return consumer_settings(self._base, name) | {
            "group.id": self._group,
            **({"group.instance.id": name} if scheduler.static_membership else {}),
            "auto.offset.reset": "earliest",
            "partition.assignment.strategy": "cooperative-sticky",
            "session.timeout.ms": scheduler.session_timeout_ms,
            "heartbeat.interval.ms": min(1_000, scheduler.session_timeout_ms // 3),
            # The longest wait of a rebalance for a dead member: a coordinator that was elected twice within a moment
            # does not see sessions expire. The worker polls more often.
            "max.poll.interval.ms": scheduler.max_poll_interval_ms,
            "fetch.wait.max.ms": 50,
            "fetch.queue.backoff.ms": 10,
            "queued.min.messages": 10_000,
            "queued.max.messages.kbytes": 32_768,
            # Metrics distinguish a partition that was read to its end from one with more records.
            "enable.partition.eof": True,
        }
