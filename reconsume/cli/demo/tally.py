"""Count what happened from the contents of the topics, not from anything that the code under test says of itself."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from reconsume.cli.processing import PROCESSED_ORIGIN
from reconsume.delay_levels.rules.due import due_ms
from reconsume.delay_levels.wire.names import TopicNames
from reconsume.delay_levels.wire.properties import DELAY, ORIGIN_MESSAGE_ID, RECONSUME_TIME

__all__ = ["Tally"]

_Attempt = tuple[str, str]
"""Origin message id and count: identity of one attempt, whatever its group."""


@dataclass(slots=True)
class Tally:
    """Fed with every record of every topic of the demo, in any order.

    Args:
        names: the installation's topics.
        origin: the topic that was produced to.
        processed: the topic that the listener writes to when it succeeds.
        group: the consumer group.
    """

    names: TopicNames
    origin: str
    processed: str
    group: str
    produced: set[str] = field(default_factory=set)
    successes: Counter[str] = field(default_factory=Counter)
    sent_back: dict[_Attempt, int] = field(default_factory=dict)
    moved: dict[_Attempt, int] = field(default_factory=dict)
    levels: Counter[str] = field(default_factory=Counter)
    dead: Counter[str] = field(default_factory=Counter)
    retries: int = 0
    repeated: int = 0
    quarantined: int = 0

    def add(self, topic: str, partition: int, offset: int, timestamp: int, headers: Mapping[str, bytes | None]) -> None:
        """Take one record into account."""
        if topic == self.origin:
            self.produced.add(f"{topic}/{partition}/{offset}")
        elif topic == self.processed:
            self.successes[_text(headers, PROCESSED_ORIGIN)] += 1
        elif topic.startswith(self.names.prefix + "DELAY."):
            self.levels[_text(headers, DELAY)] += 1
            self._once(self.sent_back, headers, due_ms(timestamp, self.names.delay_ms(topic)))
        elif topic == self.names.retry(self.group):
            self.retries += 1
            self._once(self.moved, headers, timestamp)
        elif topic == self.names.dead_letter(self.group):
            self.dead[_text(headers, ORIGIN_MESSAGE_ID)] += 1
            self._once(self.moved, headers, timestamp)

        elif topic == self.names.quarantine:
            self.quarantined += 1

    def _once(self, seen: dict[_Attempt, int], headers: Mapping[str, bytes | None], when: int) -> None:
        attempt = (_text(headers, ORIGIN_MESSAGE_ID), _text(headers, RECONSUME_TIME))
        self.repeated += attempt in seen
        seen.setdefault(attempt, when)

    @property
    def settled(self) -> int:
        """Produced messages that were processed or are dead letters."""
        return len(self.produced & (self.successes.keys() | self.dead.keys()))

    @property
    def complete(self) -> bool:
        """Whether nothing waits any more."""
        return self.settled == len(self.produced) and self.sent_back.keys() <= self.moved.keys()

    def report(self) -> dict[str, Any]:
        """The figures, as `reconsume demo -o json` prints them."""
        times_sent_back = Counter(origin for origin, _ in self.sent_back)
        lateness = sorted(self.moved[one] - due for one, due in self.sent_back.items() if one in self.moved)
        lost = len(self.produced) - self.settled + len(self.sent_back.keys() - self.moved.keys())
        twice = sum(times - 1 for counts in (self.successes, self.dead) for times in counts.values())
        both = len(self.successes.keys() & self.dead.keys())
        return {
            "produced": len(self.produced),
            "delivered": len(self.produced) + self.retries,
            "sent_back": {level: self.levels[level] for level in sorted(self.levels, key=int) if level != "0"},
            "succeeded_after": {
                str(times): count
                for times, count in sorted(Counter(times_sent_back[one] for one in self.successes).items())
            },
            "dead_letters": sum(self.dead.values()),
            "quarantined": self.quarantined,
            "lateness_ms": {
                "p50": _quantile(lateness, 0.5),
                "p99": _quantile(lateness, 0.99),
                "max": lateness[-1] if lateness else 0,
            },
            "early": sum(late < 0 for late in lateness),
            "lost": lost,
            "duplicates": self.repeated + twice + both,
        }


def _text(headers: Mapping[str, bytes | None], name: str) -> str:
    return (headers.get(name) or b"").decode(errors="replace")


def _quantile(ordered: list[int], part: float) -> int:
    return ordered[min(len(ordered) - 1, int(len(ordered) * part))] if ordered else 0
