"""What is done to a group, round by round; the same seed gives the same schedule."""

from __future__ import annotations

import random
import sys
from dataclasses import dataclass
from enum import StrEnum

__all__ = ["Action", "Round", "say", "schedule"]


class Action(StrEnum):
    """What happens to a member."""

    JOIN = "a member joins"
    LEAVE = "a member leaves (SIGTERM)"
    KILL = "a member dies (SIGKILL)"
    STOP = "a member is stopped for longer than its session (SIGSTOP), and comes back"
    SLOW = "listeners run for longer than max.poll.interval.ms, and a member joins"


@dataclass(frozen=True, slots=True)
class Round:
    """One of them.

    Attributes:
        choice: picks the member, out of those that live then.
        load: deliveries to wait for afterwards.
    """

    action: Action
    choice: int
    load: int

    def __str__(self) -> str:
        return f"{self.action} (choice {self.choice}, load {self.load})"


def schedule(seed: int, rounds: int) -> list[Round]:
    """Each action once in any five rounds, in an order of the seed's."""
    chance = random.Random(seed)
    actions: list[Action] = []
    while len(actions) < rounds:
        actions += chance.sample(list(Action), len(Action))
    return [Round(action, chance.randrange(60), chance.randrange(20, 80)) for action in actions[:rounds]]


def say(line: str) -> None:
    """Print; pytest shows it when the test fails."""
    sys.stdout.write(line + "\n")
