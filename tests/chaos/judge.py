"""Says what went wrong, from the topics and from what the members wrote down.

What is promised, for one group:

1. **Nothing lost.** Every message of the origin topic ends: its listener succeeded, or it was given up after its last
   attempt. Every failed delivery has its copy on a delay topic, with `exactly_once` exactly one for each attempt,
   otherwise at least one and at most one for each delivery that failed.
2. **A delivery is repeated only if it was unfinished.** A delivery is a record of a partition with its count. Where a
   record is delivered again with the same count, each earlier delivery of it
   a. has no end (its member was killed, or is not through yet), or
   b. ended after its partition was taken from its member (revoked, lost), or was given away before its end: its
      result counts no more; or
   c. ended less than `COMMIT_SECONDS` before its member was killed or stopped, or lost the partition: a result is
      committed within the next second. A member that gives a partition back, or leaves, commits first, so this does
      not excuse a repeat after a revocation. With the classic protocol a commit that is made while a member waits for
      the group is answered when the rebalance ends, and refused: then it counts from the refusal, of a rebalance that
      took no longer than a dead member's session.
   Or the repeat is a zombie's: begun between the moment its member was stopped and the moment it learned that it
   had been put out of the group. Kafka cannot take back what a process has read.
   In a poll loop of the user's own a delivery is settled when `commit` or `send_message_back` has returned, and none
   is settled twice: what a loop still has in its hands when it was put out is refused, so that b and c are not needed.
3. **In order** (orderly listeners). No message begins before all those in front of it in its partition have succeeded
   or were given up. No two members work on a partition at the same time, except a zombie, a listener that still ran
   when its partition was given away, or its member left, after 0.8 x `max.poll.interval.ms` ("overdue"), and one
   whose member was killed.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from math import inf
from typing import Final

from tests.chaos.journal import Event
from tests.chaos.programs.member import MAX_RECONSUME_TIMES, SESSION_SECONDS, fails

__all__ = ["COMMIT_SECONDS", "Copy", "Evidence", "Judge"]

COMMIT_SECONDS: Final = 4.0
"""The commit's period of 1 s, a transaction, and a busy machine."""
_RACE_SECONDS: Final = 0.3
"""Between what a member writes down and the moment it takes effect."""

_Record = tuple[str, int, int]


@dataclass(frozen=True, slots=True)
class Copy:
    """A copy on a delay topic.

    Attributes:
        times: its `RECONSUME_TIME`.
        dead: whether it is on its way to the dead-letter topic.
    """

    origin: str
    times: int
    dead: bool


@dataclass(frozen=True)
class Evidence:
    """What is judged.

    Attributes:
        origins: the body of each message by its origin message id.
        copies: what stands on the delay topics.
        events: of all members, and what was done to them.
        poll_loop: the members have one of their own.
    """

    origins: Mapping[str, str]
    copies: Sequence[Copy]
    events: Sequence[Event]
    exactly_once: bool
    orderly: bool = False
    poll_loop: bool = False


@dataclass
class _Delivery:
    begin: Event
    end: Event | None = None
    worked: bool = False

    @property
    def record(self) -> _Record:
        return self.begin.topic, self.begin.partition, self.begin.offset

    @property
    def partition(self) -> str:
        return f"{self.begin.topic}-{self.begin.partition}"

    @property
    def ended(self) -> float:
        return inf if self.end is None else self.end.at

    def __str__(self) -> str:
        one, ended = self.begin, "no end" if self.end is None else f"{self.end.at:.3f}"
        where = f"{self.partition}@{one.offset} x{one.times}"
        return f"{where} ({one.body}) by {one.member} {one.at:.3f}..{ended}"


