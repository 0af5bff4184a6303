"""A scheduler worker: read ahead, wait for the earliest due record, deliver due records."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from operator import itemgetter
from typing import Final

from reconsume.bridge.kafka.admin import Partition
from reconsume.bridge.kafka.group_consumer import GroupConsumer
from reconsume.bridge.librdkafka.membership import Membership
from reconsume.bridge.process.brokers_clock import monotonic_ms
from reconsume.bridge.process.clock import Clock, now_ms
from reconsume.bridge.process.safe_logger import SafeLogger
from reconsume.bridge.scheduler.delivery.aborted_batches import BACK_OFF_MS, AbortedBatches
from reconsume.bridge.scheduler.delivery.batch_routing import BatchRouting
from reconsume.bridge.scheduler.delivery.due_batch import commits_of, size_of
from reconsume.bridge.scheduler.delivery.positions import PositionLog
from reconsume.bridge.scheduler.delivery.refusals import Refusals, wheres_of
from reconsume.bridge.scheduler.delivery.writers import BatchAborted, BatchInDoubt, BatchWriter
from reconsume.bridge.scheduler.membership.assignment import Assignment, Refused
from reconsume.bridge.scheduler.membership.earlier_owners import EarlierOwners
from reconsume.bridge.scheduler.membership.group_member import GroupMember
from reconsume.bridge.scheduler.membership.unknown_outcome import UnknownOutcome
from reconsume.bridge.scheduler.observer import WorkerObserver
from reconsume.bridge.scheduler.queues.pace import TransactionPace
from reconsume.bridge.scheduler.queues.read_ahead import DueRun, ReadAhead
from reconsume.bridge.scheduler.source import Source
from reconsume.bridge.scheduler.stalls import ReadingStopped
from reconsume.bridge.scheduler.targets.routing import Delivery, Router
from reconsume.bridge.writing.batch_size import BatchSize
from reconsume.delay_levels.errors import KafkaNotReachable
from reconsume.delay_levels.wire.names import TopicNames

logger = SafeLogger(__name__)

_IDLE_SECONDS: Final = 0.2
"""The longest wait before a stop or a rebalance is noticed."""

_OUTCOME_AND_GROUP: Final = itemgetter(5, 6)
"""Fields of a `Delivery` by index, twice as fast as by name."""


class Worker:
    """Delivers the due records of the partitions that Kafka gives it.

    Guarantees:
        1. A record leaves its queue only after its delivery and its offset are committed together.
        2. No record is delivered before its append time plus the delay of its topic, nor before its own due moment.
        3. A refused record goes to the quarantine, and delays records for other targets by at most a second.
        4. The worker never waits with an open transaction.
        5. Records of the same group and partition are delivered in the order of their append times.
    Tests: tests/models/scheduler/test_worker_model.py, tests/integration/scheduler/test_faults.py.

    Everything happens in the thread that calls `run`; other threads may call `give_up` and `saw_ids`.

    Args:
        clock: the brokers' clock, which may be set back; for moments.
        elapsed: monotonic milliseconds; for durations.
    """

    def __init__(
        self,
        consumer: GroupConsumer,
        writer: BatchWriter,
        *,
        router: Router,
        names: TopicNames,
        read_ahead: ReadAhead,
        observer: WorkerObserver,
        refused: Refused,
        max_batch_records: int,
        transaction_timeout_ms: int,
        pace: TransactionPace | None = None,
        clock: Clock = now_ms,
        elapsed: Clock = monotonic_ms,
        is_time_in_doubt: Callable[[], bool] = lambda: False,
        positions: PositionLog | None = None,
        membership: Membership | None = None,
        member: GroupMember | None = None,
        refusals: Refusals | None = None,
    ) -> None:
        self._consumer = consumer
        self._writer = writer
        self._membership = membership
        self._member = member or GroupMember(consumer, names, is_static=False)
        self._router, self._read_ahead = router, read_ahead
        self._stop = threading.Event()
        self._observer = observer
        self._size = BatchSize(max_batch_records, transaction_ms=transaction_timeout_ms)
        self._pace = pace or TransactionPace(0)
        self._clock = clock
        self._elapsed = elapsed
        self._is_time_in_doubt = is_time_in_doubt
        self._refusals = refusals if refusals is not None else Refusals(router)
        self._routing = BatchRouting(router, self._refusals, observer.aborted, clock, elapsed)
        self._aborted = AbortedBatches(router, self._refusals, self._size, clock, elapsed)
        self._given_up: str | None = None
        self._ids: Mapping[str, str] = {}
        self._unknown_outcome: UnknownOutcome | None = None
        self._nothing_before_ms = 0.0
        self._owners = EarlierOwners(consumer, positions, self._is_stopping, elapsed)
        self._assignment = Assignment(
            *(consumer, read_ahead, self._owners),
            names=names,
            refused=refused,
            due_of=router.timers.due_ms,
            is_paused=lambda group: router.groups().is_paused(group),
            clock=elapsed,
        )
        self._source = Source(consumer, read_ahead, self._assignment, max_batch_records, clock)

    def run(self, stop: threading.Event) -> None:
        """Deliver until told to stop.

        Raises:
            ReadingStopped: another thread called `give_up`, or a topic was created again.
            MembershipLost, WorkerFenced, KafkaRefused: this worker can read no more.
        """
        self._stop = stop
        self.join_group()
        while not stop.is_set():
            if self._given_up is not None:
                raise ReadingStopped(self._given_up)
            if ids := self._ids:
                self._ids = {}
                self._assignment.check_ids(ids)
            if self._membership is not None:
                self._membership.check(has_partitions=len(self._read_ahead) > 0)
            self._observer.alive()
            self.run_once(_IDLE_SECONDS)

    def run_once(self, longest_wait: float) -> int:
        """Read available records and deliver due ones; return the number of delivered records.

        This waits until a record is due or read, at most `longest_wait` seconds.
        """
        self._read(longest_wait)
        self._writer.serve()
        delivered = self._resolve_doubt()
        if self._may_deliver():
            self._refusals.step(self._elapsed())
            due = self._read_ahead.take_due(self._clock(), self._size.records, self._size.bytes)
            delivered += self._deliver(due) if due else 0
        self._observer.look(self._read_ahead)
        return delivered

    def _read(self, longest_wait: float) -> None:
        self._source.read(self._seconds_to_wait(longest_wait))
        # While deliveries wait, no partition is treated as due.
        self._source.pause_and_resume(float("-inf") if self._is_waiting else self._clock())
        self._assignment.try_again()

    def _deliver(self, due: list[DueRun]) -> int:
        """Write due records and commit their offsets; then remove them from their queues."""
        batch = self._routing.begin(due)
        if not batch.deliveries:
            return 0
        began = self._elapsed()
        try:
            self._writer.write(batch, self._consumer)
        except (BatchAborted, BatchInDoubt) as failure:
            runs, deliveries = batch.end()
            self._size.took(*size_of(runs), self._elapsed() - began, committed=False)
            self._observer.aborted(str(failure))
            if isinstance(failure, BatchAborted):
                self._aborted.learn(runs, deliveries, failure)
            else:
                self._router.forget()
                self._unknown_outcome = UnknownOutcome(runs, deliveries, commits_of(runs))
            return 0
        runs, deliveries = batch.end()
        self._size.took(*size_of(runs), self._elapsed() - began, committed=True)
        self._pace.began(began, len(deliveries))
        self._routing.committed(batch)
        self._committed(runs, deliveries)
        return len(deliveries)

    def _committed(self, runs: Sequence[DueRun], batch: Sequence[Delivery]) -> None:
        """Record the delivered records in metrics and logs, and forget them."""
        now = self._clock()
        outcomes = Counter(map(_OUTCOME_AND_GROUP, batch))
        for run in runs:
            self._observer.lateness(run.queue.topic, now, [due for due, _ in run.records])
        self._observer.done(outcomes)
        if ("cancelled", "") in outcomes:
            self._router.committed(batch)
        if any(outcome == "quarantined" for outcome, _ in outcomes):
            for one, where in zip(batch, wheres_of(runs), strict=True):
                if one.outcome == "quarantined":
                    logger.warning("quarantined %s-%d@%d: %r", *where, dict(one.headers)["QUARANTINE_REASON"])
        if self._refusals:
            self._refusals.forget(wheres_of(runs))
        for run in runs:
            run.drop()

    def _resolve_doubt(self) -> int:
        """Find out whether a batch without an answer was committed; return the number of its committed records.

        Until that is known nothing is delivered. The worker stays in the group, because leaving would interrupt all
        workers.
        """
        unknown, now = self._unknown_outcome, self._elapsed()
        if unknown is None or now < self._nothing_before_ms:
            return 0
        self._nothing_before_ms = now + BACK_OFF_MS
        counted = unknown.resolve(self._writer, self._owners, self._read_ahead)
        if counted is None:
            return 0
        self._unknown_outcome, self._nothing_before_ms = None, 0.0
        batch = [delivery for one in counted for delivery in one.batch]
        if counted:
            self._committed([one.run for one in counted], batch)
        return len(batch)

    @property
    def _is_waiting(self) -> bool:
        return self._unknown_outcome is not None or self._elapsed() < self._nothing_before_ms

    def _may_deliver(self) -> bool:
        """Return whether it may deliver: no outcome is unknown, the time is known, and no batch is being gathered.

        The time is unknown for a moment when the brokers do not tell it.
        """
        if self._is_waiting or self._gather_ms > 0:
            return False
        try:
            if self._is_time_in_doubt():
                self._writer.ask_time()
        except KafkaNotReachable as error:
            logger.warning("no deliveries until the brokers' time is known: %s", error)
            self._nothing_before_ms = self._elapsed() + BACK_OFF_MS
            return False
        return True

    @property
    def _gather_ms(self) -> float:
        """Return how long due records wait for others to share their batch; 0 while a refused record is searched."""
        return 0.0 if self._refusals or self._size.is_reduced else self._pace.wait_ms(self._elapsed())

    def _seconds_to_wait(self, longest: float) -> float:
        held = self._nothing_before_ms - self._elapsed()
        if self._unknown_outcome is not None:
            return min(longest, max(0.0, held) / 1000)
        due = self._read_ahead.next_due_ms()
        if due is None:
            return longest
        return min(longest, max(0.0, due - self._clock(), held, self._gather_ms) / 1000)

    def join_group(self) -> None:
        """Ask Kafka for partitions."""
        self._member.join(self._assigned, self._revoked)

    def _assigned(self, partitions: Sequence[Partition]) -> None:
        self._assignment.assign(partitions)
        self._observer.assigned(len(self._read_ahead), self._assignment.refused)

    def _revoked(self, partitions: Sequence[Partition]) -> None:
        gone = set(partitions)
        self._assignment.revoke(gone)
        self._refusals.revoke(gone)
        self._observer.assigned(len(self._read_ahead), self._assignment.refused)

    def _is_stopping(self) -> bool:
        return self._stop.is_set()

    def saw_ids(self, ids: Mapping[str, str]) -> None:
        """Note the present ids of topics: one that was created again is read from its beginning."""
        self._ids = ids

    def give_up(self, why: str) -> None:
        """Stop working, so that another worker can take over."""
        self._given_up = why
