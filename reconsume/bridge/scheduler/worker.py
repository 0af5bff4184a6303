"""One scheduler worker: read ahead, wait for the earliest due record, deliver what is due."""

from __future__ import annotations

import logging
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from operator import attrgetter
from typing import Final

from confluent_kafka import (
    TIMESTAMP_LOG_APPEND_TIME,
    Consumer,
    KafkaError,
    Message,
    TopicPartition,
)

from reconsume.bridge.admin import Partition
from reconsume.bridge.clock import Clock, now_ms
from reconsume.bridge.kafka import translate
from reconsume.bridge.known_offsets import KnownOffsets
from reconsume.bridge.membership import Membership
from reconsume.bridge.polled import by_partition
from reconsume.bridge.scheduler.cancels import CancelsNotRead
from reconsume.bridge.scheduler.doubt import Doubt
from reconsume.bridge.scheduler.earlier_owners import Left, what_was_left
from reconsume.bridge.scheduler.observer import WorkerObserver
from reconsume.bridge.scheduler.out_of_turn import offset_of
from reconsume.bridge.scheduler.read_ahead import DueRun, ReadAhead
from reconsume.bridge.scheduler.routing import Delivery, Router
from reconsume.bridge.scheduler.scout import Scout
from reconsume.bridge.scheduler.stalls import ReadingStopped
from reconsume.bridge.scheduler.writers import BatchAborted, BatchInDoubt, BatchWriter, WriterBroken
from reconsume.delay_levels.errors import IllegalName, KafkaNotReachable, ReconsumeError, TopicNotReady
from reconsume.delay_levels.names import TopicNames

__all__ = ["Worker"]

logger = logging.getLogger(__name__)

_IDLE_SECONDS: Final = 0.2
"""So long at most until a stop or a rebalance is noticed."""
_BACK_OFF_MS: Final = 500
_BLOCKED_MS: Final = 10_000
_LOOK_AGAIN_MS: Final = 50

_OUTCOME_AND_GROUP: Final = attrgetter("outcome", "group")

Where = tuple[str, int, int]
"""Topic, partition and offset of a waiting record."""
Refused = Callable[[str], str | None]
"""Why a topic may not be scheduled from, None if it may."""


