"""The partitions of a consumer: where they start, and what happens when they leave."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final
from weakref import WeakSet

from reconsume.bridge.kafka.admin import Commit, Partition
from reconsume.bridge.kafka.group_consumer import Answer, GroupConsumer, names_of
from reconsume.bridge.process.safe_logger import SafeLogger
from reconsume.bridge.reading.known_offsets import KnownOffsets
from reconsume.consumers.consume_settings import LONGEST_SETTLE_SECONDS, ConsumeSettings
from reconsume.consumers.listeners.listener_service import ListenerService
from reconsume.consumers.message import MessageQueue
from reconsume.consumers.partitions.partition_starts import KeptProgressReader, OffsetReset
from reconsume.consumers.partitions.process_queue import ProcessQueue
from reconsume.consumers.sending.senders import Sender
from reconsume.delay_levels.errors import ReconsumeError

logger = SafeLogger(__name__)

_STILL_SECONDS: Final = 0.05
"""Most send-backs are acknowledged within this time."""
_DRAIN_SECONDS: Final = 0.2
_REBALANCE_SECONDS: Final = 5.0
"""Time for a poll to report a rebalance. In the new group protocol a generation may change without one."""


@dataclass(eq=False, kw_only=True)
class AssignedPartitions:
    """The partitions that the group has assigned. Only the polling thread may call this.

    Guarantees: nothing is committed for a lost partition. A rebalance commits finished messages.
    Tests: tests/integration/consumers/test_push_consumer_rebalance.py,
    tests/integration/consumers/test_push_consumer_orderly.py, tests/chaos/test_rebalances.py.

    Attributes:
        settings: the consumer's.
        consumer: reads the partitions.
        service: calls the listener for their messages.
        sender: commits their offsets.
        known: committed offsets of the group as last seen.
        queues: the unfinished messages of each partition.
        kept_progress: finds messages that earlier owners have finished.
        stop: ends requests to the group's coordinator.
        finish_by: deadline for running listeners after a stop; None before.
        was_shut_out: whether the group has ended this membership, and none has followed.
    """

    settings: ConsumeSettings
    consumer: GroupConsumer
    service: ListenerService[Any]
    sender: Sender
    known: KnownOffsets
    queues: dict[Partition, ProcessQueue] = field(default_factory=dict)
    stop: threading.Event = field(default_factory=threading.Event)
    finish_by: float | None = None
    was_shut_out: bool = False

    def __post_init__(self) -> None:
        self.consumer.owner = self
        self.kept_progress = KeptProgressReader(self._ask_committed)
        retry_topic, consume_from = self.settings.retry_topic, self.settings.consume_from
        self._offset_reset = OffsetReset(
            self.consumer, retry_topic, consume_from, self._ask_committed, self.known.topic_ids
        )
        self._starts: dict[Partition, tuple[int, float]] = {}
        self._stalled: WeakSet[ProcessQueue] = WeakSet()
        self._seen: Any = None

    def assigned(self, partitions: Sequence[Partition]) -> None:
        """Take over newly assigned partitions."""
        logger.info("assigned: %s", names_of(partitions))
        self.was_shut_out = False
        self._seen = self.consumer.group_metadata()
        self.commit()
        self.known.meet(topic for topic, _ in partitions)
        for where in partitions:
            self._begin(where)

    def revoked(self, partitions: Sequence[Partition]) -> None:
        """Give partitions up: discard later results, wait for send-backs in flight, then commit.

        The remaining partitions are committed too, before and after the wait for listeners. librdkafka rejoins next; in
        the classic protocol, brokers do not answer a rejoining member's commit, and refuse it afterwards.
        """
        logger.info("revoked: %s", names_of(partitions))
        self.commit()
        self._give_away(partitions)
        self.commit()

    def lost(self, partitions: Sequence[Partition]) -> None:
        """Forget lost partitions. Other members own them, and brokers would refuse commits."""
        logger.warning("lost: %s; results of running listeners are discarded", names_of(partitions))
        self.was_shut_out = True
        dropped = self._drop(partitions)
        self.service.leave(dropped, lambda: 0)
        self.sender.forget(dropped)

    def commit(self) -> None:
        """Commit finished messages without waiting for the answer."""
        self.sender.commit(self.queues.values())

    def committed(self, answers: Mapping[Partition, Answer]) -> None:
        """Note the answer to a commit; refused offsets go into the next commit."""
        self.known.note({where: answer for where, answer in answers.items() if isinstance(answer, Commit)})
        for where, answer in answers.items():
            if isinstance(answer, ReconsumeError) and where in self.queues:
                logger.warning("%s", answer)
                self.queues[where].committed = None

    def reset_offsets(self, out_of_range: Mapping[Partition, bool]) -> None:
        """Choose starts for partitions without a committed offset, or with one that retention has deleted.

        Guarantees: unfinished messages are kept, although their records are gone. They are dropped only if other
        records have their offsets now: the topic was recreated or truncated, or the group goes back.
        Tests: tests/unit/consumers/partitions/test_offset_reset.py.

        Guarantees: the start of a partition without a committed offset is committed, unless it is always the first
        record. So an owner that gets the partition before its first message reads what was stored meanwhile.
        Tests: tests/integration/consumers/test_push_consumer_offsets.py, tests/integration/topics/test_first_seen.py.

        Args:
            out_of_range: whether each had no committed offset.
        """
        out_of_range = {where: had_none for where, had_none in out_of_range.items() if where in self.queues}
        if not out_of_range:
            return
        # The start depends on the committed offset.
        self.sender.settle([self.queues[where] for where in out_of_range], self.settings.limits.settle_seconds)
        starts = self._offset_reset.starts_of(out_of_range)
        for where, start in starts.items():
            queue = self.queues[where]
            # Without an answer: this offset is out of range too, so the question is repeated.
            offset = queue.end if start.offset < 0 < queue.end else start.offset
            if start.is_made_again or offset < queue.end:
                self._give_away([where])
                self._begin(where)
            if start.is_made_again:
                # Metadata beside the offset of a recreated topic describes records that no longer exist.
                self.queues[where].held = None
            # librdkafka may or may not keep a pause; a full partition is paused again in this turn.
            self._resume([queue])
            self._starts[where] = offset, math.inf
            if start.must_commit:
                self.queues[where].first = start.offset
        self.commit()
        self.restart(polled=False)

    def restart(self, *, polled: bool = True) -> None:
        """Restart partitions at their new starts, but not while a rebalance waits for a poll.

        librdkafka (2.16) would take the unassignment for the answer to that rebalance: it joins the group again, and
        other members read partitions that this one has not given up. Upstream issue: none was found.
        Test: tests/integration/bridge/librdkafka/test_restarts.py.
        Remove when: `rd_kafka_cgrp_incremental_unassign` ends a rebalance only if its callback was called.

        Args:
            polled: whether a poll came before.
        """
        if not self._starts:
            return
        metadata, now = self.consumer.group_metadata(), time.monotonic()
        is_settled = metadata == self._seen or not isinstance(metadata, bytes)  # no bytes: the in-memory Kafka
        for where, (offset, until) in list(self._starts.items()):
            if is_settled or (polled and now >= until):
                del self._starts[where]
                self.consumer.restart(where, offset)
            elif polled:
                self._starts[where] = offset, min(until, now + _REBALANCE_SECONDS)

    def pause_and_resume(self) -> None:
        """Pause full partitions, and resume those with room."""
        queues = self.queues.values()
        full = {queue for queue in queues if self._is_full(queue)}
        self._resume(queue for queue in queues if queue not in full)
        if reading := [queue for queue in full if not queue.paused]:
            self._let_drain(reading)
        self.pause(queue for queue in full if self._is_full(queue))
        for queue in full.difference(self._stalled):
            self._tell_if_stalled(queue)

    def _tell_if_stalled(self, queue: ProcessQueue) -> None:
        """Say once that a partition is full of messages for which no listener is called any more."""
        # In this order: it may have got room before the first question, and nothing is read between the two.
        if self.service.waits_for_commit(queue) and self._is_full(queue):
            self._stalled.add(queue)
            logger.warning(
                "%s-%d is not read: all %d messages that may be open succeeded with auto_commit=False and no COMMIT; "
                "return COMMIT earlier, or raise pull_threshold_for_queue",
                *queue.where,
                queue.size,
            )

    def _let_drain(self, full: Sequence[ProcessQueue]) -> None:
        """Wait for room while messages are finished, or their send-backs acknowledged.

        A pause discards fetched records, and brokers answer the fetch after it up to 0.5 s later:
        benchmarks/consumers.py, benchmarks/send_backs.py.
        """
        left, until = math.inf, 0.0

        def is_draining() -> bool:
            nonlocal left, until
            self.sender.serve()
            before, left = left, sum(queue.size for queue in full)
            if left < before:
                until = time.monotonic() + _STILL_SECONDS
            return self._may_have_room(full) and time.monotonic() < until

        self.service.pool.wait_while(is_draining, _DRAIN_SECONDS)

    def pause(self, queues: Iterable[ProcessQueue]) -> None:
        """Pause these partitions."""
        reading = [queue for queue in queues if not queue.paused]
        self.consumer.pause(queue.where for queue in reading)
        for queue in reading:
            queue.paused = True

    def begin_to_finish(self) -> None:
        """Start no more listeners. From the first call on, running ones have a limited time."""
        if self.finish_by is None:
            self.service.pool.stop()
            self.finish_by = time.monotonic() + self.settings.limits.await_termination_seconds

    def seconds_left(self) -> float:
        """Return the seconds left for running listeners after a stop."""
        if self.finish_by is None:
            return min(self.settings.limits.await_termination_seconds, self.settings.limits.leave_seconds)
        return max(0.0, self.finish_by - time.monotonic())

    def _resume(self, queues: Iterable[ProcessQueue]) -> None:
        paused = [queue for queue in queues if queue.paused]
        self.consumer.resume(queue.where for queue in paused)
        for queue in paused:
            queue.paused = False

    def _is_full(self, queue: ProcessQueue) -> bool:
        limits = self.settings.limits
        return (
            self.service.is_suspended(queue)
            or queue.is_full(limits.queue_records, limits.queue_bytes, limits.max_span)
            or bool(queue.held)
        )

    def _may_have_room(self, full: Iterable[ProcessQueue]) -> bool:
        return any(self._is_full(queue) and not self.service.is_suspended(queue) for queue in full)

    def _begin(self, where: Partition) -> None:
        topic, partition = where
        shown = MessageQueue(self.settings.names.rocketmq_name(topic), partition)
        self.queues[where] = ProcessQueue(topic, partition, shown)

    def _give_away(self, partitions: Sequence[Partition]) -> None:
        dropped = self._drop(partitions)
        until = time.monotonic() + self.settings.limits.leave_seconds

        def left_to_wait() -> float:
            if self.stop.is_set():
                self.begin_to_finish()
            return (until if self.finish_by is None else min(until, self.finish_by)) - time.monotonic()

        if not self.service.leave(dropped, left_to_wait):
            logger.warning("revoked while a listener runs, so its messages may run twice: %s", names_of(partitions))
        # What the listeners have left of their time is for the brokers, which a busy machine may slow down.
        in_all = self.settings.limits.settle_seconds + max(0.0, left_to_wait())
        self.sender.leave(dropped, min(in_all, LONGEST_SETTLE_SECONDS))

    def _drop(self, partitions: Iterable[Partition]) -> list[ProcessQueue]:
        """Forget partitions; they are resumed first, because librdkafka (2.16) keeps a pause across a rebalance."""
        dropped = []
        for where in partitions:
            self._starts.pop(where, None)
            queue = self.queues.pop(where, None)
            if queue is not None:
                queue.drop()
                dropped.append(queue)
        self._resume(dropped)
        return dropped

    def _ask_committed(self, partitions: Collection[Partition], seconds: float) -> Mapping[Partition, Answer]:
        """Return the group's committed offsets; offsets that the coordinator has lost are committed again."""
        try:
            found = self.known.ask(lambda asked: self.consumer.committed(asked, seconds), partitions, self.stop)
            if found.restored:
                self.consumer.restore(found.restored)
        except ReconsumeError as error:
            return dict.fromkeys(partitions, error)
        return found.committed
