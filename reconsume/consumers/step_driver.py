"""How a PushConsumer runs without threads: in the unit tests of its users.

The in-memory Kafka (`reconsume.testing`) steps the loop, the listeners and the clock in the test's thread.
"""

from __future__ import annotations

import threading
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Protocol, TypeVar, runtime_checkable

from reconsume.bridge.kafka.clients import clients_of
from reconsume.consumers.consume_loop import ConsumeLoop
from reconsume.consumers.listeners.listener_pool import ListenerPool

T = TypeVar("T")
L = TypeVar("L", bound=Callable[..., Any])


class LoopThread(Protocol):
    """The thread of a PushConsumer's loop, as the consumer uses it."""

    def is_alive(self) -> bool:
        """Return whether the loop runs."""

    def join(self, timeout: float | None = None) -> None:
        """Wait for the end of the loop."""


@runtime_checkable
class StepDriver(Protocol):
    """Runs loops and listeners in steps."""

    def recorded(self, group: str, listener: L) -> L:
        """Wrap the listener so that its calls and results are recorded."""

    def pool(
        self,
        listener: Callable[..., object],
        consume: Callable[[T], None],
        consume_async: Callable[[T], Awaitable[None]],
    ) -> ListenerPool[T]:
        """Make a pool that does its work in later steps, one call after the other."""

    def adopt(self, loop: ConsumeLoop, stop: threading.Event, shutdown: Callable[[], None]) -> LoopThread:
        """Run this loop until `stop`; `shutdown` then ends its consumer, as it does when the Kafka is closed."""


def step_driver_of(settings: Mapping[str, Any]) -> StepDriver | None:
    """Return the driver for the address in these settings; None if loops run in threads, as usual."""
    clients = clients_of(settings)
    return clients if isinstance(clients, StepDriver) else None