class Worker:
    """Delivers the due records of the partitions that Kafka gives it.

    Guarantees:
        1. A record leaves its queue only after its delivery and its offset are committed together.
        2. No record is delivered before its append time plus the delay of its topic, nor before its own due moment.
        3. A record that is refused is found by halving the batch, and goes to the quarantine alone.
        4. No transaction is open while the worker waits.
        5. Of one group and partition, what was appended first is delivered first.

    Everything happens in the thread that calls `run`; `give_up` and `look_at_offsets` may be called from elsewhere.
    """

    def __init__(
        self,
        consumer: Consumer,
        writer: BatchWriter,
        *,
        router: Router,
        names: TopicNames,
        read_ahead: ReadAhead,
        observer: WorkerObserver,
        refused: Refused,
        max_batch_records: int,
        clock: Clock = now_ms,
        saw: Callable[[int], None] = lambda _append_ms: None,
        scout: Scout | None = None,
        known: KnownOffsets,
        membership: Membership | None = None,
    ) -> None:
        self._consumer = consumer
        self._writer = writer
        self._membership = membership
        self._router = router
        self._names = names
        self._read_ahead = read_ahead
        self._known = known
        self._stop = threading.Event()
        self._observer = observer
        self._refused = refused
        self._max_batch = max_batch_records
        self._limit = max_batch_records
        self._clock = clock
        self._saw = saw
        self._scout = scout
        self._unasked: set[Partition] = set()
        self._done_before: dict[Partition, int] = {}
        self._poison: dict[Where, str] = {}
        self._written: set[Where] = set()
        self._refused_partitions: set[Partition] = set()
        self._given_up: str | None = None
        self._doubt: Doubt | None = None
        self._is_shaken = False
        self._look_at_ms = 0.0

    def run(self, stop: threading.Event) -> None:
        """Deliver until told to stop.

        Raises:
            ReadingStopped: it was given up.
            MembershipLost: it will read nothing any more.
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

    def give_up(self, why: str) -> None:
        """Let another worker begin in its place."""
        self._given_up = why

    def look_at_offsets(self) -> None:
        """Look, before the next batch, whether the coordinator still has what was committed, and restore it if not."""
        self._is_shaken = True

    def join_group(self) -> None:
        """Ask Kafka for partitions."""
        self._consumer.subscribe(
            [self._names.scheduled_pattern], on_assign=self._assigned, on_revoke=self._revoked, on_lost=self._revoked
        )

    def run_once(self, longest_wait: float) -> int:
        """Read what is there, deliver what is due; gives the number of delivered records.

        Waits until something is due or read, at most `longest_wait` seconds.
        """
        self._read(self._seconds_to_wait(longest_wait))
        delivered = self._recover() if self._is_shaken else 0
        if not self._is_shaken:
            delivered += self._deliver_due()
        self._observer.look(self._read_ahead)
        return delivered

    def _deliver_due(self) -> int:
        delivered = self._deliver_out_of_turn() if self._scout is not None else 0
        if delivered is None or self._is_shaken:
            return delivered or 0
        runs = self._read_ahead.take_due(self._clock(), self._limit)
        return delivered + (self._deliver(runs) if runs else 0)

    def _deliver_out_of_turn(self) -> int | None:
        """Records of small groups behind a flood, in a batch of their own; their number.

        None if one of them was refused: until that one is singled out, no other batch makes the next one larger.
        """
        assert self._scout is not None
        now, limit = self._clock(), self._limit
        if limit == self._max_batch:
            self._scout.look(self._read_ahead, now)
        runs = self._read_ahead.take_overtaking(now, limit) if self._scout.is_at_work else []
        delivered = self._deliver(runs) if runs else 0
        refused = runs and not delivered and self._read_ahead.take_overtaking(now, 1)
        return None if refused else delivered

    def _seconds_to_wait(self, longest: float) -> float:
        due = self._look_at_ms if self._is_shaken else self._read_ahead.next_due_ms()
        return longest if due is None else min(longest, max(0.0, (due - self._clock()) / 1000))

    def _read(self, timeout: float) -> None:
        """Take what librdkafka has; `consume(n, t)` alone would wait for n records or all of t."""
        message = self._consumer.poll(timeout)
        if message is not None:
            self._keep([message])
            more = self._consumer.consume(self._max_batch, 0)
            self._keep(more)
            self._tell_time(more[-1] if more else message)
        self._pause_and_resume()

    def _tell_time(self, last: Message) -> None:
        """What was read last may have been stored a moment ago."""
        kind, append_ms = last.timestamp()
        if last.error() is None and kind == TIMESTAMP_LOG_APPEND_TIME:
            self._saw(append_ms)

    def _keep(self, messages: Sequence[Message]) -> None:
        runs = list(by_partition(messages))
        if self._unasked:
            self._ask_what_is_done(
                {(topic or "", partition or 0) for topic, partition, failed, _ in runs if not failed}
            )
        for topic, partition, failed, run in runs:
            where = topic or "", partition or 0
            if failed:
                for message in run:
                    self._failed(where, message)
            else:
                self._read_ahead.add(where, self._not_done(where, run) if self._done_before else run)

    def _failed(self, where: Partition, message: Message) -> None:
        error = message.error()
        assert error is not None
        if error.code() == KafkaError._PARTITION_EOF:
            self._read_ahead.reached_end(where, message.offset() or 0)
        elif error.fatal() or error.code() == KafkaError._FATAL:
            # As a polled message it does not say `fatal()`. Nothing is read any more with this consumer.
            raise KafkaNotReachable(f"reading as a member of the schedulers' group: {error.str()}")
        elif error.code() != KafkaError.UNKNOWN_TOPIC_OR_PART:
            logger.warning("%s", translate(error, f"reading topic {where[0] or 'of the scheduler'}"))

    def _pause_and_resume(self) -> None:
        # When it is shaken nothing leaves, however long it has been due.
        now = float("-inf") if self._is_shaken else self._clock()
        for queues, act, paused in (
            (self._read_ahead.to_pause(now), self._consumer.pause, True),
            (self._read_ahead.to_resume(), self._consumer.resume, False),
        ):
            if queues:
                act([TopicPartition(queue.topic, queue.partition) for queue in queues])
                for queue in queues:
                    queue.paused = paused

    def _deliver(self, runs: list[DueRun]) -> int:
        runs, batch = self._route(runs)
        if not batch:
            return 0
        try:
            self._writer.write(batch, lambda: _offsets(runs), self._consumer)
        except BatchAborted as aborted:
            self._learn(runs, _wheres(runs), aborted)
            return 0
        except BatchInDoubt as error:
            self._observer.aborted(str(error))
            self._router.forget()
            self._doubt = Doubt(runs, batch, _offsets(runs))
            self._is_shaken = True
            return 0
        self._done(runs, batch, _offsets(runs))
        return len(batch)

    def _recover(self) -> int:
        """What became of a batch without an answer, and are all offsets there? Gives what was delivered.

        Before that nothing is committed: a coordinator that has just started may not have read all that the group has
        committed. The worker stays in the group meanwhile, because to leave it would hold up all workers.
        """
        if self._clock() < self._look_at_ms:
            return 0
        owned = [(queue.topic, queue.partition) for queue in self._read_ahead]
        try:
            self._writer.recover()
            left = what_was_left(self._consumer, owned, self._known, self._stop) if owned else {}
        except KafkaNotReachable as error:
            logger.warning("it is not known yet what is committed: %s", error)
            self._look_at_ms = self._clock() + _BACK_OFF_MS
            return 0
        except ReconsumeError as error:
            # Of one topic nobody tells; the other partitions must not wait for that.
            if self._doubt is not None:
                raise WriterBroken(error) from error
            logger.warning("what is committed was not looked at: %s", error)
            left = {}
        delivered = 0 if self._doubt is None else self._settle(self._doubt, left)
        self._is_shaken = self._doubt is not None
        return delivered

    def _settle(self, doubt: Doubt, left: Mapping[Partition, Left]) -> int:
        now = self._clock()
        counted = doubt.settle(doubt.partitions(self._read_ahead), left, now)
        if counted is None:
            self._look_at_ms = now + _BACK_OFF_MS
            return 0
        self._doubt = None
        batch = [delivery for one in counted for delivery in one.batch]
        logger.warning("%d of %d records of the batch in doubt were delivered", len(batch), len(doubt.batch))
        if counted:
            self._done([one.run for one in counted], batch, [one.position for one in counted])
        return len(batch)

    def _route(self, due: list[DueRun]) -> tuple[list[DueRun], list[Delivery]]:
        """What to write for each record.

        A run ends before a record of which nobody knows yet whether it was withdrawn, or where it goes. What is due
        after that one is left for the next turn, because to ask and get no answer takes 10 s, and Kafka wants to be
        polled between.
        """
        runs: list[DueRun] = []
        batch: list[Delivery] = []
        route, unanswered = self._router.route, False
        for run in due:
            inbox = run.queue.topic == self._names.send_back
            before = len(batch)
            try:
                # One by one, so that what was routed before an error is kept.
                for _, message in run.records:
                    batch.append(route(message, inbox=inbox))
            except CancelsNotRead as error:
                self._hold([run], _LOOK_AGAIN_MS)
                logger.debug("%s-%d: %s", run.queue.topic, run.queue.partition, error)
            except KafkaNotReachable as error:
                self._hold([run], _BACK_OFF_MS)
                self._observer.aborted(str(error))
                unanswered = True
            if routed := len(batch) - before:
                runs.append(DueRun(run.queue, run.records[:routed]))
            if unanswered:
                break
        if self._poison or self._written:
            self._overrule(runs, batch)
        return runs, batch

    def _overrule(self, runs: list[DueRun], batch: list[Delivery]) -> None:
        """What is poison goes to the quarantine, what is stored already nowhere."""
        messages = [message for run in runs for _, message in run.records]
        for index, where in enumerate(_wheres(runs)):
            if (reason := self._poison.get(where)) is not None:
                batch[index] = self._router.quarantine(messages[index], reason)
            if where in self._written:
                batch[index] = batch[index]._replace(outcome="dropped")  # noqa: SLF001 - public on named tuples

    def _learn(self, runs: list[DueRun], wheres: list[Where], aborted: BatchAborted) -> None:
        """After an abort: wait, halve the batch, or single out the one record that was refused."""
        self._observer.aborted(str(aborted.error))
        self._written.update(wheres[index] for index in aborted.written)
        wheres = [where for where in wheres if where not in self._written]
        if aborted.passing or isinstance(aborted.error, TopicNotReady):
            # librdkafka has other words too for a target that is gone, and answers late: it is looked up again.
            self._router.forget()
        if aborted.passing:
            self._is_shaken = True
            self._hold(runs, _BACK_OFF_MS)
        elif len(wheres) > 1:
            self._limit = max(1, len(wheres) // 2)
        elif wheres and wheres[0] not in self._poison:
            self._poison[wheres[0]] = str(aborted.error)
        else:
            # Not even the quarantine takes it. It stays, its partition waits, all others go on. Nor is it to blame
            # then: where it stands may be what is refused, as when the right to read there was taken.
            stuck = (wheres or _wheres(runs))[0]
            self._poison.pop(stuck, None)
            logger.error("%s-%d@%d is stuck: %s", *stuck, aborted.error)
            self._hold(runs, _BLOCKED_MS)

    def _hold(self, runs: list[DueRun], for_ms: int) -> None:
        until = self._clock() + for_ms
        for run in runs:
            run.hold(until)

    def _done(self, runs: list[DueRun], batch: list[Delivery], positions: list[TopicPartition]) -> None:
        now = self._clock()
        outcomes = Counter(map(_OUTCOME_AND_GROUP, batch))
        self._known.note(positions)
        for run in runs:
            self._observer.lateness(run.queue.topic, now, [due for due, _ in run.records])
        self._observer.done(outcomes)
        if any(outcome == "quarantined" for outcome, _ in outcomes):
            for one, where in zip(batch, _wheres(runs), strict=True):
                if one.outcome == "quarantined":
                    logger.warning("quarantined %s-%d@%d: %r", *where, dict(one.headers)["QUARANTINE_REASON"])
        if self._poison or self._written:
            self._forget(_wheres(runs))
        for run in runs:
            run.drop()
        self._limit = min(self._max_batch, self._limit * 2)

    def _forget(self, wheres: Iterable[Where]) -> None:
        for where in wheres:
            self._poison.pop(where, None)
            self._written.discard(where)

    def _assigned(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        for topic in {one.topic for one in partitions}:
            try:
                delay_ms, reason = self._names.delay_ms(topic), self._refused(topic)
            except IllegalName as error:
                delay_ms, reason = 0, str(error)
            if reason is not None:
                logger.error("not scheduling from %s: %s", topic, reason)
                continue
            of_topic = [one for one in partitions if one.topic == topic]
            if topic == self._names.delay(0):
                self._assign_held(consumer, of_topic)
                continue
            for one in of_topic:
                self._read_ahead.assign(topic, one.partition, delay_ms)
                self._unasked.add((topic, one.partition))
        consumer.incremental_assign(partitions)
        # librdkafka remembers a pause over an assignment that was lost and came back.
        consumer.resume(partitions)
        refused = [one for one in partitions if not self._read_ahead.owns((one.topic, one.partition))]
        if refused:
            consumer.pause(refused)
        self._refused_partitions.update((one.topic, one.partition) for one in refused)
        self._observer.assigned(len(self._read_ahead), len(self._refused_partitions))

    def _assign_held(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        """Start where the last owner's transaction says, without what it has delivered out of turn.

        Offset and metadata must be of one commit, so the partition starts at the offset that came with the metadata.
        """
        found = what_was_left(consumer, [(one.topic, one.partition) for one in partitions], self._known, self._stop)
        for one in partitions:
            left = found.get((one.topic, one.partition))
            if left is not None:
                one.offset = self._done_before[one.topic, one.partition] = left.offset
            done = frozenset[int]() if left is None else left.done
            self._read_ahead.assign_held(one.topic, one.partition, self._router.timers.due_ms, done)

    def _ask_what_is_done(self, read: set[Partition]) -> None:
        """With the first record of a partition: librdkafka has waited by then for open transactions of dead owners."""
        come = read & self._unasked
        if come:
            for where, left in what_was_left(self._consumer, come, self._known, self._stop).items():
                self._read_ahead.learn(where, left.done)
                self._done_before[where] = left.offset
            self._unasked -= come

    def _not_done(self, where: Partition, run: Sequence[Message]) -> Sequence[Message]:
        """Without those that stand before what is committed; asked for the first records of a partition.

        librdkafka 2.16 goes on fetching a partition that was taken away while it asked for a first offset there, and
        gives one record of that when the partition comes back. And it begins anew where the group's coordinator says
        that nothing is committed.
        """
        offset = self._done_before.get(where, 0)
        left = [message for message in run if offset_of(message) >= offset] if offset_of(run[0]) < offset else run
        if left:
            self._done_before.pop(where, None)
        return left

    def _revoked(self, _consumer: Consumer, partitions: list[TopicPartition]) -> None:
        gone = {(one.topic, one.partition) for one in partitions}
        self._read_ahead.revoke(gone)
        self._forget([where for where in (*self._poison, *self._written) if where[:2] in gone])
        self._refused_partitions -= gone
        self._unasked -= gone
        for where in gone:
            self._done_before.pop(where, None)
        self._observer.assigned(len(self._read_ahead), len(self._refused_partitions))


def _offsets(runs: list[DueRun]) -> list[TopicPartition]:
    return [run.position for run in runs]


def _wheres(runs: list[DueRun]) -> list[Where]:
    """Where each record of a batch stands, in the batch's order."""
    return [(run.queue.topic, run.queue.partition, message.offset() or 0) for run in runs for _, message in run.records]
