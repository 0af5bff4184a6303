"""A bad group in an installation: the messages of the poisoned groups, and their required ends.

`GROUP_OF_POISON` has a consumer, and a retry topic that takes no batch above `LARGEST_BATCH`. The groups whose names
begin with `UNMADE_PREFIX` have no consumer, and nobody has the right to make their retry topics.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from itertools import cycle
from typing import Final

from reconsume.bridge.kafka.cluster import Cluster
from reconsume.bridge.reading.range_reader import ReadRecord
from reconsume.cli.chaos.faults import FaultKind
from reconsume.cli.chaos.workload import ORIGIN, PARTITIONS, PROCESSED, Load, failures_in, produce
from reconsume.cli.judging.judge import Poison
from reconsume.cli.judging.reading import Begun, Workload
from reconsume.consumers import ConsumeConcurrentlyContext, ConsumeConcurrentlyStatus
from reconsume.delay_levels.wire.names import RETRY_PREFIX, TopicNames
from reconsume.delay_levels.wire.properties import REAL_TOPIC, RETRY_TOPIC

ORIGIN_OF_POISON: Final = "chaos.poison"
GROUP_OF_POISON: Final = "chaos-poisoned"
LARGEST_BATCH: Final = 32_768
"""`max.message.bytes` of the group's retry topic, which applies to batches as producers send them."""
UNMADE_PREFIX: Final = "chaos-unmade-"
_UNMADE_GROUPS: Final = 20
_LARGE_BYTES: Final = LARGEST_BATCH + 4_096
_PART_OF_RATE: Final = 0.25
"""Poison is sent in addition to the ordinary messages."""
_LOWEST_RATE: Final = 10.0


MIXES: Final[Mapping[FaultKind, Sequence[Poison]]] = {
    FaultKind.SIZES_REFUSED: (Poison.LARGE, Poison.SMALL),
    FaultKind.WRITING_TAKEN: (Poison.SMALL,),
    FaultKind.TOPICS_NOT_MADE: (Poison.UNMADE, Poison.UNMADE, Poison.SMALL),
    FaultKind.LISTENERS_SLIP: (Poison.SLIP, Poison.SLIP, Poison.SMALL),
}
"""The messages to produce, in turn, during a fault of this kind."""


def poison_in(body: bytes | None) -> Poison:
    """Return the third word of a body: `<number> <failures> <poison>[ <filling>]`."""
    return Poison((body or b"").split(b" ", 3)[2].decode())


def workload(names: TopicNames) -> Workload:
    """Return the records of a run: ordinary messages, poison, and send-backs whose retry topics cannot be created."""
    unmade = (RETRY_PREFIX + UNMADE_PREFIX).encode()

    def begun(read: ReadRecord) -> Begun | None:
        topic, body = read.topic, read.value
        if topic == ORIGIN:
            return failures_in(body), None
        is_unmade = topic == names.send_back and (dict(read.headers).get(REAL_TOPIC) or b"").startswith(unmade)
        return (failures_in(body), poison_in(body)) if is_unmade or topic == ORIGIN_OF_POISON else None

    return Workload((ORIGIN, ORIGIN_OF_POISON, names.send_back), PROCESSED, begun)


class PoisonLoad:
    """Produces poison.

    Args:
        cluster: the cluster, not through proxies.
        rate: the rate of ordinary messages per second.
    """

    def __init__(self, cluster: Cluster, rate: float) -> None:
        self._cluster = cluster
        self._rate = max(_LOWEST_RATE, rate * _PART_OF_RATE)
        self.produced = 0

    def produce(self, mix: Sequence[Poison], seconds: float) -> None:
        """Produce for this time, and wait for the acknowledgements."""
        stop, turns = threading.Event(), cycle(mix)
        timer = threading.Timer(seconds, stop.set)
        timer.start()
        try:
            self.produced += produce(
                self._cluster.base, self._rate, stop, lambda: False, lambda n: self._load(n, next(turns))
            )
        finally:
            timer.cancel()

    def _load(self, number: int, poison: Poison) -> Load:
        body = b"%d 1 %s" % (number, poison.encode())
        if poison is Poison.UNMADE:
            # Sent back as by a client in another language, because these groups have no consumer.
            group = f"{RETRY_PREFIX}{UNMADE_PREFIX}{number % _UNMADE_GROUPS}"
            return Load(
                self._cluster.names.send_back,
                body,
                -1,
                {REAL_TOPIC: group.encode(), RETRY_TOPIC: ORIGIN_OF_POISON.encode()},
            )
        if poison is Poison.LARGE:
            body += b" ".ljust(_LARGE_BYTES, b"x")
        return Load(ORIGIN_OF_POISON, body, number % PARTITIONS)


class _Unprintable(Exception):
    """An exception that raises when its text is read for a log or a cause."""

    def __str__(self) -> str:
        raise RuntimeError("no text")

    __repr__ = __str__


def _level(level: object) -> Callable[[ConsumeConcurrentlyContext], object]:
    def slips(context: ConsumeConcurrentlyContext) -> object:
        context.delay_level_when_next_consume = level  # type: ignore[assignment]
        return ConsumeConcurrentlyStatus.RECONSUME_LATER

    return slips


def _ack_index(index: object) -> Callable[[ConsumeConcurrentlyContext], object]:
    def slips(context: ConsumeConcurrentlyContext) -> object:
        context.ack_index = index  # type: ignore[assignment]
        return ConsumeConcurrentlyStatus.CONSUME_SUCCESS

    return slips


def _raising(error: BaseException) -> Callable[[ConsumeConcurrentlyContext], object]:
    def slips(_context: ConsumeConcurrentlyContext) -> object:
        raise error

    return slips


_SLIPS: Final[Sequence[Callable[[ConsumeConcurrentlyContext], object]]] = (
    *map(_level, (None, "3", 2.5, timedelta(seconds=1))),
    *map(_ack_index, (None, "0", 0.5, timedelta(0))),
    *map(_raising, (_Unprintable(), SystemExit(1), KeyboardInterrupt(), GeneratorExit())),
    lambda _context: 42,
)


def slip(body: bytes | None, context: ConsumeConcurrentlyContext) -> object:
    """Misbehave as the message's number says; return the listener's value, if it returns."""
    return _SLIPS[int((body or b"0").split(b" ", 1)[0]) % len(_SLIPS)](context)
