"""The poll loop: one thread that owns the Kafka consumer and never waits for a listener."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Iterable, Sequence
from contextlib import ExitStack
from typing import Any, Final

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition
from confluent_kafka import Message as KafkaMessage

from reconsume.bridge.kafka.errors import is_rebalance, translate
from reconsume.bridge.librdkafka.membership import Membership
from reconsume.bridge.process.clock import Clock, now_ms
from reconsume.bridge.reading.by_partition import by_partition
from reconsume.bridge.reading.known_offsets import KnownOffsets
from reconsume.consumers.listeners.listener_service import ListenerService
from reconsume.consumers.message import Message
from reconsume.consumers.partitions.batch import PolledBatch, Reading
from reconsume.consumers.partitions.consume_from import ConsumeFrom
from reconsume.consumers.partitions.flow_control import FlowControl, Limits
from reconsume.consumers.partitions.kept_progress import FreshPartitions
from reconsume.consumers.partitions.offset_reset import OffsetReset
from reconsume.consumers.partitions.process_queue import ProcessQueue
from reconsume.consumers.sending.senders import Sender
from reconsume.consumers.subscriptions.subscription import Subscriptions, TagExpression
from reconsume.delay_levels.errors import KafkaRefused

__all__ = ["ConsumeLoop"]

logger = logging.getLogger(__name__)

_FETCH_RECORDS: Final = 500
_BUSY_SECONDS: Final = 0.02
_IDLE_SECONDS: Final = 0.2
_COMMIT_EVERY_MS: Final = 1_000
_EXPIRE_EVERY_MS: Final = 200
_SETTLE_SECONDS: Final = 0.5
_NO_OFFSET: Final = KafkaError(KafkaError._NO_OFFSET).str()
"""How librdkafka ends the reason for a reset of a partition without a committed offset."""


class ConsumeLoop:
    """Reads, hands out, commits. Everything here happens in one thread, which alone calls the consumer.

    confluent-kafka (2.16) lets one thread at a time into a consumer, and who waits looks every millisecond: beside one
    that polls all the time it waits for seconds or minutes. Test: tests/integration/test_push_consumer_exactly_once.py.

    Guarantees:
        1. The committed offset is the smallest unfinished one; nothing is committed for a partition that was lost.
        2. No listener holds up the loop: a full partition is paused, so `max.poll.interval.ms` is never at risk.
        3. A retry topic without a committed offset is read from its beginning (RocketMQ: TN-06).
        4. What is finished is committed, also in a rebalance or a shutdown: see `_revoked` and `finish`.
    Tests: tests/unit/consumers/partitions/test_finish.py, tests/integration/test_push_consumer_rebalance.py,
    tests/integration/test_push_consumer_orderly.py, tests/chaos/test_rebalances.py.
    """

    def __init__(
        self,
        consumer: Consumer,
        service: ListenerService[Any],
        sender: Sender,
        *,
        retry_topic: str,
        subscriptions: Subscriptions,
        consume_from: ConsumeFrom,
        limits: Limits,
        known: KnownOffsets,
        membership: Membership | None = None,
        namespace_prefix: str = "",
        clock: Clock = now_ms,
    ) -> None:
        self._consumer = consumer
        self._service = service
        self._sender = sender
        self._retry_topic = retry_topic
        self._subscriptions = subscriptions
        self._known = known
        self._membership = membership
        self._offset_reset = OffsetReset(consumer, retry_topic, consume_from, self._ask_committed)
        self._limits = limits
        self._reading = Reading(retry_topic, namespace_prefix)
        self._clock = clock
        self._queues: dict[tuple[str, int], ProcessQueue] = {}
        self._fresh = FreshPartitions(self._ask_committed)
        self._flow = FlowControl(consumer, limits, service.is_suspended, self._fresh.is_held)
        self._stop = threading.Event()
        self._commit_at = 0.0
        self._expire_at = 0.0
        self._finish_by: float | None = None

    def run(self, stop: threading.Event) -> None:
        """Consume until told to stop, then let running listeners finish and commit.

        Raises:
            MembershipLost: it will get no message any more.
        """
        self._stop = stop
        self.begin()
        try:
            while not stop.is_set():
                self.run_once()
            self.finish()
        finally:
            self.end()

    def begin(self) -> None:
        """Subscribe; the partitions come in one of the next turns."""
        topics = [*self._subscriptions, self._retry_topic]
        self._consumer.subscribe(topics, on_assign=self._assigned, on_revoke=self._revoked, on_lost=self._lost)

    def run_once(self) -> None:
        """One turn: read, hand out, try again what is due, pause, commit."""
        if self._membership is not None:
            self._membership.check(has_partitions=bool(self._queues))
        busy = any(queue.size for queue in self._queues.values())
        self._read(_BUSY_SECONDS if busy else _IDLE_SECONDS)
        self._begin_fresh()
        self._service.tick()
        self._sender.serve()
        now = self._clock()
        if now >= self._expire_at:
            self._expire_at = now + _EXPIRE_EVERY_MS
            for queue in self._queues.values():
                self._service.expire(queue, self._limits.timeout_ms)
        self._flow.pause_and_resume(self._queues.values())
        self._commit_when_due(now)

    def _commit_when_due(self, now: float) -> None:
        if now >= self._commit_at:
            self._commit_at = now + _COMMIT_EVERY_MS
            self._commit()

    def _commit(self) -> None:
        self._sender.commit(self._queues.values())

    def _read(self, timeout: float) -> None:
        """`consume(n, t)` alone would wait for n records or all of t."""
        first = self._consumer.poll(timeout)
        if first is None:
            return
        owner = self._queue_of(first)
        rest = self._consumer.consume(_FETCH_RECORDS, 0)
        # A rebalance may have come with them: then the first one is read again by whoever has its partition now.
        polled = [first, *rest] if self._queue_of(first) is owner else rest
        for topic, partition, failed, run in by_partition(polled):
            if failed:
                for one in run:
                    self._failed(one)
            else:
                self._hand_out(self._queues.get((topic or "", partition or 0)), PolledBatch(run, self._reading))

    def _begin_fresh(self) -> None:
        """Hand out the first messages of partitions of which it is known now what is done."""
        for queue, messages in self._fresh.learn(self._queues) if self._fresh else ():
            self._hand_out(queue, messages)

    def _queue_of(self, polled: KafkaMessage) -> ProcessQueue | None:
        return self._queues.get((polled.topic() or "", polled.partition() or 0))

    def _hand_out(self, queue: ProcessQueue | None, messages: Sequence[Message]) -> None:
        if queue is None:
            return
        if self._fresh and self._fresh.hold(queue, messages):
            return
        messages = queue.begin(messages)
        wanted = self._subscriptions.get(queue.topic)
        if wanted is not None and wanted.tags is not None:
            # A retry is not filtered again, whatever the subscription says now (RocketMQ: TF-04).
            messages = _subscribed(queue, messages, wanted)
        self._service.accept(queue, messages)

    def _failed(self, polled: KafkaMessage) -> None:
        error = polled.error()
        assert error is not None
        topic, partition = polled.topic() or "", polled.partition()
        if error.code() == KafkaError._AUTO_OFFSET_RESET and partition is not None:
            if (topic, partition) in self._queues:
                self._reset_offset(topic, partition, had_none=_NO_OFFSET in error.str())
        elif error.code() in (KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError._UNKNOWN_TOPIC):
            # RocketMQ: TN-09. The retry topic may come later: it is looked for every 10 s.
            if topic != self._retry_topic:
                remedy = f"{self._subscriptions.remedy_if_missing(topic)}; it is then read from its beginning"
                logger.warning("%s", translate(error, f"subscribing to {topic}", remedy))
        elif error.fatal() or error.code() == KafkaError._FATAL:
            # As a polled message it does not say `fatal()`. Nothing is read any more, and no commit is taken.
            raise KafkaRefused(f"consuming: {error.str()}; this consumer has ended, start another one")
        else:
            logger.warning("%s", translate(error, f"consuming {topic}"))

    def _reset_offset(self, topic: str, partition: int, *, had_none: bool) -> None:
        """No committed offset, or one that is no longer kept: each topic starts where it should.

        What was begun before is settled first, and what is committed then is not begun again.
        """
        self._give_away([TopicPartition(topic, partition)])
        start = self._offset_reset.start_of(topic, partition, had_none=had_none)
        self._consumer.incremental_unassign([start.where])
        self._consumer.incremental_assign([start.where])
        self._queues[topic, partition] = ProcessQueue(topic, partition)
        # What stands beside the committed offset of a topic that was made again is about records that are no more.
        if not start.is_made_again:
            self._fresh.add((topic, partition))

    def committed(self, error: KafkaError | None, partitions: Iterable[TopicPartition]) -> None:
        """The answer to a commit; what was not committed is tried again with the next one."""
        for one in partitions:
            refusal = error or one.error
            if refusal is None:
                self._known.note([one])
            queue = self._queues.get((one.topic, one.partition))
            if refusal is not None and queue is not None:
                logger.warning("%s", translate(refusal, f"committing offsets of {one.topic}-{one.partition}"))
                queue.committed = None

    def _ask_committed(self, partitions: list[TopicPartition], timeout: float) -> list[TopicPartition]:
        """What the group has committed; what its coordinator has lost is committed again.

        Who was put out of the group cannot: it learns that in its next poll, so it must not try again without one.
        """
        wheres = [(one.topic, one.partition) for one in partitions]
        found = self._known.ask(lambda asked: self._consumer.committed(asked, timeout), wheres, self._stop)
        if found.restored:
            try:
                self._consumer.commit(offsets=found.restored, asynchronous=False)
            except KafkaException as error:
                if not is_rebalance(error.args[0]):
                    raise
                logger.warning("%s", translate(error, f"restoring offsets of {_names(found.restored)}"))
        return found.committed

    def _assigned(self, _consumer: Consumer, partitions: list[TopicPartition]) -> None:
        logger.info("assigned: %s", _names(partitions))
        self._commit()
        self._known.meet(one.topic for one in partitions)
        for one in partitions:
            where = (one.topic, one.partition)
            self._queues[where] = ProcessQueue(*where)
            self._fresh.add(where)

    def _revoked(self, _consumer: Consumer, partitions: list[TopicPartition]) -> None:
        """Results that come from now on are discarded; send-backs on their way are awaited, then committed.

        The partitions that stay are committed too, before and after the wait for listeners: librdkafka joins again
        next, and brokers answer no commit of a member while it waits for the group (classic protocol), then refuse it.
        """
        logger.info("revoked: %s", _names(partitions))
        self._commit()
        self._give_away(partitions)
        self._commit()

    def _give_away(self, partitions: list[TopicPartition]) -> None:
        dropped = self._drop(partitions)
        leave_seconds = self._limits.leave_seconds
        if self._finish_by is not None:
            leave_seconds = min(leave_seconds, self._seconds_left())
        if not self._service.leave(dropped, leave_seconds):
            logger.warning("given away while a listener still works, so two may now: %s", _names(partitions))
        self._sender.leave(dropped, self._limits.settle_seconds)

    def _lost(self, _consumer: Consumer, partitions: list[TopicPartition]) -> None:
        """Somebody else has them already; committing would be refused."""
        logger.warning("lost: %s; results that come late are discarded", _names(partitions))
        dropped = self._drop(partitions)
        self._service.leave(dropped, 0)
        self._sender.forget(dropped)

    def _drop(self, partitions: Iterable[TopicPartition]) -> list[ProcessQueue]:
        """Forget these partitions; they are resumed, because librdkafka (2.16) keeps a pause over a rebalance."""
        dropped = []
        for one in partitions:
            where = one.topic, one.partition
            self._fresh.discard(where)
            queue = self._queues.pop(where, None)
            if queue is not None:
                queue.drop()
                dropped.append(queue)
        self._flow.resume([queue for queue in dropped if queue.paused])
        return dropped

    def settle(self, seconds: float) -> bool:
        """Wait for send-backs on their way and commit what is finished; False if some are not acknowledged."""
        return self._sender.settle(list(self._queues.values()), seconds)

    def next_due_ms(self) -> float | None:
        """When something is given to its listener again, whatever Kafka has; None if nothing waits for that."""
        return self._service.next_due_ms()

    def finish(self) -> None:
        """Start no listener any more, wait for the running ones and commit.

        It polls on, paused: a member that takes no part in a rebalance could not commit what its listeners finish.
        """
        self._service.pool.stop()
        self._finish_by = time.monotonic() + self._limits.await_termination_seconds
        while self._service.pool.is_working() and self._seconds_left():
            self._poll_on()
            self._commit_when_due(self._clock())
        while not self._is_settled() and self._seconds_left():
            self._poll_on()

    def _is_settled(self) -> bool:
        queues = list(self._queues.values())
        return self._sender.settle(queues, _SETTLE_SECONDS) and all(queue.to_commit is None for queue in queues)

    def _poll_on(self) -> None:
        """A turn in which nothing begins: what is read now is left, its offset stays uncommitted."""
        self._flow.pause([queue for queue in self._queues.values() if not queue.paused])
        polled = self._consumer.poll(_BUSY_SECONDS)
        if polled is not None and polled.error() is not None:
            self._failed(polled)
        self._sender.serve()

    def end(self) -> None:
        """A shutdown is never an outcome: what did not finish stays uncommitted and comes again."""
        left = self._seconds_left()
        with ExitStack() as closing:
            closing.callback(self._consumer.close)
            closing.callback(self._sender.close)
            if not self._service.pool.close(left):
                logger.warning("some listeners still run; their messages will be delivered again")
            for queue in self._queues.values():
                queue.drop()
            self._sender.leave(list(self._queues.values()), self._limits.await_termination_seconds)
            self._queues.clear()

    def _seconds_left(self) -> float:
        """For running listeners, once the consumer is to stop."""
        if self._finish_by is None:
            return min(self._limits.await_termination_seconds, self._limits.leave_seconds)
        return max(0.0, self._finish_by - time.monotonic())


def _names(partitions: Iterable[TopicPartition]) -> str:
    return ", ".join(f"{one.topic}-{one.partition}" for one in partitions) or "none"


def _subscribed(queue: ProcessQueue, messages: Sequence[Message], wanted: TagExpression) -> list[Message]:
    """The messages whose tag is wanted; the others are finished at once (RocketMQ: TF-02, TF-07)."""
    kept: list[Message] = []
    for message in messages:
        (kept.append if wanted.wants(message.tags) else queue.finish)(message)
    return kept
