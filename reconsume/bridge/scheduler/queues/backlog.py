"""The waiting records of a worker's partitions by level, from its memory and from offsets of unread ones."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from reconsume.bridge.kafka.admin import KafkaAdmin, Partition
from reconsume.bridge.metrics.registry import LevelWaiting
from reconsume.bridge.process.clock import Clock
from reconsume.bridge.process.safe_logger import SafeLogger
from reconsume.delay_levels.errors import ReconsumeError
from reconsume.delay_levels.wire.names import TopicNames

logger = SafeLogger(__name__)

_EVERY_SECONDS: Final = 15.0


class PartitionHead(NamedTuple):
    """One partition as last seen by the worker.

    Attributes:
        delay_ms: the delay of its records; None if each has its own due moment.
        in_memory: number of records read ahead.
        due: number of those that are due.
        head_due_ms: when the first is due; None if none is in memory.
        read_to: the next offset to read; None before the first record or end.
        paused: whether reading is paused until records have left the memory.
        start: where the partition continued at its assignment; None if the group had no offset, or if it is unknown.
    """

    where: Partition
    delay_ms: int | None
    in_memory: int
    due: int
    head_due_ms: float | None
    read_to: int | None
    paused: bool = False
    start: int | None = None


class WorkerBacklog:
    """Waiting records of one worker, by level.

    Two threads write separate parts of it; a scrape reads it in a third thread.

    Args:
        names: the installation's topics, for the level in the metrics.
        clock: the process's clock.
    """

    def __init__(self, names: TopicNames, clock: Clock) -> None:
        self._names = names
        self._clock = clock
        self._heads: tuple[PartitionHead, ...] = ()
        self._ends: Mapping[Partition, int] = {}
        self._due_ends: Mapping[Partition, int] = {}

    @property
    def heads(self) -> tuple[PartitionHead, ...]:
        """Return the heads as last seen."""
        return self._heads

    def seen(self, heads: Iterable[PartitionHead]) -> None:
        """Note the current heads of the partitions."""
        self._heads = tuple(heads)

    def measured(self, ends: Mapping[Partition, int], due_ends: Mapping[Partition, int]) -> None:
        """Note the ends of partitions, and the offsets before which their records are due."""
        self._ends, self._due_ends = {**self._ends, **ends}, due_ends

    def levels(self) -> dict[str, LevelWaiting]:
        """Return the waiting records of each level."""
        now, found = self._clock(), dict[str, LevelWaiting]()
        for head in self._heads:
            level = self._names.level_of(head.where[0])
            before = found.get(level, LevelWaiting(0, 0, 0.0))
            late = 0.0 if head.head_due_ms is None else max(0.0, (now - head.head_due_ms) / 1000)
            found[level] = LevelWaiting(
                before.backlog + head.in_memory + _beyond(head, self._ends),
                before.overdue + head.due + _beyond(head, self._due_ends),
                max(before.overdue_seconds, late),
            )
        return found

    def parked(self) -> dict[str, int]:
        """Return the number of records in the parked topic of each group that has some."""
        found = {
            self._names.group_parked_in(head.where[0]): head.in_memory + _beyond(head, self._ends)
            for head in self._heads
            if self._names.is_parked(head.where[0])
        }
        return {group: count for group, count in found.items() if count}


def _beyond(head: PartitionHead, ends: Mapping[Partition, int]) -> int:
    """Return the number of offsets from the next one to read to the end."""
    end = ends.get(head.where)
    return 0 if end is None or head.read_to is None else max(0, end - head.read_to)


@dataclass(slots=True)
class EndsSampler:
    """Looks up every 15 s the ends of partitions that the worker has not read to their ends.

    It runs in a separate thread, because a worker that waits for an answer delivers nothing.

    Args:
        first: called in the same thread at the start and before each sample.
        told: called with the partitions and their ends after each sample.
    """

    waiting: WorkerBacklog
    offsets: KafkaAdmin
    clock: Clock
    first: Callable[[], None] = lambda: None
    told: Callable[[Sequence[PartitionHead], Mapping[Partition, int]], None] = lambda _heads, _ends: None

    def run(self, stop: threading.Event) -> None:
        """Sample until told to stop."""
        sampling = False
        while not stop.wait(_EVERY_SECONDS if sampling else 0):
            try:
                self.first()
                if sampling:
                    self.run_once()
            except ReconsumeError as error:
                logger.debug("backlog not measured: %s", error)
            except Exception:
                # Without this thread no stall is noticed, and no topic is listed.
                logger.exception("backlog not measured; trying again")
            sampling = True

    def run_once(self) -> None:
        """Sample once; partitions without a leader keep their last end, and are neither read nor stalled."""
        leaderless = self.offsets.leaderless({head.where[0] for head in self.waiting.heads})
        heads = [head for head in self.waiting.heads if head.where not in leaderless]
        ends = self.offsets.end_offsets([head.where for head in heads])
        behind: dict[int, list[Partition]] = {}
        for head in heads:
            if head.delay_ms is not None and head.due == head.in_memory and _beyond(head, ends):
                behind.setdefault(head.delay_ms, []).append(head.where)
        due_ends: dict[Partition, int] = {}
        for delay_ms, partitions in behind.items():
            due_ends |= self.offsets.offsets_at(partitions, int(self.clock()) - delay_ms)
        self.waiting.measured(ends, due_ends)
        self.told(heads, ends)
