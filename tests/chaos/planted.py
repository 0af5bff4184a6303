"""A scheduler worker with a bug planted: `python -m tests.chaos.planted BUG CLOCK ARGUMENTS…`."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final

from reconsume.bridge.clock import now_ms
from reconsume.bridge.scheduler import service
from reconsume.bridge.scheduler.routing import Delivery
from reconsume.bridge.scheduler.worker import Worker
from reconsume.bridge.scheduler.writers import TransactionalWriter
from reconsume.cli.chaos.worker import run

__all__ = ["BUGS"]

_WIDE_SECONDS: Final = 0.2
"""So that a fault falls between two steps that are only milliseconds apart."""


def commit_before_the_produce() -> None:
    """The offsets are committed, and then the records are written."""

    def transaction(self: Any, batch: Sequence[Delivery], positions: list[Any], metadata: Any) -> None:
        producer = self._producer
        producer.begin_transaction()
        producer.send_offsets_to_transaction(positions, metadata, 5)
        producer.commit_transaction(5)
        threading.Event().wait(_WIDE_SECONDS)
        producer.begin_transaction()
        self._produce(batch)
        producer.commit_transaction(5)

    setattr(TransactionalWriter, "_transaction", transaction)  # noqa: B010 - a bug is no type


def no_rewind_after_an_abort() -> None:
    """What was in an aborted batch is taken as done; the next commit passes over it.

    A batch is aborted when the group rebalances between the look at its generation and the commit.
    """
    transaction = TransactionalWriter._transaction

    def slow(self: TransactionalWriter, batch: Sequence[Delivery], positions: list[Any], metadata: Any) -> None:
        threading.Event().wait(_WIDE_SECONDS)
        transaction(self, batch, positions, metadata)

    def learn(self: Any, runs: list[Any], *_: object) -> None:
        del self
        for one in runs:
            one.drop()

    setattr(TransactionalWriter, "_transaction", slow)  # noqa: B010
    setattr(Worker, "_learn", learn)  # noqa: B010


def due_by_the_workers_clock() -> None:
    """When a record is due is looked up on the machine's own clock."""

    class OwnClock:
        def __call__(self) -> float:
            return now_ms()

        def heard(self, *_: object) -> None: ...

        def saw(self, *_: object) -> None: ...

    setattr(service, "BrokersClock", OwnClock)  # noqa: B010


BUGS: Final[dict[str, Callable[[], None]]] = {
    one.__name__: one for one in (commit_before_the_produce, no_rewind_after_an_abort, due_by_the_workers_clock)
}

if __name__ == "__main__":
    BUGS[sys.argv[1]]()
    run(Path(sys.argv[2]), sys.argv[3:])
