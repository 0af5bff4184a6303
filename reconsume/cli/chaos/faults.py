"""What goes wrong, and when: a seed is a schedule."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

__all__ = ["Fault", "Kind", "kinds_for", "schedule"]


class Kind(StrEnum):
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


_SECONDS: Final[dict[Kind, tuple[float, float]]] = {
    Kind.SCHEDULER_KILLED: (0, 5),
    Kind.SCHEDULER_STOPPED: (1, 15),
    Kind.SCHEDULERS_COME_AND_GO: (3, 8),
    Kind.CLOCK_AHEAD: (3, 10),
    Kind.CLOCK_BEHIND: (3, 10),
    Kind.CONSUMER_KILLED: (0, 5),
    Kind.CONSUMER_STOPPED: (1, 15),
    Kind.CONSUMERS_COME_AND_GO: (3, 8),
    Kind.SIDECAR_KILLED: (0, 5),
    Kind.SIDECAR_STOPPED: (1, 15),
    Kind.APP_KILLED: (0, 15),
    Kind.APP_STOPPED: (1, 15),
    Kind.BROKER_RESTARTED: (0, 0),
    Kind.BROKER_KILLED: (0, 0),
    Kind.BROKER_AWAY: (5, 60),
    Kind.BROKER_STOPPED: (1, 15),
    Kind.DISK_FULL: (1, 5),
    Kind.NETWORK_SLOW: (3, 10),
    Kind.NETWORK_CUT: (0, 0),
    Kind.NETWORK_SILENT: (2, 15),
    Kind.RIGHTS_TAKEN: (1, 15),
    Kind.TOPIC_DELETED: (1, 5),
    Kind.LINKS_SLOW: (3, 15),
    Kind.SIZES_REFUSED: (3, 10),
    Kind.WRITING_TAKEN: (3, 10),
    Kind.TOPICS_NOT_MADE: (3, 10),
    Kind.LISTENERS_SLIP: (3, 10),
}
"""How long each lasts, at least and at most."""
_OF_THE_SIDECAR: Final = frozenset({Kind.SIDECAR_KILLED, Kind.SIDECAR_STOPPED, Kind.APP_KILLED, Kind.APP_STOPPED})
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

    kind: Kind
    choice: int
    seconds: float
    pause: float

    def __str__(self) -> str:
        lasts = f" for {self.seconds:.1f} s" if self.seconds else ""
        return f"{self.kind}{lasts} (choice {self.choice}), then {self.pause:.1f} s"


def schedule(seed: int, total_seconds: float, kinds: Sequence[Kind] = tuple(Kind)) -> list[Fault]:
    """Faults that fill the time; each kind once before any comes again, in an order of the seed's."""
    chance = random.Random(seed)  # noqa: S311 - a seed is the point
    faults: list[Fault] = []
    left, bag = total_seconds, list[Kind]()
    while left > 0:
        bag = bag or chance.sample(kinds, len(kinds))
        kind = bag.pop()
        at_least, at_most = _SECONDS[kind]
        seconds = min(chance.uniform(at_least, at_most), max(at_least, total_seconds * _LONGEST_PART))
        faults.append(Fault(kind, chance.randrange(60), round(seconds, 1), round(chance.uniform(*_PAUSE), 1)))
        left -= faults[-1].seconds + faults[-1].pause
    return faults


def kinds_for(platform: str, *, sidecar: bool = False) -> tuple[Kind, ...]:
    """What can be done here: only Linux tells which process the broker is, and lets others limit its files.

    An app is told of a local try as of any other, so beside one no send-back may be refused: the judge would miss it.
    """
    impossible = set() if platform == "linux" else {Kind.DISK_FULL, Kind.BROKER_STOPPED}
    impossible |= {Kind.RIGHTS_TAKEN} if sidecar else _OF_THE_SIDECAR
    return tuple(kind for kind in Kind if kind not in impossible)
