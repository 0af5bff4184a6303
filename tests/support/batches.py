"""Batches for the writers of the scheduler, without a worker that makes them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import cast

from reconsume.bridge.kafka.admin import Commit, Partition
from reconsume.bridge.scheduler.delivery.due_batch import DueBatch
from reconsume.bridge.scheduler.targets.routing import Delivery


@dataclass
class _Batch:
    deliveries: list[Delivery]
    offsets: Mapping[Partition, Commit]
    more: Iterable[Delivery]

    @property
    def may_grow(self) -> bool:
        return bool(self.more)

    def commits(self) -> Mapping[Partition, Commit]:
        return self.offsets

    def all(self) -> Iterable[Delivery]:
        return chain(self.deliveries[:], map(self._add, self.more))

    def _add(self, one: Delivery) -> Delivery:
        self.deliveries.append(one)
        return one


def batch_of(
    deliveries: Sequence[Delivery], offsets: Mapping[Partition, Commit], more: Iterable[Delivery] = ()
) -> DueBatch:
    """Return a batch that commits these offsets; `more` comes while it is written."""
    return cast("DueBatch", _Batch(list(deliveries), offsets, more))
