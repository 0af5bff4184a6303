"""Runs consumers and a scheduler step by step, in the thread of the test, until nothing is left to do."""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime
from functools import wraps
from typing import Any, Final, TypeVar, cast
from weakref import WeakSet

from confluent_kafka import Consumer
from confluent_kafka.admin import AdminClient

from reconsume.bridge.kafka.clients import Clients
from reconsume.bridge.process.clock import Clock
from reconsume.bridge.process.user_callbacks import user_code
from reconsume.consumers.consume_loop import ConsumeLoop
from reconsume.consumers.listener import is_async
from reconsume.consumers.listeners.listener_pool import ListenerPool
from reconsume.consumers.message import Message
from reconsume.delay_levels.errors import IllegalSetting
from reconsume.testing.admin import InMemoryAdmin
from reconsume.testing.clock import FakeClock
from reconsume.testing.cluster import InMemoryCluster
from reconsume.testing.consumer import InMemoryConsumer
from reconsume.testing.listener_pools import ListenerEventLoop, SteppedPool
from reconsume.testing.producer import InMemoryProducer

C = TypeVar("C", bound=Consumer)
T = TypeVar("T")
L = TypeVar("L", bound=Callable[..., Any])

_PATIENCE_SECONDS: Final = 30.0
"""Limit for background threads, which usually answer within a millisecond."""
_SLICE_SECONDS: Final = 0.02
_MOST_TURNS: Final = 10_000
"""Limit of steps at one moment of the clock."""


@dataclass(slots=True)
class Call:
    """One call of a listener.

    Attributes:
        group: the consumer group.
        messages: the arguments.
        at: when, by the fake clock.
        result: what it returned; None if it raised.
        error: the exception, if it raised.
    """

    group: str
    messages: tuple[Message, ...]
    at: datetime
    result: object = None
    error: BaseException | None = field(default=None)

    @property
    def message(self) -> Message:
        """Return the message of a call with exactly one."""
        (one,) = self.messages
        return one


class Steps:
    """The `StepDriver` of an in-memory Kafka.

    Guarantees: listeners are called between two turns of a loop, never inside one; otherwise an orderly service would
    recurse once for each message. Test: tests/contract/test_in_order.py.
    A consumer that user code shuts down ends after that call, and the outcome counts, as in `ConsumeLoop.finish`.
    Test: tests/contract/test_push_consumer.py.

    Args:
        cluster: the Kafka in memory.
        clock: its clock.
        followers: consumers of background threads.
    """

    def __init__(
        self, cluster: InMemoryCluster, clock: FakeClock, followers: Callable[[], Sequence[InMemoryConsumer]]
    ) -> None:
        self._cluster = cluster
        self._clock = clock
        self._followers = followers
        self._loops: list[_SteppedLoop] = []
        self._work: deque[Callable[[], None]] = deque()
        self._coroutines: ListenerEventLoop | None = None
        self._interrupt: BaseException | None = None
        self._stepping = False
        self.calls: list[Call] = []

    def recorded(self, group: str, listener: L) -> L:
        """Wrap the listener so that its calls are recorded."""
        if is_async(listener):

            @wraps(listener)
            async def called_async(messages: Sequence[Message], context: object) -> object:
                with self._recording(group, messages) as call:
                    call.result = await listener(messages, context)
                return call.result

            return cast("L", called_async)

        @wraps(listener)
        def called(messages: Sequence[Message], context: object) -> object:
            with self._recording(group, messages) as call:
                call.result = listener(messages, context)
            return call.result

        return cast("L", called)

    @contextmanager
    def _recording(self, group: str, messages: Sequence[Message]) -> Iterator[Call]:
        call = Call(group, tuple(messages), self._clock.now)
        self.calls.append(call)
        try:
            yield call
        except BaseException as error:
            call.error = error
            if not issubclass(type(error), Exception | SystemExit | GeneratorExit | asyncio.CancelledError):
                # Ctrl-C, pytest.fail and timeouts of pytest belong to the test, not to the listener's service.
                self._interrupt = error
            raise

    def pool(
        self,
        listener: Callable[..., object],
        consume: Callable[[T], None],
        consume_async: Callable[[T], Awaitable[None]],
    ) -> ListenerPool[T]:
        """Make a pool that calls listeners one after the other, `async def` ones in one event loop."""
        if not is_async(listener):
            return SteppedPool(self._work, consume)
        if self._coroutines is None:
            self._coroutines = ListenerEventLoop()
        run = self._coroutines.run
        return SteppedPool(self._work, lambda chunk: run(consume_async(chunk)))

    def adopt(self, loop: ConsumeLoop, stop: threading.Event, shutdown: Callable[[], None]) -> _SteppedLoop:
        """Start the loop and let it take its partitions."""
        one = _SteppedLoop(loop, stop, shutdown, self._loops)
        loop.begin()
        self._loops.append(one)
        loop.run_once()
        return one

    def next_due_ms(self) -> float | None:
        """Return the earliest moment at which a consumer has something to do."""
        dues = (one.loop.next_due_ms() for one in self._loops)
        return min((due for due in dues if due is not None), default=None)

    def until_quiet(self, others: Callable[[], None]) -> None:
        """Step all consumers, and `others`, until nothing more happens at this moment of the clock.

        Raises:
            IllegalSetting: a listener called this, or a listener causes endless work.
        """
        if self._stepping:
            raise IllegalSetting("a listener may not call advance() or settle(); call them in the test")
        driver, self._cluster.driver = self._cluster.driver, threading.get_ident()
        self._stepping = True
        try:
            for _ in range(_MOST_TURNS):
                before = self._cluster.turns
                worked = [self._step(one) for one in list(self._loops) if one.is_alive()]
                others()
                self._wait_for_followers()
                if not any(worked) and self._cluster.turns == before:
                    return
        finally:
            self._stepping = False
            self._cluster.driver = driver
        raise IllegalSetting(
            f"settle: listeners still had work after {_MOST_TURNS:,} turns at {self._clock.now}; check "
            "whether one produces to its own topic"
        )

    def _step(self, one: _SteppedLoop) -> bool:
        """Run one turn of a loop and the resulting listener calls; return whether there were any."""
        one.loop.run_once()
        worked = bool(self._work)
        while self._work:
            with user_code():
                self._work.popleft()()
            if self._interrupt is not None:
                interrupt, self._interrupt = self._interrupt, None
                self._work.clear()
                raise interrupt
            # Send-backs are then stored in the order of the failures.
            self._settle(one)
        self._settle(one)
        if one.is_alive():
            # Full partitions have room now; the next turn reads them.
            one.loop.partitions.pause_and_resume()
        return worked

    def _settle(self, one: _SteppedLoop) -> None:
        """Store the outcomes of calls, and end the consumers that user code has shut down."""
        for each in list(self._loops):
            if (each is one or each.stop.is_set()) and not each.loop.settle(_PATIENCE_SECONDS):
                raise TimeoutError(f"a send-back did not finish within {_PATIENCE_SECONDS:.0f} s")
            if each.stop.is_set():
                each.shutdown()

    def _wait_for_followers(self) -> None:
        with self._cluster.changed:
            if not self._cluster.changed.wait_for(self._all_follow, 0):
                for _ in range(int(_PATIENCE_SECONDS / _SLICE_SECONDS)):
                    if self._cluster.changed.wait_for(self._all_follow, _SLICE_SECONDS):
                        return
                raise TimeoutError("a thread that follows the GROUPS topic has not read it")

    def _all_follow(self) -> bool:
        return all(one.is_quiet() for one in self._followers())

    def close(self) -> None:
        """Shut down running consumers."""
        for one in list(self._loops):
            one.shutdown()
        if self._coroutines is not None:
            self._coroutines.close()


