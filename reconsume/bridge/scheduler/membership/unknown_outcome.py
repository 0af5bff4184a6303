"""A batch whose commit is in doubt.

Guarantees: the outcome is looked up before anything else is delivered, by the committed offsets or by the worker's
positions, because a coordinator that has just started may not have loaded all commits. Meanwhile the worker stays in
its group, because leaving would hold up all workers; reading stops when the queues are full.
Tests: tests/unit/bridge/scheduler/test_worker.py, tests/models/scheduler/test_worker_model.py,
tests/integration/scheduler/test_faults.py.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice

from reconsume.bridge.kafka.admin import Commit, Partition
from reconsume.bridge.process.safe_logger import SafeLogger
from reconsume.bridge.scheduler.delivery.writers import BatchWriter, WriterBroken
from reconsume.bridge.scheduler.membership.earlier_owners import EarlierOwners, EarlierProgress, covers
from reconsume.bridge.scheduler.queues.read_ahead import DueRun, ReadAhead
from reconsume.bridge.scheduler.targets.routing import Delivery
from reconsume.delay_levels.errors import KafkaNotReachable, ReconsumeError

logger = SafeLogger(__name__)


@dataclass(frozen=True, slots=True)
class CommittedRun:
    """The committed part of a batch in one partition."""

    run: DueRun
    batch: Sequence[Delivery]


@dataclass(frozen=True, slots=True)
class UnknownOutcome:
    """The batch in doubt, and the offsets that it was to commit, which prove its outcome."""

    runs: Sequence[DueRun]
    batch: Sequence[Delivery]
    offsets: Mapping[Partition, Commit]

    def resolve(
        self, writer: BatchWriter, owners: EarlierOwners, read_ahead: ReadAhead
    ) -> Sequence[CommittedRun] | None:
        """Return the committed part; None while it is unknown.

        Raises:
            WriterBroken: the brokers refused the request.
        """
        asked = self.partitions(read_ahead)
        try:
            writer.recover()
            left, undecided = owners.ask(asked)
        except KafkaNotReachable as error:
            logger.warning("batch still in doubt: %s", error)
            return None
        except ReconsumeError as error:
            raise WriterBroken(error) from error
        if undecided:
            return None
        counted = self.committed_runs(asked, left)
        delivered = sum(len(one.batch) for one in counted)
        logger.warning("batch in doubt is resolved: %d of %d records were delivered", delivered, len(self.batch))
        return counted

    def partitions(self, read_ahead: ReadAhead) -> list[Partition]:
        """Return the partitions to ask: those that the worker has owned all the time."""
        return [run.where for run in self.runs if read_ahead.has(run.queue)]

    def committed_runs(
        self, asked: Collection[Partition], left: Mapping[Partition, EarlierProgress]
    ) -> list[CommittedRun]:
        """Return the committed part; the rest is still to be delivered.

        A transaction changes all or nothing, but each partition is judged by itself: another worker may have continued
        one of them.

        Args:
            asked: the current result of `partitions`.
            left: where these partitions continue, if they have a commit.
        """
        deliveries = iter(self.batch)
        counted = list[CommittedRun]()
        for run in self.runs:
            part, where = list(islice(deliveries, len(run.records))), run.where
            if where in asked and covers(left.get(where), where, *self.offsets[where]):
                counted.append(CommittedRun(run, part))
        return counted
