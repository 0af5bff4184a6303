"""The poll loop: one thread that owns the Kafka consumer and never waits for a listener."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Sequence
from contextlib import ExitStack
from typing import Final

from reconsume.bridge.kafka.admin import Partition
from reconsume.bridge.kafka.errors import (
    has_no_offset,
    is_end,
    is_fatal,
    is_instance_fenced,
    is_missing,
    is_out_of_range,
    start_error,
    translate,
)
from reconsume.bridge.librdkafka.connections import Connections
from reconsume.bridge.librdkafka.membership import Membership, MembershipLost
from reconsume.bridge.process.polled_records import ClientError, PolledRecord, place_of
from reconsume.bridge.process.safe_logger import SafeLogger
from reconsume.bridge.reading.by_partition import by_partition
from reconsume.consumers.assigned_partitions import AssignedPartitions
from reconsume.consumers.message import Message
from reconsume.consumers.partitions.batch import PolledBatch, Reading
from reconsume.consumers.partitions.process_queue import ProcessQueue
from reconsume.consumers.subscriptions.subscription import Subscriptions, TagExpression
from reconsume.delay_levels.errors import KafkaNotReachable, KafkaRefused

logger = SafeLogger(__name__)

_FEW_RECORDS: Final = 500
_MANY_RECORDS: Final = 1_000
"""In one turn, where there is room: each turn costs switches between threads, whatever it reads."""
_BUSY_SECONDS: Final = 0.02
_IDLE_SECONDS: Final = 0.2
_COMMIT_EVERY_MS: Final = 1_000
_EXPIRE_EVERY_MS: Final = 200
_SETTLE_SECONDS: Final = 0.5


class ConsumeLoop:
    """Polls, hands messages to listeners, and commits, all in the one thread that calls the consumer.

    confluent-kafka (2.16) admits one thread at a time to a consumer, and waiting threads check every millisecond.
    Beside a thread that polls all the time, another one waits for seconds or minutes.
    Test: tests/integration/consumers/test_push_consumer_exactly_once.py.

    Guarantees:
        1. The committed offset is the smallest unfinished one; nothing is committed for a partition that was lost.
        2. No listener holds up the loop: a full partition is paused, so `max.poll.interval.ms` is never at risk.
        3. A retry topic without a committed offset is read from its beginning (RocketMQ: TN-06).
        4. Finished messages are committed, also in a rebalance or a shutdown: see `AssignedPartitions` and `finish`.
    Tests: tests/unit/consumers/partitions/test_finish.py, tests/integration/consumers/test_push_consumer_rebalance.py,
    tests/integration/consumers/test_push_consumer_orderly.py, tests/chaos/test_rebalances.py.
    """

    def __init__(
        self, partitions: AssignedPartitions, subscriptions: Subscriptions, connections: Connections | None = None
    ) -> None:
        self.partitions = partitions
        self._consumer = partitions.consumer
        self._service = partitions.service
        self._sender = partitions.sender
        self._subscriptions = subscriptions
        self._connections = connections
        self._limits = partitions.settings.limits
        self._reading = Reading(partitions.settings.retry_topic, partitions.settings.namespace.topic_prefix)
        self._clock = partitions.service.clock
        self._commit_at = 0.0
        self._expire_at = 0.0

    def run(self, stop: threading.Event) -> None:
        """Consume until told to stop, then let running listeners finish and commit.

        Raises:
            MembershipLost: the consumer is no longer a member and gets no more messages.
        """
        self.partitions.stop = stop
        self.begin()
        try:
            while not stop.is_set():
                self.run_once()
            self.finish()
        except BaseException:
            try:
                self.end()
            except Exception:
                logger.exception("error while a failed consumer was closed")
            raise
        self.end()

    def begin(self) -> None:
        """Subscribe; a later turn assigns the partitions."""
        self._consumer.subscribe([*self._subscriptions, self._reading.retry_topic])

    def run_once(self) -> None:
        """Run one turn: poll, hand out, retry due messages, pause or resume, commit."""
        queues = self.partitions.queues
        self._check()
        busy, limits = any(queue.size for queue in queues.values()), self._limits
        rooms = (queue.room(limits.queue_records, limits.max_span) for queue in queues.values())
        self._read(_BUSY_SECONDS if busy else _IDLE_SECONDS, min(rooms, default=_FEW_RECORDS))
        self.partitions.restart()
        self._begin_fresh()
        self._service.tick()
        if not queues:
            self._service.idle()
        self._sender.serve()
        now = self._clock()
        if now >= self._expire_at:
            self._expire_at = now + _EXPIRE_EVERY_MS
            for queue in queues.values():
                self._service.expire(queue, self._limits.timeout_ms)
        self.partitions.pause_and_resume()
        self._commit_when_due(now)

    def _check(self) -> None:
        """Raise `MembershipLost` if this consumer gets no more messages."""
        if isinstance(self._connections, Membership):
            self._connections.check(has_partitions=bool(self.partitions.queues))
        elif self._connections is not None:
            try:
                self._connections.check()
            except KafkaNotReachable as error:
                raise MembershipLost(str(error)) from error

    def _read(self, timeout: float, room: int) -> None:
        """Read as many records as each partition has room for.

        `consume(n, t)` alone would wait for n records or for the whole time t.
        """
        self._consumer.follow()
        first = self._consumer.poll(timeout)
        if first is None:
            return
        owner = self._queue_of(first)
        rest = self._consumer.consume(min(max(room, _FEW_RECORDS), _MANY_RECORDS) - 1)
        # A rebalance may have happened with them: then the partition's new owner reads the first one again.
        polled = [first, *rest] if self._queue_of(first) is owner else rest
        errors: list[PolledRecord] = []
        for topic, partition, failed, run in by_partition(polled):
            if failed:
                errors += run
            elif (queue := self.partitions.queues.get((topic or "", partition or 0))) is not None:
                self._hand_out(queue, PolledBatch(run, self._reading))
        self._heed(errors)

    def _begin_fresh(self) -> None:
        """Hand out the first messages of partitions whose finished messages are now known."""
        for queue, messages in self.partitions.kept_progress.learn(self.partitions.queues.values()):
            self._hand_out(queue, messages)

    def _hand_out(self, queue: ProcessQueue, messages: Sequence[Message]) -> None:
        if queue.held is not None:
            queue.held.append(messages)
            return
        messages = queue.begin(messages)
        wanted = self._subscriptions.get(queue.topic)
        if wanted is not None and wanted.tags is not None:
            # A retry is not filtered again, whatever the subscription says now (RocketMQ: TF-04).
            messages = _subscribed(queue, messages, wanted)
        self._service.accept(queue, messages)

    def _commit_when_due(self, now: float) -> None:
        if now >= self._commit_at:
            self._commit_at = now + _COMMIT_EVERY_MS
            self.partitions.commit()

    def _queue_of(self, polled: PolledRecord) -> ProcessQueue | None:
        return self.partitions.queues.get(place_of(polled))

    def _heed(self, errors: Iterable[PolledRecord]) -> None:
        out_of_range: dict[Partition, bool] = {}
        for polled in errors:
            error, partition = polled.error(), polled.partition()
            assert error is not None
            if is_out_of_range(error) and partition is not None:
                out_of_range[polled.topic() or "", partition] = has_no_offset(error)
            else:
                self._tell(error, polled.topic() or "")
        self.partitions.reset_offsets(out_of_range)

    def _tell(self, error: ClientError, topic: str) -> None:
        if is_missing(error):
            # RocketMQ: TN-09. The retry topic may appear later; librdkafka looks for it every 10 s.
            if topic != self._reading.retry_topic:
                remedy = f"{self._subscriptions.remedy_if_missing(topic)}; it is then read from its beginning"
                logger.warning("%s", translate(error, f"subscribing to {topic}", remedy))
        elif is_instance_fenced(error) and self.partitions.was_shut_out:
            # No other member fences it: librdkafka asks without its member id, see `GroupMember` of the schedulers.
            raise MembershipLost("no answer from the group's coordinator for a session")
        elif is_fatal(error):
            # The consumer reads nothing more, and brokers accept no commit.
            raise KafkaRefused(f"consuming: {error.str()}; this consumer has ended, start another one")
        elif (ended := start_error(error, f"starting to read {topic}".rstrip())) is not None:
            raise ended
        elif not is_end(error):  # conf may ask for the ends of partitions
            logger.warning("%s", translate(error, f"consuming {topic}"))

    def settle(self, seconds: float) -> bool:
        """Wait for send-backs in flight and commit finished messages; False if some are not acknowledged."""
        return self._sender.settle(list(self.partitions.queues.values()), seconds)

    def next_due_ms(self) -> float | None:
        """Return when a listener is called again without a new record; None if nothing is scheduled."""
        return self._service.next_due_ms()

    def finish(self) -> None:
        """Start no more listeners, wait for the running ones and commit.

        The paused consumer keeps polling: a member that misses a rebalance could not commit its last messages.
        """
        self.partitions.begin_to_finish()
        while self._service.pool.is_working() and self.partitions.seconds_left():
            self._poll_on()
            self._commit_when_due(self._clock())
        while not self._is_settled() and self.partitions.seconds_left():
            self._poll_on()

    def _is_settled(self) -> bool:
        queues = list(self.partitions.queues.values())
        return self._sender.settle(queues, _SETTLE_SECONDS) and all(queue.to_commit is None for queue in queues)

    def _poll_on(self) -> None:
        """Run a turn that starts nothing: records read now are ignored, and their offsets stay uncommitted."""
        self.partitions.pause(self.partitions.queues.values())
        polled = self._consumer.poll(_BUSY_SECONDS)
        if polled is not None and polled.error() is not None:
            self._heed([polled])
        self._sender.serve()

    def end(self) -> None:
        """Discard unfinished messages: a shutdown is never an outcome, so they stay uncommitted and are read again."""
        left = self.partitions.seconds_left()
        with ExitStack() as closing:
            closing.callback(self._consumer.close)
            closing.callback(self._sender.close)
            closing.callback(self._service.end)
            if not self._service.pool.close(left):
                logger.warning("some listeners still run; their messages will be delivered again")
            for queue in self.partitions.queues.values():
                queue.drop()
            self._sender.leave(list(self.partitions.queues.values()), self._limits.await_termination_seconds)
            self.partitions.queues.clear()


def _subscribed(queue: ProcessQueue, messages: Sequence[Message], wanted: TagExpression) -> list[Message]:
    """Return the messages with a wanted tag; the others are finished at once (RocketMQ: TF-02, TF-07)."""
    kept: list[Message] = []
    for message in messages:
        (kept.append if wanted.wants(message.tags) else queue.finish)(message)
    return kept
