"""A scheduler worker: read ahead, wait for the earliest due record, deliver due records."""

from __future__ import annotations

import logging
import threading
from collections import Counter
from collections.abc import Callable, Sequence
from operator import itemgetter
from typing import Final

from reconsume.bridge.kafka.admin import Commit, Partition
from reconsume.bridge.kafka.group_consumer import GroupConsumer
from reconsume.bridge.librdkafka.membership import Membership
from reconsume.bridge.process.clock import Clock, now_ms
from reconsume.bridge.scheduler.delivery.due_batch import DueBatch, first_part
from reconsume.bridge.scheduler.delivery.refusals import Refusals, wheres_of
from reconsume.bridge.scheduler.delivery.writers import BatchAborted, BatchInDoubt, BatchWriter, WriterBroken
from reconsume.bridge.scheduler.membership.assignment import Assignment, Refused
from reconsume.bridge.scheduler.membership.earlier_owners import EarlierOwners, PositionReader
from reconsume.bridge.scheduler.membership.group_member import GroupMember
from reconsume.bridge.scheduler.membership.unknown_outcome import UnknownOutcome
from reconsume.bridge.scheduler.observer import WorkerObserver
from reconsume.bridge.scheduler.queues.batch_size import BatchSize
from reconsume.bridge.scheduler.queues.pace import TransactionPace
from reconsume.bridge.scheduler.queues.read_ahead import DueRun, ReadAhead
from reconsume.bridge.scheduler.source import Source
from reconsume.bridge.scheduler.stalls import ReadingStopped
from reconsume.bridge.scheduler.targets.look_ups import LookUpsSpent
from reconsume.bridge.scheduler.targets.routing import Delivery, Router
from reconsume.bridge.scheduler.withdrawals.cancels import CancelsNotRead
from reconsume.delay_levels.errors import KafkaNotReachable, ReconsumeError, TopicNotReady
from reconsume.delay_levels.wire.names import TopicNames

logger = logging.getLogger(__name__)

