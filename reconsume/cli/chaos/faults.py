"""The schedule of faults, determined by a seed."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final, Self


class FaultKind(StrEnum):
    """A kind of fault, with its minimum and maximum duration in seconds."""

    seconds: tuple[float, float]

    def __new__(cls, value: str, *seconds: float) -> Self:
        """Keep the seconds beside the name."""
        one = str.__new__(cls, value)
        one._value_, one.seconds = value, (seconds[0], seconds[1])
        return one

    SCHEDULER_KILLED = "scheduler killed", 0, 5
    SCHEDULER_STOPPED = "scheduler stopped", 1, 15
    SCHEDULERS_COME_AND_GO = "schedulers come and go", 3, 8
    CLOCK_AHEAD = "scheduler's clock ahead", 3, 10
    CLOCK_BEHIND = "scheduler's clock behind", 3, 10
    CONSUMER_KILLED = "consumer killed", 0, 5
    CONSUMER_STOPPED = "consumer stopped", 1, 15
    CONSUMERS_COME_AND_GO = "consumers come and go", 3, 8
    SIDECAR_KILLED = "sidecar killed", 0, 5
    SIDECAR_STOPPED = "sidecar stopped", 1, 15
    APP_KILLED = "app killed", 0, 15
    APP_STOPPED = "app stopped", 1, 15
    BROKER_RESTARTED = "broker restarted", 0, 0
    BROKER_KILLED = "broker killed", 0, 0
    BROKER_AWAY = "broker away", 5, 60
    BROKER_STOPPED = "broker stopped", 1, 15
    DISK_FULL = "broker's disk full", 1, 5
    NETWORK_SLOW = "network slow", 3, 10
    NETWORK_CUT = "connections cut", 0, 0
    NETWORK_SILENT = "connections silent", 2, 15
    RIGHTS_TAKEN = "right to read taken", 1, 15
    TOPIC_DELETED = "topic deleted", 1, 5
    LINKS_SLOW = "links slow", 3, 15
    SIZES_REFUSED = "sizes refused", 3, 10
    WRITING_TAKEN = "right to write taken", 3, 10
    TOPICS_NOT_MADE = "topics that cannot be made", 3, 10
    LISTENERS_SLIP = "listeners that slip", 3, 10


_OF_THE_SIDECAR: Final = frozenset(
    {FaultKind.SIDECAR_KILLED, FaultKind.SIDECAR_STOPPED, FaultKind.APP_KILLED, FaultKind.APP_STOPPED}
)
_LONGEST_PART: Final = 1 / 15
"""The longest fault as a fraction of the run, so that a short run has room for all kinds."""
_PAUSE: Final = (4.0, 10.0)


@dataclass(frozen=True, slots=True)
class Fault:
    """A fault.

    Attributes:
        choice: picks the victim among the possible ones.
        seconds: its duration; for a kill, until the restart; for a deletion, until the topic is recreated.
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
    """Return faults that fill the time, each kind once before any repeats, in an order determined by the seed."""
    chance = random.Random(seed)  # noqa: S311 - a seed is the point
    faults: list[Fault] = []
    left, bag = total_seconds, list[FaultKind]()
    while left > 0:
        bag = bag or chance.sample(kinds, len(kinds))
        kind = bag.pop()
        at_least, at_most = kind.seconds
        seconds = min(chance.uniform(at_least, at_most), max(at_least, total_seconds * _LONGEST_PART))
        faults.append(Fault(kind, chance.randrange(60), round(seconds, 1), round(chance.uniform(*_PAUSE), 1)))
        left -= faults[-1].seconds + faults[-1].pause
    return faults


def kinds_for(platform: str, *, sidecar: bool = False) -> tuple[FaultKind, ...]:
    """Return the possible faults: only Linux reveals the broker's process, and can limit another process's files.

    With an app, no send-back may be refused: the app counts local tries too, and the judge does not see those.
    """
    impossible = set() if platform == "linux" else {FaultKind.DISK_FULL, FaultKind.BROKER_STOPPED}
    impossible |= {FaultKind.RIGHTS_TAKEN} if sidecar else _OF_THE_SIDECAR
    return tuple(kind for kind in FaultKind if kind not in impossible)
