"""How a PushConsumer runs where nothing runs by itself: in the unit tests of its users.

A Kafka in memory (`reconsume.testing`) has the loop, the listeners and the clock go step by step, in the test's thread.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Protocol, TypeVar, runtime_checkable

from reconsume.bridge.kafka.clients import clients_of
from reconsume.consumers.consume_loop import ConsumeLoop
from reconsume.consumers.listeners.listener_pool import ListenerPool

T = TypeVar("T")
L = TypeVar("L", bound=Callable[..., Any])


class LoopThread(Protocol):
    """The thread of a PushConsumer's loop, as the consumer needs it."""

    def is_alive(self) -> bool:
        """Whether it consumes."""

    def join(self, timeout: float | None = None) -> None:
        """Wait until it has ended."""


@runtime_checkable
class StepDriver(Protocol):
    """Runs loops and listeners in steps."""

    def recorded(self, group: str, listener: L) -> L:
        """The listener; what it is called with and what it answers is written down."""

    def pool(
        self,
        listener: Callable[..., object],
        consume: Callable[[T], None],
        consume_async: Callable[[T], Awaitable[None]],
    ) -> ListenerPool[T]:
        """A pool whose work is done in a later step, one call after the other."""

    def adopt(self, loop: ConsumeLoop, shutdown: Callable[[], None]) -> LoopThread:
        """Run this loop from now on; `shutdown` ends its consumer if nobody did before the Kafka goes."""


def step_driver_of(settings: Mapping[str, Any]) -> StepDriver | None:
    """Return the driver of loops for the address in these settings; None if they run in threads, as they should."""
    clients = clients_of(settings)
    return clients if isinstance(clients, StepDriver) else None
