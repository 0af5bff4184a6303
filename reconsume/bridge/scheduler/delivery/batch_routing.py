"""Decides what goes into a batch, before its transaction begins."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from reconsume.bridge.process.clock import Clock
from reconsume.bridge.process.safe_logger import SafeLogger
from reconsume.bridge.scheduler.delivery.aborted_batches import BACK_OFF_MS
from reconsume.bridge.scheduler.delivery.due_batch import DueBatch, first_part
from reconsume.bridge.scheduler.delivery.refusals import Refusals
from reconsume.bridge.scheduler.queues.read_ahead import DueRun
from reconsume.bridge.scheduler.targets.look_ups import LookUpsSpent
from reconsume.bridge.scheduler.targets.routing import Delivery, Router
from reconsume.bridge.scheduler.withdrawals.cancels import CancelsNotRead
from reconsume.delay_levels.errors import KafkaNotReachable

logger = SafeLogger(__name__)

_LOOK_AGAIN_MS: Final = 50
_WHOLE_BATCHES: Final = 50
"""After a batch was cut short, this many batches are decided as a whole, because similar records may follow."""


class BatchRouting:
    """Makes batches of due records.

    Args:
        router: decides where each record goes.
        refusals: records that brokers refused; they overrule the router.
        unanswered: called with the error when no broker answered.
        clock: returns milliseconds, for the moments at which records are due.
        elapsed: monotonic milliseconds.
    """

    def __init__(
        self,
        router: Router,
        refusals: Refusals,
        unanswered: Callable[[str], None],
        clock: Clock,
        elapsed: Clock,
    ) -> None:
        self._router = router
        self._refusals = refusals
        self._unanswered = unanswered
        self._clock = clock
        self._elapsed = elapsed
        self._whole_batches = 0

    def begin(self, due: Sequence[DueRun]) -> DueBatch:
        """Decide about the first part of a batch, or about all of it if it may have records that need a lookup."""
        first = due if self._refusals or self._whole_batches else first_part(due)
        runs, deliveries = self._route(first)
        is_whole = len(deliveries) == sum(len(run.records) for run in first)
        return DueBatch(due if is_whole else runs, deliveries, self._router)

    def committed(self, batch: DueBatch) -> None:
        """Learn from a committed batch whether the next ones may grow while they are written."""
        self._whole_batches = _WHOLE_BATCHES if batch.is_cut else max(0, self._whole_batches - 1)

    def _route(self, due: Sequence[DueRun]) -> tuple[list[DueRun], list[Delivery]]:
        """Return the records to write.

        A run ends before a record that may be withdrawn or whose target is unknown. Other runs go
        on, because the number of lookups is bounded.
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
                run.hold(self._clock() + _LOOK_AGAIN_MS)
                logger.debug("%s-%d: %s", run.queue.topic, run.queue.partition, error)
            except KafkaNotReachable as error:
                run.hold(self._clock() + BACK_OFF_MS)
                unanswered = str(error)
            if routed := len(batch) - before:
                runs.append(run.first(routed))
        self._router.meet(tuple)  # otherwise the records would stay in memory until the next batch
        if unanswered:
            self._unanswered(unanswered)
        return self._refusals.overrule(runs, batch, self._elapsed()) if self._refusals else (runs, batch)