_IDLE_SECONDS: Final = 0.2
"""The longest delay before a stop or a rebalance is noticed."""
_BACK_OFF_MS: Final = 500
_BLOCKED_MS: Final = 10_000
_LOOK_AGAIN_MS: Final = 50
_WHOLE_BATCHES: Final = 50
"""After a batch was cut short, this many batches are decided as a whole: similar records may follow."""

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
    Tests: tests/unit/bridge/scheduler/test_worker_model.py, tests/integration/test_scheduler_faults.py.

    Everything happens in the thread that calls `run`; other threads may call `give_up`.
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
        pace: TransactionPace | None = None,
        clock: Clock = now_ms,
        is_time_in_doubt: Callable[[], bool] = lambda: False,
        positions: PositionReader | None = None,
        membership: Membership | None = None,
        member: GroupMember | None = None,
        refusals: Refusals | None = None,
    ) -> None:
        self._consumer = consumer
        self._writer = writer
        self._membership = membership
        self._member = member or GroupMember(consumer, names, is_static=False)
        self._router = router
        self._names = names
        self._read_ahead = read_ahead
        self._stop = threading.Event()
        self._observer = observer
        self._size = BatchSize(max_batch_records)
        self._pace = pace or TransactionPace(0)
        self._clock = clock
        self._is_time_in_doubt = is_time_in_doubt
        self._refusals = refusals if refusals is not None else Refusals(router)
        self._given_up: str | None = None
        self._unknown_outcome: UnknownOutcome | None = None
        self._whole_batches = 0
        self._look_at_ms = 0.0
        self._owners = EarlierOwners(consumer, positions, self._is_stopping, clock)
        self._assignment = Assignment(
            consumer,
            read_ahead,
            self._owners,
            names=names,
            refused=refused,
            due_of=router.timers.due_ms,
            is_paused=lambda group: router.groups().is_paused(group),
            clock=clock,
        )
        self._source = Source(consumer, read_ahead, self._assignment, max_batch_records)

    def run(self, stop: threading.Event) -> None:
        """Deliver until told to stop.

        Raises:
            ReadingStopped: another thread called `give_up`.
            MembershipLost, WorkerFenced, KafkaRefused: this worker can read no more.
        """
        self._stop = stop
        self.join_group()
        while not stop.is_set():
            if self._given_up is not None:
                raise ReadingStopped(self._given_up)
            if self._membership is not None:
                self._membership.check(has_partitions=len(self._read_ahead) > 0)
            self._observer.alive(self._clock())
            self.run_once(_IDLE_SECONDS)

    def _is_stopping(self) -> bool:
        return self._stop.is_set()

    def give_up(self, why: str) -> None:
        """End this worker, so that a new one replaces it."""
        self._given_up = why

    def join_group(self) -> None:
        """Ask Kafka for partitions."""
        self._member.join(self._assigned, self._revoked)

    def run_once(self, longest_wait: float) -> int:
        """Read available records and deliver due ones; return the number of delivered records.

        This waits until a record is due or read, at most `longest_wait` seconds.
        """
        self._source.read(self._seconds_to_wait(longest_wait))
        # During the wait nothing leaves, however long it has been due.
        self._source.pause_and_resume(float("-inf") if self._is_waiting else self._clock())
        self._assignment.try_again()
        delivered = 0 if self._unknown_outcome is None else self._recover(self._unknown_outcome)
        if self._gather_ms == 0 and self._may_deliver():
            delivered += self._deliver_due()
        self._observer.look(self._read_ahead)
        return delivered

    def _may_deliver(self) -> bool:
        """Return whether neither a batch nor the time is in doubt; without an answer, deliveries pause for a moment."""
        if self._is_waiting:
            return False
        try:
            if self._is_time_in_doubt():
                self._writer.ask_time()
        except KafkaNotReachable as error:
            logger.warning("no deliveries until the brokers' time is known: %s", error)
            self._look_at_ms = self._clock() + _BACK_OFF_MS
            return False
        return True

    @property
    def _is_waiting(self) -> bool:
        return self._unknown_outcome is not None or self._clock() < self._look_at_ms

    def _deliver_due(self) -> int:
        if self._refusals:
            self._refusals.step(self._clock())
        runs = self._read_ahead.take_due(self._clock(), self._size.records, self._size.bytes)
        return self._deliver(runs) if runs else 0

    def _seconds_to_wait(self, longest: float) -> float:
        due, now = self._read_ahead.next_due_ms() if self._unknown_outcome is None else self._look_at_ms, self._clock()
        if due is None:
            return longest
        return min(longest, max(0.0, due - now, self._look_at_ms - now, self._gather_ms) / 1000)

    @property
    def _gather_ms(self) -> float:
        """Return how long due records wait for others; 0 during the search for a refused record."""
        return 0.0 if self._refusals or self._size.is_reduced else self._pace.wait_ms(self._clock())

    def _deliver(self, due: list[DueRun]) -> int:
        routed = self._route_first(due)
        if not routed.deliveries:
            return 0
        began = self._clock()
        try:
            self._writer.write(routed.deliveries, lambda: _offsets(routed.runs), self._consumer, routed.parts())
        except BatchAborted as aborted:
            runs, batch = routed.end()
            self._size.took(runs, self._clock() - began, committed=False)
            self._learn(runs, batch, aborted)
            return 0
        except BatchInDoubt as error:
            runs, batch = routed.end()
            self._size.took(runs, self._clock() - began, committed=False)
            self._observer.aborted(str(error))
            self._router.forget()
            self._unknown_outcome = UnknownOutcome(runs, batch, _offsets(runs))
            return 0
        runs, batch = routed.end()
        self._size.took(runs, self._clock() - began, committed=True)
        self._pace.began(began, len(batch))
        self._whole_batches = _WHOLE_BATCHES if routed.is_cut else max(0, self._whole_batches - 1)
        self._done(runs, batch)
        return len(batch)

    def _recover(self, unknown: UnknownOutcome) -> int:
        """Look up whether a batch without an answer counts; return the number of committed records.

        Before that nothing is delivered. The worker stays in its group meanwhile, because leaving would hold up all
        workers.
        """
        now = self._clock()
        if now < self._look_at_ms:
            return 0
        self._look_at_ms = now + _BACK_OFF_MS
        asked = unknown.partitions(self._read_ahead)
        try:
            self._writer.recover()
            left, undecided = self._owners.ask(asked)
        except KafkaNotReachable as error:
            logger.warning("batch still in doubt: %s", error)
            return 0
        except ReconsumeError as error:
            raise WriterBroken(error) from error
        if undecided:
            return 0
        self._unknown_outcome, self._look_at_ms = None, 0.0
        counted = unknown.committed_runs(asked, left)
        batch = [delivery for one in counted for delivery in one.batch]
        logger.warning("batch in doubt is resolved: %d of %d records were delivered", len(batch), len(unknown.batch))
        if counted:
            self._done([one.run for one in counted], batch)
        return len(batch)

    def _route_first(self, due: list[DueRun]) -> DueBatch:
        """Decide about the first part of a batch, or about all of it if some records may not be plain."""
        first = due if self._refusals or self._whole_batches else first_part(due)
        runs, batch = self._route(first)
        is_whole = len(batch) == sum(len(run.records) for run in first)
        return DueBatch(due if is_whole else runs, batch, self._router)

    def _route(self, due: list[DueRun]) -> tuple[list[DueRun], list[Delivery]]:
        """Return the runs and deliveries to write.

        A run ends before a record that may be withdrawn, or whose target is unknown. Other runs continue, because their
        look-ups are bounded.
        """
        runs: list[DueRun] = []
        batch: list[Delivery] = []
        unanswered = ""
        self._router.meet(lambda: (message for run in due for _, message in run.records))
        for run in due:
            before = len(batch)
            try:
                self._router.route((message for _, message in run.records), batch, run.queue.topic)
            except (CancelsNotRead, LookUpsSpent) as error:
                self._hold([run], _LOOK_AGAIN_MS)
                logger.debug("%s-%d: %s", run.queue.topic, run.queue.partition, error)
            except KafkaNotReachable as error:
                self._hold([run], _BACK_OFF_MS)
                unanswered = str(error)
            if routed := len(batch) - before:
                runs.append(run.first(routed))
        self._router.meet(tuple)  # otherwise the records would stay in memory until the next batch
        if unanswered:
            self._observer.aborted(unanswered)
        return self._refusals.overrule(runs, batch, self._clock()) if self._refusals else (runs, batch)

    def _learn(self, runs: list[DueRun], batch: list[Delivery], aborted: BatchAborted) -> None:
        """After an abort: wait, search for the refused record, halve the batch, or single out its one record."""
        self._observer.aborted(str(aborted.error))
        wheres, refusals = wheres_of(runs), self._refusals
        refusals.stored(wheres[index] for index in aborted.written)
        left = [(where, one) for where, one in zip(wheres, batch, strict=True) if not refusals.is_stored(where)]
        is_gone = isinstance(aborted.error, TopicNotReady)
        if aborted.passing or is_gone:
            # librdkafka reports a deleted target in other words too, and late: look it up again.
            self._router.forget()
        if aborted.passing:
            self._hold(runs, _BACK_OFF_MS)
        elif len(left) > 1:
            if is_gone or not refusals.learn(runs, batch, aborted, self._clock()):
                self._size.halve(len(left))
        elif left and not refusals.is_blamed(left[0][0]):
            refusals.refused_alone(*left[0], aborted.error, self._clock())
        else:
            # Even the quarantine refuses it. The record stays and its partition waits; all others continue. It is not
            # to blame then: its source may be refused, for example because the right to read there was revoked.
            stuck = left[0][0] if left else wheres[0]
            refusals.pardon(stuck)
            logger.error("%s-%d@%d is stuck: %s", *stuck, aborted.error)
            self._hold(runs, _BLOCKED_MS)

    def _hold(self, runs: list[DueRun], for_ms: int) -> None:
        until = self._clock() + for_ms
        for run in runs:
            run.hold(until)

    def _done(self, runs: list[DueRun], batch: list[Delivery]) -> None:
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

    def _assigned(self, partitions: Sequence[Partition]) -> None:
        self._assignment.assign(partitions)
        self._observer.assigned(len(self._read_ahead), self._assignment.refused)

    def _revoked(self, partitions: Sequence[Partition]) -> None:
        gone = set(partitions)
        self._assignment.revoke(gone)
        self._refusals.revoke(gone)
        self._observer.assigned(len(self._read_ahead), self._assignment.refused)


def _offsets(runs: list[DueRun]) -> dict[Partition, Commit]:
    return {run.where: run.commit for run in runs}