@dataclass
class _Member:
    """What was done to a member.

    Attributes:
        killed: when; infinity if it was not.
        left: when it went though a listener still ran.
        taken: when a partition was taken from it, and how.
        refused: when a commit was, by partition.
        zombie: when it did not know that it had been put out.
    """

    killed: float = inf
    stopped: list[float] = field(default_factory=list)
    continued: float = -inf
    left: list[float] = field(default_factory=list)
    taken: dict[str, list[Event]] = field(default_factory=lambda: defaultdict(list))
    refused: dict[str, list[float]] = field(default_factory=lambda: defaultdict(list))
    zombie: list[tuple[float, float]] = field(default_factory=list)

    def note(self, event: Event) -> None:
        """In the order of time."""
        if event.what == "killed":
            self.killed = event.at
        elif event.what == "stopped":
            self.stopped.append(event.at)
            self.zombie.append((event.at, inf))
        elif event.what == "continued":
            self.continued = event.at
        elif event.what == "left":
            self.left.append(event.at)
        for partition in event.partitions if event.what in {"revoked", "lost", "overdue"} else ():
            self.taken[partition].append(event)
        for partition in event.partitions if event.what == "refused" else ():
            self.refused[partition].append(event.at)
        if event.what in {"lost", "revoked", "assigned"} and self.zombie and self.continued > self.zombie[-1][0]:
            # One that had no partition has nothing to lose, and is assigned some.
            start, end = self.zombie[-1]
            self.zombie[-1] = start, min(end, event.at + _RACE_SECONDS)

    def commits_until(self, partition: str, ended: float) -> float:
        """When what ended then is committed at the latest."""
        until = ended + COMMIT_SECONDS
        for at in self.refused[partition]:
            if ended < at < until + SESSION_SECONDS:
                until = max(until, at + COMMIT_SECONDS)
        return until

    def is_zombie(self, at: float) -> bool:
        return any(start <= at <= end for start, end in self.zombie)


