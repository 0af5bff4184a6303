"""What goes wrong, and when: a seed is a schedule."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

__all__ = ["Fault", "FaultKind", "kinds_for", "schedule"]


class FaultKind(StrEnum):
    """A way for things to go wrong."""

    SCHEDULER_KILLED = "scheduler killed"
    SCHEDULER_STOPPED = "scheduler stopped"
    SCHEDULERS_COME_AND_GO = "schedulers come and go"
    CLOCK_AHEAD = "scheduler's clock ahead"
    CLOCK_BEHIND = "scheduler's clock behind"
    CONSUMER_KILLED = "consumer killed"
    CONSUMER_STOPPED = "consumer stopped"
    CONSUMERS_COME_AND_GO = "consumers come and go"
    SIDECAR_KILLED = "sidecar killed"
    SIDECAR_STOPPED = "sidecar stopped"
    APP_KILLED = "app killed"
    APP_STOPPED = "app stopped"
    BROKER_RESTARTED = "broker restarted"
    BROKER_KILLED = "broker killed"
    BROKER_AWAY = "broker away"
    BROKER_STOPPED = "broker stopped"
    DISK_FULL = "broker's disk full"
    NETWORK_SLOW = "network slow"
    NETWORK_CUT = "connections cut"
    NETWORK_SILENT = "connections silent"
    RIGHTS_TAKEN = "right to read taken"
    TOPIC_DELETED = "topic deleted"
    LINKS_SLOW = "links slow"
    SIZES_REFUSED = "sizes refused"
    WRITING_TAKEN = "right to write taken"
    TOPICS_NOT_MADE = "topics that cannot be made"
    LISTENERS_SLIP = "listeners that slip"


_SECONDS: Final[dict[FaultKind, tuple[float, float]]] = {
    FaultKind.SCHEDULER_KILLED: (0, 5),
    FaultKind.SCHEDULER_STOPPED: (1, 15),
    FaultKind.SCHEDULERS_COME_AND_GO: (3, 8),
    FaultKind.CLOCK_AHEAD: (3, 10),
    FaultKind.CLOCK_BEHIND: (3, 10),
    FaultKind.CONSUMER_KILLED: (0, 5),
    FaultKind.CONSUMER_STOPPED: (1, 15),
    FaultKind.CONSUMERS_COME_AND_GO: (3, 8),
    FaultKind.SIDECAR_KILLED: (0, 5),
    FaultKind.SIDECAR_STOPPED: (1, 15),
    FaultKind.APP_KILLED: (0, 15),
    FaultKind.APP_STOPPED: (1, 15),
    FaultKind.BROKER_RESTARTED: (0, 0),
    FaultKind.BROKER_KILLED: (0, 0),
    FaultKind.BROKER_AWAY: (5, 60),
    FaultKind.BROKER_STOPPED: (1, 15),
    FaultKind.DISK_FULL: (1, 5),
    FaultKind.NETWORK_SLOW: (3, 10),
    FaultKind.NETWORK_CUT: (0, 0),
    FaultKind.NETWORK_SILENT: (2, 15),
    FaultKind.RIGHTS_TAKEN: (1, 15),
    FaultKind.TOPIC_DELETED: (1, 5),
    FaultKind.LINKS_SLOW: (3, 15),
    FaultKind.SIZES_REFUSED: (3, 10),
    FaultKind.WRITING_TAKEN: (3, 10),
    FaultKind.TOPICS_NOT_MADE: (3, 10),
    FaultKind.LISTENERS_SLIP: (3, 10),
}
"""How long each lasts, at least and at most."""
_OF_THE_SIDECAR: Final = frozenset(
    {FaultKind.SIDECAR_KILLED, FaultKind.SIDECAR_STOPPED, FaultKind.APP_KILLED, FaultKind.APP_STOPPED}
)
_LONGEST_PART: Final = 1 / 15
"""Of the whole run; so a short one has room for all kinds."""
_PAUSE: Final = (4.0, 10.0)


@dataclass(frozen=True, slots=True)
class Fault:
    """One of them.

    Attributes:
        choice: picks the victim, out of those that there are.
        seconds: how long it lasts; of a kill, until the process is started again; of a deletion, until the topic is
            made again.
        pause: seconds until the next one.
    """

    kind: FaultKind
    choice: int
    seconds: float
    pause: float

    def __str__(self) -> str:
        lasts = f" for {self.seconds:.1f} s" if self.seconds else ""
        return f"{self.kind}{lasts} (choice {self.choice}), then {self.pause:.1f} s"


def schedule(seed: int, total_seconds: float, kinds: Sequence[FaultKind] = tuple(FaultKind)) -> list[Fault]:
    """Faults that fill the time; each kind once before any comes again, in an order of the seed's."""
    chance = random.Random(seed)  # noqa: S311 - a seed is the point
    faults: list[Fault] = []
    left, bag = total_seconds, list[FaultKind]()
    while left > 0:
        bag = bag or chance.sample(kinds, len(kinds))
        kind = bag.pop()
        at_least, at_most = _SECONDS[kind]
        seconds = min(chance.uniform(at_least, at_most), max(at_least, total_seconds * _LONGEST_PART))
        faults.append(Fault(kind, chance.randrange(60), round(seconds, 1), round(chance.uniform(*_PAUSE), 1)))
        left -= faults[-1].seconds + faults[-1].pause
    return faults


def kinds_for(platform: str, *, sidecar: bool = False) -> tuple[FaultKind, ...]:
    """What can be done here: only Linux tells which process the broker is, and lets others limit its files.

    An app is told of a local try as of any other, so beside one no send-back may be refused: the judge would miss it.
    """
    impossible = set() if platform == "linux" else {FaultKind.DISK_FULL, FaultKind.BROKER_STOPPED}
    impossible |= {FaultKind.RIGHTS_TAKEN} if sidecar else _OF_THE_SIDECAR
    return tuple(kind for kind in FaultKind if kind not in impossible)
