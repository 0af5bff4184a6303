"""How much of each partition is read before listeners have finished it."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Final

from confluent_kafka import Consumer, TopicPartition

from reconsume.consumers.partitions.process_queue import ProcessQueue

__all__ = ["FlowControl", "Limits"]

_MOMENT_SECONDS: Final = 0.0002
_MOMENTS: Final = 20


@dataclass(frozen=True, slots=True)
class Limits:
    """Flow control and timeouts.

    Attributes:
        queue_records: unfinished messages of one partition (`pull_threshold_for_queue`).
        queue_bytes: their bodies in bytes (`pull_threshold_size_for_queue`).
        max_span: from the smallest unfinished offset to the newest (`consume_concurrently_max_span`).
        timeout_ms: of a listener (`consume_timeout`).
        await_termination_seconds: for running listeners at shutdown.
        leave_seconds: for running listeners that consume in order, when their partition is given away.
        settle_seconds: after that, for send-backs on their way; both together are less than `max.poll.interval.ms`.
    """

    queue_records: int
    queue_bytes: int
    max_span: int
    timeout_ms: float
    await_termination_seconds: float
    leave_seconds: float = 200.0
    settle_seconds: float = 5.0


class FlowControl:
    """Pauses and resumes partitions.

    Args:
        consumer: reads.
        limits: how much.
        is_suspended: whether its listeners want nothing more of a partition for now.
        is_held: whether nothing more of a partition may be read for another reason.
    """

    def __init__(
        self,
        consumer: Consumer,
        limits: Limits,
        is_suspended: Callable[[ProcessQueue], bool],
        is_held: Callable[[ProcessQueue], bool],
    ) -> None:
        self._consumer = consumer
        self._limits = limits
        self._is_suspended = is_suspended
        self._is_held = is_held

    def pause_and_resume(self, queues: Collection[ProcessQueue]) -> None:
        """Pause partitions that are full, and resume those that are so no more."""
        full = {queue for queue in queues if self._is_full(queue)}
        pause = [queue for queue in queues if queue in full and not queue.paused]
        for _ in range(_MOMENTS):
            # Pausing throws away what is fetched, so a queue that is full for a moment gets that moment:
            # benchmarks/throughput.py.
            if not all(self._is_suspended(queue) for queue in pause):
                time.sleep(_MOMENT_SECONDS)
                pause = [queue for queue in pause if self._is_full(queue)]
        resume = [queue for queue in queues if queue.paused and queue not in full]
        self.pause(pause)
        self.resume(resume)

    def pause(self, queues: Collection[ProcessQueue]) -> None:
        """Read nothing more of these."""
        if queues:
            self._consumer.pause([TopicPartition(queue.topic, queue.partition) for queue in queues])
        for queue in queues:
            queue.paused = True

    def resume(self, queues: Collection[ProcessQueue]) -> None:
        """Read on in these."""
        if queues:
            self._consumer.resume([TopicPartition(queue.topic, queue.partition) for queue in queues])
        for queue in queues:
            queue.paused = False

    def _is_full(self, queue: ProcessQueue) -> bool:
        limits = self._limits
        return (
            self._is_suspended(queue)
            or queue.is_full(limits.queue_records, limits.queue_bytes, limits.max_span)
            or self._is_held(queue)
        )