class Judge:
    """Finds what was promised and is not so; each finding is a sentence."""

    def __init__(self, evidence: Evidence) -> None:
        self._evidence = evidence
        self._events = sorted(evidence.events, key=lambda event: event.at)
        self._members: dict[str, _Member] = defaultdict(_Member)
        self._deliveries: list[_Delivery] = []
        self._read()

    def findings(self) -> list[str]:
        """All of them; none is what we want."""
        found = [*self._lost(), *self._send_backs(), *self._repeats()]
        if self._evidence.orderly:
            found += [*self._disorder(), *self._two_at_once()]
        return found

    def unfinished(self) -> list[str]:
        """Messages that have not come to their end by now."""
        return [one for one in self._evidence.origins if one not in self._ended()]

    def repeated(self) -> int:
        """How many deliveries were repeats, excused or not."""
        return len(self._deliveries) - len({(one.record, one.begin.times) for one in self._deliveries})

    def deliveries(self) -> int:
        return len(self._deliveries)

    def _read(self) -> None:
        running: dict[tuple[str, _Record, int], list[_Delivery]] = defaultdict(list)
        for event in self._events:
            key = (event.member, (event.topic, event.partition, event.offset), event.times)
            if event.what == "begin":
                running[key].append(_Delivery(event))
                self._deliveries.append(running[key][-1])
            elif event.what == "worked":
                running[key][0].worked = True
            elif event.what == "end":
                running[key].pop(0).end = event
            else:
                self._members[event.member].note(event)

    def _ended(self) -> set[str]:
        done = [one for one in self._deliveries if one.worked or one.end is not None]
        last = {one.begin.origin for one in done if _is_last(one)}
        return last & set(self._evidence.origins)

    def _lost(self) -> Iterable[str]:
        ended = self._ended()
        for origin, body in self._evidence.origins.items():
            if origin not in ended:
                yield f"LOST: {origin} ({body}) has not come to its end"

    def _send_backs(self) -> Iterable[str]:
        copies = Counter((one.origin, one.times) for one in self._evidence.copies)
        # A listener without an end in the journal may have come to it just before its member was killed.
        failed = Counter(
            (one.begin.origin, one.begin.times) for one in self._deliveries if fails(one.begin.body, one.begin.times)
        )
        for origin, body in self._evidence.origins.items():
            for times in range(MAX_RECONSUME_TIMES + 1):
                if not self._is_sent_back(body, times):
                    continue
                count = copies.pop((origin, times + 1), 0)
                most = 1 if self._evidence.exactly_once else failed[origin, times]
                if count == 0:
                    yield f"NOT SENT BACK: {origin} ({body}) after attempt {times}"
                elif count > most:
                    yield f"SENT BACK {count} TIMES, not {most}: {origin} ({body}) after attempt {times}"
        for (origin, times), count in copies.items():
            yield f"SENT BACK WITHOUT A FAILURE: {origin} x{times}, {count} times"

    def _is_sent_back(self, body: str, times: int) -> bool:
        if self._evidence.orderly:
            return body.startswith("dead-") and times == MAX_RECONSUME_TIMES
        return fails(body, times)

    def _repeats(self) -> Iterable[str]:
        by_record: dict[tuple[_Record, int], list[_Delivery]] = defaultdict(list)
        for one in self._deliveries:
            for earlier in by_record[one.record, one.begin.times]:
                if not (self._is_zombies(one) or self._was_unfinished(earlier, one)):
                    yield f"REPEATED: {earlier}, then {one}"
            by_record[one.record, one.begin.times].append(one)

    def _was_unfinished(self, one: _Delivery, repeat: _Delivery) -> bool:
        if one.end is None or one.end.at > repeat.begin.at:
            return True
        if self._evidence.poll_loop:
            return not (one.end.settled and repeat.end is not None and repeat.end.settled)
        member = self._members[one.begin.member]
        until = member.commits_until(one.partition, one.end.at)
        if member.killed < until or any(one.begin.at - _RACE_SECONDS < stopped < until for stopped in member.stopped):
            return True
        taken = [event for event in member.taken[one.partition] if event.at > one.begin.at - _RACE_SECONDS]
        return any(event.at < (until if event.what == "lost" else one.end.at + _RACE_SECONDS) for event in taken)

    def _is_zombies(self, one: _Delivery) -> bool:
        return self._members[one.begin.member].is_zombie(one.begin.at)

    def _disorder(self) -> Iterable[str]:
        ended: dict[_Record, float] = {}
        for one in self._deliveries:
            if one.end is not None and _is_last(one):
                ended[one.record] = min(ended.get(one.record, inf), one.end.at)
        by_partition: dict[str, list[_Delivery]] = defaultdict(list)
        for one in self._deliveries:
            by_partition[one.partition].append(one)
        for deliveries in by_partition.values():
            through, offset, ends = -inf, -1, -inf
            for one in sorted(deliveries, key=lambda one: (one.begin.offset, one.begin.at)):
                if one.begin.offset != offset:
                    through, offset, ends = max(through, ends), one.begin.offset, ended.get(one.record, inf)
                if one.begin.at < through and not self._is_zombies(one):
                    yield f"OUT OF ORDER: {one} began before all in front of it had ended at {through:.3f}"

    def _two_at_once(self) -> Iterable[str]:
        by_partition: dict[str, list[_Delivery]] = defaultdict(list)
        for one in self._deliveries:
            before = by_partition[one.partition]
            for earlier in before:
                if self._works_until(earlier) > one.begin.at and not self._is_zombies(one):
                    yield f"TWO AT ONCE: {earlier}, and {one}"
            by_partition[one.partition] = [other for other in before if other.ended > one.begin.at] + [one]

    def _works_until(self, one: _Delivery) -> float:
        """As far as its member answers for it."""
        member = self._members[one.begin.member]
        given_up = [
            event.at
            for event in member.taken[one.partition]
            if event.what in {"overdue", "lost"} and event.at > one.begin.at
        ]
        given_up += [at for at in member.left if at > one.begin.at]
        zombie = [start for start, end in member.zombie if start <= one.ended and end >= one.begin.at]
        return min([one.ended, member.killed, *given_up, *zombie])


def _is_last(one: _Delivery) -> bool:
    """Whether no other delivery is to follow."""
    return not fails(one.begin.body, one.begin.times) or one.begin.times >= MAX_RECONSUME_TIMES
