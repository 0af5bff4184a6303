"""Reactions of a worker to an aborted batch."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from reconsume.bridge.process.clock import Clock
from reconsume.bridge.process.safe_logger import SafeLogger
from reconsume.bridge.scheduler.delivery.refusals import Refusals, wheres_of
from reconsume.bridge.scheduler.delivery.writers import BatchAborted
from reconsume.bridge.scheduler.queues.read_ahead import LONGEST_HOLD_MS, DueRun
from reconsume.bridge.scheduler.targets.routing import Delivery, Router
from reconsume.bridge.writing.batch_size import BatchSize
from reconsume.delay_levels.errors import KafkaRefused, TopicNotReady

logger = SafeLogger(__name__)

BACK_OFF_MS: Final = 500
"""How long a batch waits that no broker accepted."""


class AbortedBatches:
    """Learns from aborted batches: wait, find the refused record, halve the batch, or single out its one record.

    Tests: tests/unit/bridge/scheduler/test_worker.py, tests/integration/scheduler/test_refusals.py.

    Args:
        router: forgets targets that may have been deleted.
        refusals: finds the refused record.
        size: the batch size, which is halved.
        clock: returns milliseconds, for the moments at which records are due.
        elapsed: monotonic milliseconds.
    """

    def __init__(self, router: Router, refusals: Refusals, size: BatchSize, clock: Clock, elapsed: Clock) -> None:
        self._router = router
        self._refusals = refusals
        self._size = size
        self._clock = clock
        self._elapsed = elapsed

    def learn(self, runs: Sequence[DueRun], batch: Sequence[Delivery], aborted: BatchAborted) -> None:
        """Decide how the records of an aborted batch are tried again."""
        now, is_gone = self._elapsed(), isinstance(aborted.error, TopicNotReady)
        if aborted.passing or is_gone:
            # librdkafka reports a deleted target late and with other errors too, so the targets are looked up again.
            self._router.forget()
        if aborted.unanswered:
            # The answer ends the hold. Partitions of the batch without such records are written at once.
            for queue in aborted.unanswered:
                queue.held_until_ms = self._clock() + LONGEST_HOLD_MS
        elif aborted.passing or (is_gone and len(batch) == 1 and batch[0].outcome != "quarantined"):
            # The next look-up of a missing target gives the verdict: the topic may be created again. If no report tells
            # which right was missing, it may be that to offsets or positions; brokers tell about those to write.
            if type(aborted.error) is not KafkaRefused or not self._refusals.learn(runs, batch, aborted, now):
                hold(runs, self._clock() + BACK_OFF_MS)
        elif len(batch) == 1:
            self._single_out(runs, batch[0], aborted, now)
        elif is_gone or not self._refusals.learn(runs, batch, aborted, now):
            self._size.halve(len(batch))

    def _single_out(self, runs: Sequence[DueRun], one: Delivery, aborted: BatchAborted, now: float) -> None:
        """Blame the only record of a batch; if it was on its way to the quarantine, its partition waits instead.

        Its own topic may be the refused one, for example after the right to read it was revoked, so the record is not
        blamed.
        """
        [where] = wheres_of(runs)
        if not self._refusals.is_blamed(where):
            self._refusals.refused_alone(where, one, aborted.error, now)
            return
        self._refusals.pardon(where)
        logger.error("%s-%d@%d is stuck: %s", *where, aborted.error)
        hold(runs, self._clock() + LONGEST_HOLD_MS)


def hold(runs: Sequence[DueRun], until_ms: float) -> None:
    """Deliver nothing of these partitions before `until_ms`."""
    for run in runs:
        run.hold(until_ms)
