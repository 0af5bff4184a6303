"""A scheduler worker with a bug planted: `python -m tests.chaos.programs.planted BUG CLOCK ARGUMENTS…`."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, Final

from confluent_kafka import Message

from reconsume.bridge.process.clock import now_ms
from reconsume.bridge.scheduler import service
from reconsume.bridge.scheduler.delivery.aborted_batches import AbortedBatches
from reconsume.bridge.scheduler.targets.routing import Delivery, Router
from reconsume.bridge.writing.exactly_once import Offsets
from reconsume.bridge.writing.transactions import Produce, Transactions
from reconsume.cli.chaos.cluster.worker import run

__all__ = ["BUGS"]

_WIDE_SECONDS: Final = 0.2
"""So that a fault falls between two steps that are only milliseconds apart."""
_WIDEST_SECONDS: Final = 1.0
"""The same for a fault that happens at one moment: a worker is between the two nearly all the time."""


def commit_before_the_produce() -> None:
    """The offsets are committed, and then the records are written."""
    write = Transactions.write

    def in_two(self: Transactions, produce: Produce, offsets: Offsets, metadata: Any) -> None:
        write(self, lambda _producer: None, offsets, metadata)
        threading.Event().wait(_WIDEST_SECONDS)
        write(self, produce, None, metadata)

    setattr(Transactions, "write", in_two)  # noqa: B010 - a bug is no type


def no_rewind_after_an_abort() -> None:
    """What was in an aborted batch is taken as done; the next commit passes over it.

    A batch is aborted when the group rebalances between the look at its generation and the commit.
    """
    write = Transactions.write

    def slow(self: Transactions, *given: Any) -> None:
        threading.Event().wait(_WIDE_SECONDS)
        write(self, *given)

    def learn(self: Any, runs: list[Any], *_: object) -> None:
        del self
        for one in runs:
            one.drop()

    setattr(Transactions, "write", slow)  # noqa: B010
    setattr(AbortedBatches, "learn", learn)  # noqa: B010


def due_by_the_workers_clock() -> None:
    """When a record is due is looked up on the machine's own clock."""

    class OwnClock:
        is_in_doubt = False

        def __call__(self) -> float:
            return now_ms()

        def heard(self, *_: object) -> None: ...

        def saw(self, *_: object) -> None: ...

    setattr(service, "BrokersClock", OwnClock)  # noqa: B010


def the_next_record_is_blamed_too() -> None:
    """The record that comes after one for the quarantine goes there too."""
    quarantine, route, blamed = Router.quarantine, Router.route, list[str]()

    def blame(self: Router, message: Message, reason: str) -> Delivery:
        blamed.append(reason)
        return quarantine(self, message, reason)

    def after(self: Router, messages: Iterable[Message], batch: list[Delivery], topic: str) -> None:
        for message in messages:
            if blamed:
                batch.append(quarantine(self, message, blamed.pop()))
            else:
                route(self, [message], batch, topic)

    setattr(Router, "quarantine", blame)  # noqa: B010
    setattr(Router, "route", after)  # noqa: B010


BUGS: Final[dict[str, Callable[[], None]]] = {
    one.__name__: one
    for one in (
        commit_before_the_produce,
        no_rewind_after_an_abort,
        due_by_the_workers_clock,
        the_next_record_is_blamed_too,
    )
}

if __name__ == "__main__":
    BUGS[sys.argv[1]]()
    run(Path(sys.argv[2]), sys.argv[3:])
