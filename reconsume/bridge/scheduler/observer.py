"""A worker's signals: metrics, liveness and readiness."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from reconsume.bridge.metrics.registry import SchedulerMetrics
from reconsume.bridge.process.brokers_clock import monotonic_ms
from reconsume.bridge.process.clock import Clock, now_ms
from reconsume.bridge.process.safe_logger import SafeLogger
from reconsume.bridge.scheduler.queues.backlog import WorkerBacklog
from reconsume.bridge.scheduler.queues.read_ahead import ReadAhead
from reconsume.delay_levels.wire.names import TopicNames

logger = SafeLogger(__name__)

_LOOK_EVERY_MS: Final = 1_000
_LOOK_AT_LAST_MS: Final = 5_000
"""While records are due, counting the waiting ones is put off for at most this long."""
_STUCK_MS: Final = 120_000
"""A transaction gives up after 15 s at most; a loop that is silent for eight times that hangs."""


class WorkerObserver:
    """Records what one worker did, and keeps its logic free of metrics and logs.

    Args:
        names: the installation's topics.
        metrics: the metrics to update.
        clock: returns milliseconds, for the moments at which records are due.
        partitions: returns the number of partitions for all workers; 0 if unknown.
        elapsed: monotonic milliseconds.
    """

    def __init__(
        self,
        names: TopicNames,
        metrics: SchedulerMetrics,
        clock: Clock = now_ms,
        partitions: Callable[[], int] = lambda: 0,
        elapsed: Clock = monotonic_ms,
    ) -> None:
        self._names = names
        self._metrics = metrics
        self._clock = clock
        self._elapsed = elapsed
        self._alive_at = elapsed()
        self._partitions = partitions
        self._ready = False
        self._own, self._refused, self._told = 0, 0, ""
        self._looked_at = 0.0
        self.waiting = WorkerBacklog(names, clock)
        metrics.scraped.waiting = self.waiting.levels
        metrics.scraped.parked = self.waiting.parked

    def alive(self) -> None:
        """Note a turn of the loop."""
        self._alive_at = self._elapsed()

    def assigned(self, partitions: int, refused: int) -> None:
        """Note that the worker has joined the group; a standby without partitions is ready too.

        Args:
            partitions: number of partitions that it schedules from.
            refused: number of its partitions that it does not schedule from.
        """
        self._ready = True
        self._own, self._refused = partitions, refused
        self._metrics.partitions.set(partitions)
        self._metrics.refused.set(refused)

    def look(self, read_ahead: ReadAhead) -> None:
        """Count the waiting records, and log the partitions after a change; at most once a second.

        Counting more often would cost too much, and a rebalance has several steps. Due records go first, for up to five
        seconds.
        """
        now, elapsed = self._clock(), self._elapsed()
        passed = elapsed - self._looked_at
        if passed < _LOOK_EVERY_MS or (passed < _LOOK_AT_LAST_MS and _is_due(read_ahead, now)):
            return
        self._looked_at = elapsed
        self.waiting.seen([queue.look(now) for queue in read_ahead])
        self._tell_partitions()

    def _tell_partitions(self) -> None:
        total = self._partitions()
        told = f"{self._own} of {total} partitions" if total >= self._own + self._refused else f"{self._own} partitions"
        if self._refused:
            told += f", {self._refused} are not scheduled from"
        if self._ready and told != self._told:
            self._told = told
            logger.info("ready, %s", told)

    def not_ready(self) -> None:
        """Note that the worker restarts."""
        self._ready, self._told = False, ""
        self._metrics.partitions.set(0)
        self._metrics.refused.set(0)
        self.waiting.seen(())

    def lateness(self, topic: str, now: float, due: list[int]) -> None:
        """Record how late the records of a topic are delivered; times are in milliseconds."""
        self._metrics.lateness.observe(self._names.level_of(topic), now, due)

    def done(self, outcomes: Mapping[tuple[str, str], int]) -> None:
        """Note a committed batch, with records by outcome and group."""
        self._metrics.count(outcomes)
        if dropped := sum(number for (outcome, _), number in outcomes.items() if outcome == "dropped"):
            logger.warning("%d send-backs dropped: retryQueueNums of their groups is 0", dropped)

    def aborted(self, reason: str) -> None:
        """Note an aborted batch, which will be delivered again."""
        self._metrics.aborts.inc()
        logger.warning("batch not delivered, trying again: %s", reason)

    def is_alive(self) -> bool:
        """Return whether the loop has turned recently."""
        return self._elapsed() - self._alive_at < _STUCK_MS

    def is_ready(self) -> bool:
        """Return whether the worker has joined its group."""
        return self._ready


def _is_due(read_ahead: ReadAhead, now: float) -> bool:
    due = read_ahead.next_due_ms()
    return due is not None and due <= now
