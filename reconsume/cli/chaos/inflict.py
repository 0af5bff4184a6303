"""Applies the scheduled faults to cluster and processes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final, TypeVar

from reconsume.cli.chaos.cluster.brokers import Broker, ChaosCluster
from reconsume.cli.chaos.cluster.processes import Processes, UnderTest
from reconsume.cli.chaos.cluster.worker import set_ahead
from reconsume.cli.chaos.faults import Fault, FaultKind
from reconsume.cli.chaos.operator import Operator
from reconsume.cli.chaos.poison import MIXES, PoisonLoad

T = TypeVar("T")

_WRONG_SECONDS: Final = 30.0
_SLOW_SECONDS: Final = 0.2
_STORM_SECONDS: Final = 1.0
_SLOW_LINK: Final = 150_000
"""Bytes per second."""


@dataclass
class Inflictor:
    """Knows the possible victims.

    Args:
        clocks: the file of each scheduler's clock.
        operator: a client with all rights.
        poison: produces the poisoned groups' messages.
        rest: waits for a number of seconds.
    """

    cluster: ChaosCluster
    processes: Processes
    clocks: Sequence[Path]
    operator: Operator
    poison: PoisonLoad
    rest: Callable[[float], object]

    def inflict(self, fault: Fault) -> None:
        """Apply a fault, wait, and undo it; return when its cause is gone."""
        self._ways()[fault.kind](fault)

    def _ways(self) -> dict[FaultKind, Callable[[Fault], None]]:
        processes, broker, operator, during = self.processes, self._broker, self.operator, self._during
        return {
            FaultKind.SCHEDULER_KILLED: lambda fault: self._killed(processes.schedulers, fault),
            FaultKind.SCHEDULER_STOPPED: lambda fault: self._stopped(processes.schedulers, fault),
            FaultKind.SCHEDULERS_COME_AND_GO: lambda fault: self._come_and_go(processes.schedulers, fault),
            FaultKind.CLOCK_AHEAD: lambda fault: self._wrong_clock(fault, _WRONG_SECONDS),
            FaultKind.CLOCK_BEHIND: lambda fault: self._wrong_clock(fault, -_WRONG_SECONDS),
            FaultKind.CONSUMER_KILLED: lambda fault: self._killed(processes.consumers, fault),
            FaultKind.CONSUMER_STOPPED: lambda fault: self._stopped(processes.consumers, fault),
            FaultKind.CONSUMERS_COME_AND_GO: lambda fault: self._come_and_go(processes.consumers, fault),
            FaultKind.SIDECAR_KILLED: lambda fault: self._killed(processes.sidecars, fault),
            FaultKind.SIDECAR_STOPPED: lambda fault: self._stopped(processes.sidecars, fault),
            FaultKind.APP_KILLED: lambda fault: self._killed(processes.apps, fault),
            FaultKind.APP_STOPPED: lambda fault: self._stopped(processes.apps, fault),
            FaultKind.BROKER_RESTARTED: lambda fault: during(fault, broker(fault).kafka.shut_down, broker(fault).start),
            FaultKind.BROKER_KILLED: lambda fault: during(fault, broker(fault).kafka.kill, broker(fault).start),
            FaultKind.BROKER_AWAY: lambda fault: during(fault, broker(fault).kafka.kill, broker(fault).start),
            FaultKind.BROKER_STOPPED: lambda fault: during(fault, broker(fault).hang, broker(fault).go_on),
            FaultKind.DISK_FULL: lambda fault: during(fault, broker(fault).fill_disk, broker(fault).start),
            FaultKind.NETWORK_SLOW: self._network_slow,
            FaultKind.NETWORK_CUT: lambda fault: broker(fault).proxy.cut(),
            FaultKind.NETWORK_SILENT: lambda fault: during(
                fault, broker(fault).proxy.silence, broker(fault).proxy.speak
            ),
            FaultKind.RIGHTS_TAKEN: self._rights_taken,
            FaultKind.TOPIC_DELETED: lambda fault: during(
                fault, partial(operator.delete, fault.choice), operator.make_topics
            ),
            FaultKind.LINKS_SLOW: self._links_slow,
            FaultKind.SIZES_REFUSED: self._poisoned,
            FaultKind.WRITING_TAKEN: self._writing_taken,
            FaultKind.TOPICS_NOT_MADE: self._poisoned,
            FaultKind.LISTENERS_SLIP: self._poisoned,
        }

    def _during(self, fault: Fault, begin: Callable[[], object], end: Callable[[], object]) -> None:
        begin()
        self.rest(fault.seconds)
        end()

    def _killed(self, victims: Sequence[UnderTest], fault: Fault) -> None:
        one = _choose(victims, fault)
        self._during(fault, one.kill, one.start)

    def _stopped(self, victims: Sequence[UnderTest], fault: Fault) -> None:
        one = _choose(victims, fault)
        self._during(fault, one.stop, one.go_on)

    def _come_and_go(self, victims: Sequence[UnderTest], fault: Fault) -> None:
        """Stop or start one process every second; in the end all run."""
        away: UnderTest | None = None
        for turn in range(int(fault.seconds / _STORM_SECONDS)):
            if away is None:
                away = victims[(fault.choice + turn) % len(victims)]
                away.end()
            else:
                away.start()
                away = None
            self.rest(_STORM_SECONDS)
        if away is not None:
            away.start()

    def _wrong_clock(self, fault: Fault, ahead: float) -> None:
        set_clock = partial(set_ahead, _choose(self.clocks, fault))
        self._during(fault, partial(set_clock, ahead), partial(set_clock, 0))

    def _broker(self, fault: Fault) -> Broker:
        return _choose(self.cluster.brokers, fault)

    def _network_slow(self, fault: Fault) -> None:
        slow_down = self._broker(fault).proxy.slow_down
        self._during(fault, partial(slow_down, _SLOW_SECONDS), partial(slow_down, 0))

    def _links_slow(self, fault: Fault) -> None:
        def limit(bytes_per_second: int) -> None:
            for one in self.cluster.brokers:
                one.proxy.limit(bytes_per_second)

        self._during(fault, partial(limit, _SLOW_LINK), partial(limit, 0))

    def _rights_taken(self, fault: Fault) -> None:
        topic = self.operator.take_reading(fault.choice)
        self.rest(fault.seconds)
        self.operator.give_back(topic)

    def _poisoned(self, fault: Fault) -> None:
        self.poison.produce(MIXES[fault.kind], fault.seconds)

    def _writing_taken(self, fault: Fault) -> None:
        topic = self.operator.take_writing()
        self._poisoned(fault)
        self.operator.give_back(topic)


def _choose(victims: Sequence[T], fault: Fault) -> T:
    return victims[fault.choice % len(victims)]
