"""A batch of which nobody knows yet whether it was committed."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Final

from confluent_kafka import TopicPartition

from reconsume.bridge.admin import Partition
from reconsume.bridge.scheduler.earlier_owners import Left
from reconsume.bridge.scheduler.read_ahead import DueRun, ReadAhead
from reconsume.bridge.scheduler.routing import Delivery
from reconsume.delay_levels.done_apart import decode_either

__all__ = ["Counted", "Doubt"]

_SURE_MS: Final = 2_000.0
"""A coordinator that has just started may not have read yet what it committed before."""


@dataclass(frozen=True, slots=True)
class Counted:
    """What turned out to be committed: one partition's part of the batch."""

    run: DueRun
    position: TopicPartition
    batch: Sequence[Delivery]


@dataclass(slots=True)
class Doubt:
    """The batch, and the positions that it was to commit; those tell whether it was."""

    runs: Sequence[DueRun]
    batch: Sequence[Delivery]
    positions: Sequence[TopicPartition]
    _undone_since: float | None = field(default=None, init=False)

    def partitions(self, read_ahead: ReadAhead) -> list[Partition]:
        """Where to ask: the partitions that the worker has had all the time; the others have, or had, another owner."""
        return [(run.queue.topic, run.queue.partition) for run in self.runs if read_ahead.has(run.queue)]

    def settle(
        self, asked: Collection[Partition], left: Mapping[Partition, Left], now_ms: float
    ) -> list[Counted] | None:
        """The committed part; the rest is still to be delivered. None if it is too early to say so.

        A transaction changes all or nothing, but each partition is judged by itself: one may have gone to somebody who
        went on there.

        Args:
            asked: `partitions` of now.
            left: what is committed of them, if anything is.
            now_ms: when the answer came.
        """
        deliveries = iter(self.batch)
        counted = list[Counted]()
        for run, position in zip(self.runs, self.positions, strict=True):
            part, where = list(islice(deliveries, len(run.records))), (position.topic, position.partition)
            if where in asked and where in left and _covers(left[where], position):
                counted.append(Counted(run, position, part))
        if len(counted) < len(asked):
            self._undone_since = now_ms if self._undone_since is None else self._undone_since
            if now_ms - self._undone_since < _SURE_MS:
                return None
        return counted


def _covers(committed: Left, position: TopicPartition) -> bool:
    """Whether the group stands there, or has gone on from there.

    What leaves out of turn changes the metadata alone.
    """
    if committed.offset != position.offset:
        return committed.offset > position.offset
    return decode_either(position.offset, position.metadata) <= committed.done
