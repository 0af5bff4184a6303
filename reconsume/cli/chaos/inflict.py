"""Do to the cluster and the processes what the schedule says."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from reconsume.cli.chaos.cluster.brokers import Broker, ChaosCluster
from reconsume.cli.chaos.cluster.processes import Processes, UnderTest
from reconsume.cli.chaos.cluster.worker import set_ahead
from reconsume.cli.chaos.faults import Fault, FaultKind
from reconsume.cli.chaos.operator import Operator
from reconsume.cli.chaos.poison import MIXES, PoisonLoad

__all__ = ["Inflictor"]

_WRONG_SECONDS: Final = 30.0
_SLOW_SECONDS: Final = 0.2
_STORM_SECONDS: Final = 1.0
_SLOW_LINK: Final = 150_000
"""Bytes per second."""


@dataclass
class Inflictor:
    """Knows the victims.

    Args:
        clocks: the file of each scheduler's clock.
        operator: has all rights.
        poison: produces what the poisoned groups suffer from.
        rest: how seconds pass.
    """

    cluster: ChaosCluster
    processes: Processes
    clocks: Sequence[Path]
    operator: Operator
    poison: PoisonLoad
    rest: Callable[[float], object]

    def inflict(self, fault: Fault) -> None:
        """Do it, let it last, and undo it; returns when its cause is gone."""
        self._ways()[fault.kind](fault)

    def _ways(self) -> dict[FaultKind, Callable[[Fault], None]]:
        schedulers, consumers = self.processes.schedulers, self.processes.consumers
        sidecars, apps = self.processes.sidecars, self.processes.apps
        return {
            FaultKind.SCHEDULER_KILLED: lambda fault: self._killed(schedulers, fault),
            FaultKind.SCHEDULER_STOPPED: lambda fault: self._stopped(schedulers, fault),
            FaultKind.SCHEDULERS_COME_AND_GO: lambda fault: self._come_and_go(schedulers, fault),
            FaultKind.CLOCK_AHEAD: lambda fault: self._wrong_clock(fault, _WRONG_SECONDS),
            FaultKind.CLOCK_BEHIND: lambda fault: self._wrong_clock(fault, -_WRONG_SECONDS),
            FaultKind.CONSUMER_KILLED: lambda fault: self._killed(consumers, fault),
            FaultKind.CONSUMER_STOPPED: lambda fault: self._stopped(consumers, fault),
            FaultKind.CONSUMERS_COME_AND_GO: lambda fault: self._come_and_go(consumers, fault),
            FaultKind.SIDECAR_KILLED: lambda fault: self._killed(sidecars, fault),
            FaultKind.SIDECAR_STOPPED: lambda fault: self._stopped(sidecars, fault),
            FaultKind.APP_KILLED: lambda fault: self._killed(apps, fault),
            FaultKind.APP_STOPPED: lambda fault: self._stopped(apps, fault),
            FaultKind.BROKER_RESTARTED: self._restarted,
            FaultKind.BROKER_KILLED: self._broker_killed,
            FaultKind.BROKER_AWAY: self._broker_killed,
            FaultKind.BROKER_STOPPED: self._broker_stopped,
            FaultKind.DISK_FULL: self._disk_full,
            FaultKind.NETWORK_SLOW: self._network_slow,
            FaultKind.NETWORK_CUT: self._network_cut,
            FaultKind.NETWORK_SILENT: self._network_silent,
            FaultKind.RIGHTS_TAKEN: self._rights_taken,
            FaultKind.TOPIC_DELETED: self._topic_deleted,
            FaultKind.LINKS_SLOW: self._links_slow,
            FaultKind.SIZES_REFUSED: self._poisoned,
            FaultKind.WRITING_TAKEN: self._writing_taken,
            FaultKind.TOPICS_NOT_MADE: self._poisoned,
            FaultKind.LISTENERS_SLIP: self._poisoned,
        }

    def _killed(self, victims: Sequence[UnderTest], fault: Fault) -> None:
        one = _choose(victims, fault)
        one.kill()
        self.rest(fault.seconds)
        one.start()

    def _stopped(self, victims: Sequence[UnderTest], fault: Fault) -> None:
        one = _choose(victims, fault)
        one.stop()
        self.rest(fault.seconds)
        one.go_on()

    def _come_and_go(self, victims: Sequence[UnderTest], fault: Fault) -> None:
        """One leaves or comes back every second; in the end all are there."""
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
        clock = self.clocks[fault.choice % len(self.clocks)]
        set_ahead(clock, ahead)
        self.rest(fault.seconds)
        set_ahead(clock, 0)

    def _broker(self, fault: Fault) -> Broker:
        return self.cluster.brokers[fault.choice % len(self.cluster.brokers)]

    def _restarted(self, fault: Fault) -> None:
        one = self._broker(fault)
        one.kafka.shut_down()
        one.start()

    def _broker_killed(self, fault: Fault) -> None:
        one = self._broker(fault)
        one.kafka.kill()
        self.rest(fault.seconds)
        one.start()

    def _broker_stopped(self, fault: Fault) -> None:
        one = self._broker(fault)
        one.hang()
        self.rest(fault.seconds)
        one.go_on()

    def _disk_full(self, fault: Fault) -> None:
        one = self._broker(fault)
        one.fill_disk()
        self.rest(fault.seconds)
        one.start()

    def _network_slow(self, fault: Fault) -> None:
        proxy = self._broker(fault).proxy
        proxy.slow_down(_SLOW_SECONDS)
        self.rest(fault.seconds)
        proxy.slow_down(0)

    def _network_cut(self, fault: Fault) -> None:
        self._broker(fault).proxy.cut()

    def _network_silent(self, fault: Fault) -> None:
        proxy = self._broker(fault).proxy
        proxy.silence()
        self.rest(fault.seconds)
        proxy.speak()

    def _rights_taken(self, fault: Fault) -> None:
        topic = self.operator.take_reading(fault.choice)
        self.rest(fault.seconds)
        self.operator.give_back(topic)

    def _topic_deleted(self, fault: Fault) -> None:
        self.operator.delete(fault.choice)
        self.rest(fault.seconds)
        self.operator.make_topics()

    def _links_slow(self, fault: Fault) -> None:
        proxies = [one.proxy for one in self.cluster.brokers]
        for proxy in proxies:
            proxy.limit(_SLOW_LINK)
        self.rest(fault.seconds)
        for proxy in proxies:
            proxy.limit(0)

    def _poisoned(self, fault: Fault) -> None:
        self.poison.produce(MIXES[fault.kind], fault.seconds)

    def _writing_taken(self, fault: Fault) -> None:
        topic = self.operator.take_writing()
        self._poisoned(fault)
        self.operator.give_back(topic)


def _choose(victims: Sequence[UnderTest], fault: Fault) -> UnderTest:
    return victims[fault.choice % len(victims)]