class _SteppedLoop:
    """A stepped loop in the place of a PushConsumer's thread."""

    def __init__(
        self, loop: ConsumeLoop, stop: threading.Event, shutdown: Callable[[], None], running: list[_SteppedLoop]
    ) -> None:
        self.loop = loop
        self.stop = stop
        self.shutdown = shutdown
        self._running = running

    def is_alive(self) -> bool:
        """Return whether the loop is stepped."""
        return self in self._running

    def join(self, timeout: float | None = None) -> None:
        """End the loop: waiting would change nothing."""
        del timeout
        if self in self._running:
            self._running.remove(self)
            self.loop.end()


class InMemoryClients(Clients):
    """Makes the clients of one in-memory Kafka, and steps the loops of its consumers."""

    can_lose_offsets = False
    outlive_the_process = False

    def __init__(self, cluster: InMemoryCluster, clock: FakeClock) -> None:
        self._cluster = cluster
        self._clock = clock
        self._consumers: WeakSet[InMemoryConsumer] = WeakSet()
        self.steps = Steps(cluster, clock, lambda: list(self._consumers))
        self.recorded = self.steps.recorded
        self.pool = self.steps.pool
        self.adopt = self.steps.adopt

    @property
    def clock(self) -> Clock:
        """Return the manual clock."""
        return self._clock

    steady_clock = clock

    def consumer(self, settings: Mapping[str, Any]) -> Consumer:
        """Make a consumer whose loop is stepped."""
        one = InMemoryConsumer(self._cluster, settings)
        with self._cluster.changed:
            self._consumers.add(one)
        return one

    def producer(self, settings: Mapping[str, Any]) -> InMemoryProducer:
        """Make a producer that writes to memory."""
        return InMemoryProducer(self._cluster, settings)

    def admin(self, settings: Mapping[str, Any]) -> AdminClient:
        """Make an admin client of the in-memory cluster."""
        del settings
        return InMemoryAdmin(self._cluster)  # type: ignore[return-value]  # the part of it that is used

    def consumer_class(self, derived: type[C]) -> type[C]:
        """Return the class, derived from the in-memory consumer."""
        cluster = self._cluster

        def construct(self: InMemoryConsumer, settings: Mapping[str, Any]) -> None:
            InMemoryConsumer.__init__(self, cluster, settings)

        base = type("_Bound", (InMemoryConsumer,), {"__init__": construct})
        replaced = {"_kafka_poll": InMemoryConsumer.poll, "_kafka_consume": InMemoryConsumer.consume}
        return type(derived.__name__, (derived, base), replaced)
