"""The partitions that the group has given to a consumer: where they go on, and how they are given away."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

from reconsume.bridge.kafka.admin import Commit, Partition
from reconsume.bridge.kafka.errors import is_rebalance, translate
from reconsume.bridge.librdkafka.undecodable import metadata_of
from reconsume.bridge.reading.known_offsets import Answer, KnownOffsets
from reconsume.consumers.consume_settings import ConsumeSettings
from reconsume.consumers.listeners.listener_service import ListenerService
from reconsume.consumers.partitions.kept_progress import FreshPartitions
from reconsume.consumers.partitions.offset_reset import OffsetReset
from reconsume.consumers.partitions.process_queue import ProcessQueue
from reconsume.consumers.sending.senders import Sender
from reconsume.delay_levels.errors import ReconsumeError

__all__ = ["AssignedPartitions"]

logger = logging.getLogger(__name__)

_MOMENT_SECONDS: Final = 0.0002
_MOMENTS: Final = 20
_ASKING: Final = "asking what the group has committed"


@dataclass(eq=False, kw_only=True)
class AssignedPartitions:
    """For the thread that polls alone: librdkafka calls `assigned`, `revoked`, `lost` and `committed` in its polls.

    Guarantees: nothing is committed for a partition that was lost. What is finished is committed in a rebalance.
    Tests: tests/integration/test_push_consumer_rebalance.py, tests/integration/test_push_consumer_orderly.py,
    tests/chaos/test_rebalances.py.

    Attributes:
        settings: of the consumer.
        consumer: reads them.
        service: has their messages.
        sender: commits.
        known: what the group is known to have committed.
        queues: what was read of each.
        fresh: those of which it is not known yet what is done.
        stop: ends questions to the group's coordinator.
        finish_by: when a consumer that stops gives up its listeners; None before.
    """

    settings: ConsumeSettings
    consumer: Consumer
    service: ListenerService[Any]
    sender: Sender
    known: KnownOffsets
    queues: dict[Partition, ProcessQueue] = field(default_factory=dict)
    stop: threading.Event = field(default_factory=threading.Event)
    finish_by: float | None = None

    def __post_init__(self) -> None:
        self.fresh = FreshPartitions(self._ask_committed)
        retry_topic, consume_from = self.settings.retry_topic, self.settings.consume_from
        self._offset_reset = OffsetReset(self.consumer, retry_topic, consume_from, self._ask_committed)

    def assigned(self, _consumer: Consumer, partitions: list[TopicPartition]) -> None:
        """Begin with these."""
        logger.info("assigned: %s", _names(partitions))
        self.commit()
        self.known.meet(one.topic for one in partitions)
        for one in partitions:
            self._begin((one.topic, one.partition))

    def revoked(self, _consumer: Consumer, partitions: list[TopicPartition]) -> None:
        """Results that come from now on are discarded; send-backs on their way are awaited, then committed.

        The partitions that stay are committed too, before and after the wait for listeners: librdkafka joins again
        next, and brokers answer no commit of a member while it waits for the group (classic protocol), then refuse it.
        """
        logger.info("revoked: %s", _names(partitions))
        self.commit()
        self._give_away(partitions)
        self.commit()

    def lost(self, _consumer: Consumer, partitions: list[TopicPartition]) -> None:
        """Somebody else has them already; committing would be refused."""
        logger.warning("lost: %s; results that come late are discarded", _names(partitions))
        dropped = self._drop(partitions)
        self.service.leave(dropped, 0)
        self.sender.forget(dropped)

    def commit(self) -> None:
        """Commit what is finished, without waiting for it."""
        self.sender.commit(self.queues.values())

    def committed(self, error: KafkaError | None, partitions: Iterable[TopicPartition]) -> None:
        """The answer to a commit; what was not committed is tried again with the next one."""
        for one in partitions:
            refusal = error or one.error
            if refusal is None:
                self.known.note({(one.topic, one.partition): Commit(one.offset, one.metadata or "")})
            queue = self.queues.get((one.topic, one.partition))
            if refusal is not None and queue is not None:
                logger.warning("%s", translate(refusal, f"committing offsets of {one.topic}-{one.partition}"))
                queue.committed = None

    def reset_offset(self, topic: str, partition: int, *, had_none: bool) -> None:
        """No committed offset, or one that is no longer kept: each topic starts where it should.

        What was begun before is settled first, and what is committed then is not begun again.
        """
        if (topic, partition) not in self.queues:
            return
        self._give_away([TopicPartition(topic, partition)])
        start = self._offset_reset.start_of(topic, partition, had_none=had_none)
        self.consumer.incremental_unassign([start.where])
        self.consumer.incremental_assign([start.where])
        self._begin((topic, partition))
        # What stands beside the committed offset of a topic that was made again is about records that are no more.
        if start.is_made_again:
            self.fresh.discard((topic, partition))

    def pause_and_resume(self) -> None:
        """Pause partitions that are full, and resume those that are so no more."""
        queues = self.queues.values()
        full = {queue for queue in queues if self._is_full(queue)}
        pause = [queue for queue in queues if queue in full and not queue.paused]
        for _ in range(_MOMENTS):
            # Pausing throws away what is fetched, so a queue that is full for a moment gets that moment:
            # benchmarks/throughput.py.
            if not all(self.service.is_suspended(queue) for queue in pause):
                time.sleep(_MOMENT_SECONDS)
                pause = [queue for queue in pause if self._is_full(queue)]
        self.pause(pause)
        self._resume(queue for queue in queues if queue not in full)

    def pause(self, queues: Iterable[ProcessQueue]) -> None:
        """Read nothing more of these."""
        reading = [queue for queue in queues if not queue.paused]
        if reading:
            self.consumer.pause([TopicPartition(queue.topic, queue.partition) for queue in reading])
        for queue in reading:
            queue.paused = True

    def seconds_left(self) -> float:
        """For running listeners, once the consumer is to stop."""
        if self.finish_by is None:
            return min(self.settings.limits.await_termination_seconds, self.settings.limits.leave_seconds)
        return max(0.0, self.finish_by - time.monotonic())

    def _resume(self, queues: Iterable[ProcessQueue]) -> None:
        paused = [queue for queue in queues if queue.paused]
        if paused:
            self.consumer.resume([TopicPartition(queue.topic, queue.partition) for queue in paused])
        for queue in paused:
            queue.paused = False

    def _is_full(self, queue: ProcessQueue) -> bool:
        limits = self.settings.limits
        return (
            self.service.is_suspended(queue)
            or queue.is_full(limits.queue_records, limits.queue_bytes, limits.max_span)
            or self.fresh.is_held(queue)
        )

    def _begin(self, where: Partition) -> None:
        self.queues[where] = ProcessQueue(*where)
        self.fresh.add(where)

    def _give_away(self, partitions: list[TopicPartition]) -> None:
        dropped = self._drop(partitions)
        leave_seconds = self.settings.limits.leave_seconds
        if self.finish_by is not None:
            leave_seconds = min(leave_seconds, self.seconds_left())
        if not self.service.leave(dropped, leave_seconds):
            logger.warning("given away while a listener still works, so two may now: %s", _names(partitions))
        self.sender.leave(dropped, self.settings.limits.settle_seconds)

    def _drop(self, partitions: Iterable[TopicPartition]) -> list[ProcessQueue]:
        """Forget these partitions; they are resumed, because librdkafka (2.16) keeps a pause over a rebalance."""
        dropped = []
        for one in partitions:
            where = one.topic, one.partition
            self.fresh.discard(where)
            queue = self.queues.pop(where, None)
            if queue is not None:
                queue.drop()
                dropped.append(queue)
        self._resume(dropped)
        return dropped

    def _ask_committed(self, partitions: Collection[Partition], seconds: float) -> Mapping[Partition, Answer]:
        """What the group has committed; what its coordinator has lost is committed again.

        Who was put out of the group cannot: it learns that in its next poll, so it must not try again without one.
        """
        try:
            found = self.known.ask(lambda asked: _committed(self.consumer, asked, seconds), partitions, self.stop)
            if found.restored:
                self._restore([TopicPartition(*where, *one) for where, one in found.restored.items()])
        except KafkaException as error:
            return dict.fromkeys(partitions, translate(error, _ASKING))
        except ReconsumeError as error:
            return dict.fromkeys(partitions, error)
        return found.committed

    def _restore(self, offsets: list[TopicPartition]) -> None:
        try:
            self.consumer.commit(offsets=offsets, asynchronous=False)
        except KafkaException as error:
            if not is_rebalance(error.args[0]):
                raise
            logger.warning("%s", translate(error, f"restoring offsets of {_names(offsets)}"))


def _committed(consumer: Consumer, partitions: Collection[Partition], seconds: float) -> dict[Partition, Answer]:
    found = consumer.committed([TopicPartition(*where) for where in partitions], seconds)
    return {
        (one.topic, one.partition): Commit(one.offset, metadata_of(one) or "")
        if one.error is None
        else translate(one.error, f"{_ASKING} of {one.topic}-{one.partition}")
        for one in found
    }


def _names(partitions: Iterable[TopicPartition]) -> str:
    return ", ".join(f"{one.topic}-{one.partition}" for one in partitions) or "none"
