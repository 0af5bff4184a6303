"""The verdict on a run, from the contents of the topics alone.

What is promised, for consumers with `exactly_once` and schedulers with transactions:

1. **Nothing lost.** A message that fails k times, k at most the maximum, has one copy on a delay topic and one on the
   retry topic for each failure, and was processed. One that fails more often has one copy on a delay topic for each
   failure, one on the retry topic for each but the last, and one on the dead-letter topic.
2. **Nothing early.** A copy was stored on the retry or dead-letter topic no sooner than its delay after it was stored
   on the delay topic, both by the brokers' clock.
3. **Nothing twice.** None of these copies is there a second time, and there are no others.
4. **Nothing in the quarantine, but what belongs there.** A record that its retry topic refuses, or whose retry topic
   cannot be made, is there once instead of on the retry topic. A record of the poisoned group may be there too if the
   right to write to its retry topic was taken at that time. No other record is there.

A listener may process a message again after its consumer died: only what is written by reconsume is judged.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Any, Final, NamedTuple

LEVEL_TABLE: Final = "1s 1s 1s 2s 3s"
"""The first retry waits 1 s, the second 2 s, the third 3 s."""
MAX_RECONSUME_TIMES: Final = 3
DEAD: Final = MAX_RECONSUME_TIMES + 1
"""The number of failures that makes a dead letter."""
Place = int
"""A message's place in its first topic: offset and partition in one number, to save memory."""
PLACE_BITS: Final = 8
"""A number for the partition, which `reading` counts across topics."""
_TIMES_BITS: Final = 3
_EXAMPLES: Final = 20
_AFTER_MS: Final = 10_000
"""A refused batch may be quarantined this long after the right was restored."""


class Poison(StrEnum):
    """A message of a bad group, which fails once, and its required end."""

    SMALL = "small"
    """It is delivered, whatever happens to its neighbours; without the right to write it is quarantined."""
    LARGE = "large"
    """Its retry topic refuses it, so it is quarantined."""
    UNMADE = "unmade"
    """Its retry topic cannot be made, so it is quarantined."""
    SLIP = "slip"
    """Its listener does what listeners must not do. It is sent back and delivered."""

    @property
    def is_refused(self) -> bool:
        """Return whether the quarantine is its only correct end."""
        return self in (Poison.LARGE, Poison.UNMADE)


@dataclass(frozen=True, slots=True)
class TopicsVerdict:
    """The figures of a run.

    Attributes:
        messages: number of produced messages, including those of poisoned groups.
        failures: number of copies on delay topics.
        lost, early, duplicates: number of messages or copies with a broken promise.
        quarantined: number of copies in the quarantine.
        wrongly_quarantined: number of those that do not belong there.
        examples: descriptions of some of them.
    """

    messages: int
    failures: int
    lost: int
    early: int
    duplicates: int
    quarantined: int
    wrongly_quarantined: int
    examples: list[str]

    @property
    def ok(self) -> bool:
        """Return whether all promises were kept."""
        return not (self.lost or self.early or self.duplicates or self.wrongly_quarantined)


class _Copy(NamedTuple):
    """A record that reconsume has written; `due_ms` is when a copy on a delay topic is due."""

    stored_ms: int
    at: str
    due_ms: int = 0


