"""A POSITIONS topic in memory, with transactions that are open, committed or aborted."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Literal

from reconsume.bridge.kafka.admin import Commit, Partition
from reconsume.bridge.scheduler.delivery.positions import LastPositions
from reconsume.delay_levels.errors import ReconsumeError
from reconsume.delay_levels.wire.positions import StoredPosition

__all__ = ["PositionsInMemory", "Transaction"]


@dataclass(eq=False)
class Transaction:
    """Of one worker."""

    state: Literal["open", "committed", "aborted"] = "open"


@dataclass
class PositionsInMemory:
    """As `PositionLog` reads it.

    Attributes:
        ids: of topics; any other topic has the id "1".
        refusal: raised to readers.
        reads: how often each kind was read.
    """

    log: list[tuple[Partition, StoredPosition | None, Transaction]] = field(default_factory=list)
    ids: dict[str, str] = field(default_factory=dict)
    refusal: ReconsumeError | None = None
    reads: dict[str, int] = field(default_factory=lambda: {"uncommitted": 0, "committed": 0})
    _forgotten: set[str] = field(default_factory=set)

    def write(self, offsets: Mapping[Partition, Commit], transaction: Transaction) -> Transaction:
        """The records that go with these commits."""
        for where, one in offsets.items():
            if (topic_id := self.id_of(where[0])) is not None:
                self.log.append((where, StoredPosition(*one, topic_id, "somebody"), transaction))
        return transaction

    def reset(self, where: Partition) -> None:
        self.log.append((where, None, Transaction("committed")))

    def meet(self, topics: Iterable[str]) -> None:
        self._forgotten.difference_update(topics)

    def forget(self, topics: Iterable[str]) -> None:
        self._forgotten.update(topics)

    def learn(self, ids: Mapping[str, str]) -> None:
        """Do nothing: `ids` are those of the present topics."""

    def id_of(self, topic: str) -> str | None:
        return None if topic in self._forgotten else self.ids.get(topic, "1")

    def uncommitted(self) -> LastPositions:
        return self._read("uncommitted", len(self.log))

    def committed(self) -> LastPositions:
        still_open = (at for at, (_, _, transaction) in enumerate(self.log) if transaction.state == "open")
        return self._read("committed", next(still_open, len(self.log)))

    def _read(self, kind: str, end: int) -> LastPositions:
        self.reads[kind] += 1
        if self.refusal is not None:
            raise self.refusal
        counts = ("open", "committed", "aborted") if kind == "uncommitted" else ("committed",)
        return LastPositions(
            end,
            {where: (at, one) for at, (where, one, of) in enumerate(self.log[:end]) if of.state in counts},
        )
