"""A batch that grows while it is written."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import chain
from typing import Final

from reconsume.bridge.kafka.admin import Commit, Partition
from reconsume.bridge.process.polled_records import offset_of
from reconsume.bridge.scheduler.queues.partition_queues import PartitionQueue
from reconsume.bridge.scheduler.queues.read_ahead import DueRun
from reconsume.bridge.scheduler.targets.routing import Delivery, Router

PART: Final = 250
"""Number of records to decode before the first is produced. With more, records leave the processor's cache meanwhile,
which costs a third of the time for a record. Shown by benchmarks/scheduler/throughput.py."""


class DueBatch:
    """Due runs of records, and the deliveries decided so far.

    The worker decides about a first part before the transaction begins. `parts` adds the rest in the transaction's
    thread, while earlier records are in flight.

    Guarantees: no look-up and no wait happens while a transaction is open. The batch ends before the first record that
    is not plain (see `Router.route_plain`). An abandoned batch no longer grows.
    Tests: tests/unit/bridge/scheduler/delivery/test_due_batch.py, tests/models/scheduler/test_worker_model.py.

    Args:
        due: the runs; the deliveries belong to their first records, without a gap.
        deliveries: the deliveries so far.
        router: decides about the rest.

    Attributes:
        deliveries: grows with `parts`.
        is_cut: whether the batch ended before a record that is not plain.
    """

    def __init__(self, due: Sequence[DueRun], deliveries: list[Delivery], router: Router) -> None:
        self._due = due
        self._router = router
        self._is_left = False
        self.deliveries = deliveries
        self.is_cut = False

    @property
    def runs(self) -> list[DueRun]:
        """Return the runs of the deliveries so far."""
        return first_of(self._due, len(self.deliveries))

    def commits(self) -> dict[Partition, Commit]:
        """Return the offsets to commit with the deliveries so far."""
        return commits_of(self.runs)

    def sources(self) -> Iterator[tuple[PartitionQueue, int]]:
        """Return the queue and the offset of each delivery, including those that `parts` may add."""
        return ((run.queue, offset_of(message)) for run in self._due for _, message in run.records)

    @property
    def may_grow(self) -> bool:
        """Whether `parts` may add deliveries."""
        return len(self.deliveries) < sum(len(run.records) for run in self._due)

    def end(self) -> tuple[list[DueRun], list[Delivery]]:
        """Return the contents; nothing is added afterwards, even by an abandoned thread."""
        self._is_left = True
        deliveries = self.deliveries[:]
        return first_of(self._due, len(deliveries)), deliveries

    def all(self) -> Iterator[Delivery]:
        """Return the deliveries so far, then the ones that `parts` adds."""
        return chain.from_iterable(chain((self.deliveries,), self.parts()))

    def parts(self) -> Iterator[Sequence[Delivery]]:
        """Add the rest, and yield what was added, part by part."""
        skipped = len(self.deliveries)
        for run in self._due:
            begin, skipped = min(skipped, len(run.records)), max(0, skipped - len(run.records))
            for start in range(begin, len(run.records), PART):
                records = run.records[start : start + PART]
                added = self._router.route_plain((message for _, message in records), run.queue.topic)
                if self._is_left:
                    return
                self.deliveries += added
                yield added
                if len(added) < len(records):
                    self.is_cut = True
                    return


def size_of(runs: Sequence[DueRun]) -> tuple[int, int]:
    """Return how many records these are, and the bytes of their values."""
    return sum(len(run.records) for run in runs), sum(run.bytes for run in runs)


def commits_of(runs: Sequence[DueRun]) -> dict[Partition, Commit]:
    """Return the offsets to commit when these runs are delivered."""
    return {run.where: run.commit for run in runs}


def first_part(runs: Sequence[DueRun]) -> list[DueRun]:
    """Return the runs of the records to decide about before the transaction begins."""
    return first_of(runs, PART)


def first_of(runs: Sequence[DueRun], count: int) -> list[DueRun]:
    """Return the runs of the first `count` records."""
    found = []
    for run in runs:
        if count <= 0:
            break
        found.append(run.first(min(count, len(run.records))))
        count -= len(run.records)
    return found