@dataclass(slots=True)
class TopicsJudge:
    """Receives every committed record once, in any order; times are milliseconds of the brokers' clock.

    The place of a record (`at`) is `<topic>-<partition>@<offset>`.

    Attributes:
        processed_again: how often a listener succeeded with a message that was processed before.
    """

    _origins: dict[Place, tuple[int, int]] = field(default_factory=dict)
    _processed: dict[Place, int] = field(default_factory=dict)
    _waited: dict[int, _Copy] = field(default_factory=dict)
    _moved: dict[int, _Copy] = field(default_factory=dict)
    _dead: dict[int, _Copy] = field(default_factory=dict)
    _quarantined: dict[int, _Copy] = field(default_factory=dict)
    _poison: dict[Place, Poison] = field(default_factory=dict)
    _again: Counter[str] = field(default_factory=Counter)
    _examples: list[str] = field(default_factory=list)
    _open: set[Place] = field(default_factory=set)
    processed_again: int = 0

    def produced(self, place: Place, failures: int, stored_ms: int, poison: Poison | None = None) -> None:
        """Note a message that fails this often; of a poisoned group, with its required end."""
        self._origins[place] = failures, stored_ms
        if poison is not None:
            self._poison[place] = poison
        self._look(place)

    def processed(self, place: Place, stored_ms: int) -> None:
        """Note a success of the listener; only the first counts."""
        self.processed_again += place in self._processed
        self._processed.setdefault(place, stored_ms)
        self._look(place)

    def sent_back(self, place: Place, times: int, stored_ms: int, delay_ms: int, at: str) -> None:
        """Note a copy on a delay topic."""
        self._note("sent back", self._waited, place, times, _Copy(stored_ms, at, stored_ms + delay_ms))

    def moved(self, place: Place, times: int, stored_ms: int, at: str, *, dead: bool) -> None:
        """Note a copy on the retry topic or the dead-letter topic."""
        if dead:
            self._note("dead", self._dead, place, times, _Copy(stored_ms, at))
        else:
            self._note("delivered", self._moved, place, times, _Copy(stored_ms, at))

    def quarantined(self, place: Place, times: int, stored_ms: int, at: str) -> None:
        """Note a copy in the quarantine; `at` includes the reason."""
        self._note("quarantined", self._quarantined, place, times, _Copy(stored_ms, at))

    def _note(self, what: str, found: dict[int, _Copy], place: Place, times: int, copy: _Copy) -> None:
        """Keep the first copy; a second one breaks a promise."""
        key = _key(place, times)
        if (other := found.get(key)) is not None:
            self._again[what] += 1
            first, second = sorted([copy, other])
            found[key] = first
            if len(self._examples) < _EXAMPLES:
                apart = (second.stored_ms - first.stored_ms) / 1000
                self._examples.append(
                    f"TWICE: {self._shown(place)} was {what} twice after failure {times}: {first.at} at "
                    f"{_time(first.stored_ms)}, and {second.at} {apart:.3f} s later"
                )
        else:
            found[key] = copy
        self._look(place)

    def _shown(self, place: Place) -> str:
        poison = f" ({self._poison[place]})" if place in self._poison else ""
        return f"{place & (1 << PLACE_BITS) - 1}/{place >> PLACE_BITS}{poison}"

    def _look(self, place: Place) -> None:
        if place in self._origins and not self._missing(place):
            self._open.discard(place)
        else:
            self._open.add(place)

    def _missing(self, place: Place) -> str | None:
        failures, _ = self._origins[place]
        is_refused = place in self._poison and self._poison[place].is_refused
        for times in range(1, failures + 1):
            key = _key(place, times)
            if key not in self._waited:
                return f"has no copy on a delay topic for failure {times}"
            if key in self._quarantined:
                return None
            if is_refused:
                return f"was not quarantined after failure {times}"
            if key not in (self._dead if times == DEAD else self._moved):
                return f"was not delivered after failure {times}"
        return "was not processed" if failures < DEAD and place not in self._processed else None

    @property
    def complete(self) -> bool:
        """Return whether every message has ended."""
        return not self._open

    @property
    def messages(self) -> int:
        """The number of produced messages."""
        return len(self._origins)

    @property
    def any_processed(self) -> bool:
        """Return whether the consumers have begun."""
        return bool(self._processed)

    @property
    def behind(self) -> int:
        """The number of messages that have not ended."""
        return len(self._open)

    def verdict(self, writing_taken: Sequence[tuple[float, float]] = ()) -> TopicsVerdict:
        """Return the verdict on the records.

        Args:
            writing_taken: when the right to write to the poisoned group's retry topic was revoked and restored.
        """
        examples = list(self._examples)
        for place in sorted(self._open):
            missing = self._missing(place) if place in self._origins else "is on other topics, but was never produced"
            examples.append(f"LOST: {self._shown(place)} {missing}")
        early = 0
        for key, copy in (*self._moved.items(), *self._dead.items(), *self._quarantined.items()):
            waited = self._waited.get(key)
            if waited is not None and copy.stored_ms < waited.due_ms:
                early += 1
                by_ms = waited.due_ms - copy.stored_ms
                examples.append(
                    f"EARLY: {self._shown(key >> _TIMES_BITS)} by {by_ms} ms: {waited.at}, delivered to {copy.at}"
                )
        extra = [*self._unexpected(), *self._both()]
        wrong = list(self._wrongly_quarantined(writing_taken))
        return TopicsVerdict(
            messages=len(self._origins),
            failures=len(self._waited),
            lost=len(self._open),
            early=early,
            duplicates=self._again.total() + len(extra),
            quarantined=len(self._quarantined),
            wrongly_quarantined=len(wrong),
            examples=[*examples, *extra, *wrong][:_EXAMPLES],
        )

    def _unexpected(self) -> Iterator[str]:
        for what, found, last in (
            ("sent back", self._waited, DEAD),
            ("delivered", self._moved, DEAD - 1),
            ("dead", self._dead, DEAD),
            ("quarantined", self._quarantined, DEAD),
        ):
            for key in found:
                place, times = key >> _TIMES_BITS, key & ((1 << _TIMES_BITS) - 1)
                failures = self._origins.get(place, (DEAD, 0))[0]
                if not 1 <= times <= min(failures, last) or (what == "dead" and times != DEAD):
                    yield (
                        f"UNEXPECTED: {self._shown(place)} was {what} after failure {times}, and fails {failures} times"
                    )

    def _both(self) -> Iterator[str]:
        for key, copy in self._quarantined.items():
            if (other := self._moved.get(key) or self._dead.get(key)) is not None:
                yield f"TWICE: {self._shown(key >> _TIMES_BITS)} is at {other.at} and at {copy.at}"

    def _wrongly_quarantined(self, writing_taken: Sequence[tuple[float, float]]) -> Iterator[str]:
        for key, copy in self._quarantined.items():
            place = key >> _TIMES_BITS
            poison = self._poison.get(place)
            taken = any(begun <= copy.stored_ms <= ended + _AFTER_MS for begun, ended in writing_taken)
            if poison is None or not (poison.is_refused or taken):
                yield f"QUARANTINED: {self._shown(place)} is at {copy.at}"

    @property
    def moves(self) -> tuple[int, int]:
        """Return the number of copies written to delay topics, and of those that have left them."""
        return len(self._waited), len(self._moved) + len(self._dead) + len(self._quarantined)

    def figures(self) -> dict[str, Any]:
        """Return numbers of messages and copies, by the failure of a copy and by the failures before a success."""
        failures = Counter(key >> _TIMES_BITS for key in self._waited)
        return {
            "delivered": len(self._origins) + len(self._moved),
            "failed": Counter(key & ((1 << _TIMES_BITS) - 1) for key in self._waited),
            "succeeded_after": Counter(failures[place] for place in self._processed),
            "dead_letters": len(self._dead),
            "quarantined": len(self._quarantined),
        }

    def deliveries(self) -> Iterator[tuple[int, int]]:
        """Yield due and actual time of each step of the schedulers, for healthy groups."""
        for key, copy in self._waited.items():
            done = self._moved.get(key) or self._dead.get(key)
            if done is not None and key >> _TIMES_BITS not in self._poison:
                yield copy.due_ms, done.stored_ms

    def late(self, limit_ms: int) -> Iterator[tuple[int, int]]:
        """Yield late steps of healthy groups: due and actual time of each.

        The steps are those of the schedulers, from the due moment to the delivery, and those of the consumers, from a
        message's arrival to its success or the copy on a delay topic.
        """
        yield from ((due_ms, done_ms) for due_ms, done_ms in self.deliveries() if done_ms - due_ms > limit_ms)
        for place, (failures, stored_ms) in self._origins.items():
            if place in self._poison:
                continue
            for times in range(min(failures + 1, DEAD)):
                delivered = self._moved.get(_key(place, times))
                arrived_ms = stored_ms if times == 0 else delivered and delivered.stored_ms
                waits = self._waited.get(_key(place, times + 1))
                handled_ms = self._processed.get(place) if times == failures else waits and waits.stored_ms
                if arrived_ms is not None and handled_ms is not None and handled_ms - arrived_ms > limit_ms:
                    yield arrived_ms, handled_ms


def _key(place: Place, times: int) -> int:
    return place << _TIMES_BITS | min(times, (1 << _TIMES_BITS) - 1)


def _time(stored_ms: int) -> str:
    return datetime.fromtimestamp(stored_ms / 1000).astimezone().isoformat(timespec="milliseconds")
