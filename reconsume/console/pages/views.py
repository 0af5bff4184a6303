"""The contents of pages, computed from Kafka's answers."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import accumulate
from typing import Final, NamedTuple

from reconsume.bridge.groups.groups import Groups, SubscriptionGroupConfig
from reconsume.bridge.reading.counting import Count, total
from reconsume.console.pages.bytes_shown import shorten
from reconsume.console.pages.rows import CAUSE_CHARACTERS
from reconsume.console.sign_in.access import ConsoleCaller
from reconsume.console.snapshot import Snapshot
from reconsume.delay_levels.errors import SubscriptionGroupNotExist
from reconsume.delay_levels.rules.retry_policies import RetryPolicy
from reconsume.delay_levels.wire.names import TopicNames
from reconsume.operations.dead_letter_index.letters import OpenLetters
from reconsume.operations.dead_letters import DeadLetterRecord
from reconsume.operations.status import GroupStatus, LaneStatus, Status

SHOWN_GROUPS: Final = 500
NO_RECORDS: Final = Count(0, exact=True)
_LONGEST_LADDER: Final = 40
_SHORTEST_NEEDLE: Final = 4
_NUMBERS: Final = re.compile(r"\d+")


@dataclass(frozen=True, slots=True)
class Overview:
    """The first page.

    Attributes:
        groups: the matching groups, those that need attention first.
        all_groups: the number of groups without the filter.
        found_groups: the number of matching groups; the page shows the first of them.
        is_exact: whether no number is an estimate.
        open_letters: open dead letters of each group that has some; None if unknown.
        new_by_hour: dead letters of the last 24 hours by group, oldest hour first.
        paused: names of all groups whose retries are paused.
        parked: number of due records of paused groups.
    """

    at_ms: int
    lanes: list[LaneStatus]
    groups: list[GroupStatus]
    all_groups: int
    found_groups: int
    is_exact: bool
    waiting: Count
    overdue: Count
    retry_lag: Count
    dead_letters: Count
    quarantined: Count
    open_letters: Mapping[str, OpenLetters] | None = None
    new_by_hour: Mapping[str, Sequence[int]] = field(default_factory=dict)
    paused: frozenset[str] = frozenset()
    parked: Count = NO_RECORDS

    @property
    def late_ms(self) -> int:
        """How long the most overdue record has been due; 0 if none is."""
        due = [one.next_due_ms for one in self.lanes if one.next_due_ms is not None and one.overdue.number]
        return max(0, self.at_ms - min(due, default=self.at_ms))

    @property
    def all_open(self) -> int | None:
        """The number of open dead letters of all groups."""
        return None if self.open_letters is None else sum(one.number for one in self.open_letters.values())


def visible_to(caller: ConsoleCaller, snapshot: Snapshot) -> Snapshot:
    """Remove the groups that a person may not see; delay topics and quarantine belong to all groups."""
    status, letters, by_hour = snapshot.status, snapshot.open_letters, snapshot.new_by_hour
    return replace(
        snapshot,
        status=replace(status, groups=[one for one in status.groups if caller.role_for(one.group) is not None]),
        open_letters=None if letters is None else {group: letters[group] for group in caller.visible(letters)},
        new_by_hour=None if by_hour is None else {group: by_hour[group] for group in caller.visible(by_hour)},
    )


def overview_of(snapshot: Snapshot, part_of_name: str = "") -> Overview:
    """Sort the groups, those that need attention first, and add up.

    Args:
        snapshot: the state of the installation.
        part_of_name: only groups whose names contain this text; case does not matter.
    """
    status, open_letters = snapshot.status, snapshot.open_letters
    lanes, groups = status.waiting, status.groups
    found = [one for one in groups if part_of_name.casefold() in one.group.casefold()]
    found.sort(key=lambda one: _urgency((open_letters or {}).get(one.group), one))
    return Overview(
        status.at_ms,
        lanes,
        found[:SHOWN_GROUPS],
        len(groups),
        len(found),
        status.is_exact,
        waiting=total(one.waiting for one in lanes),
        overdue=total(one.overdue for one in lanes),
        retry_lag=total(one.retry_lag for one in groups),
        dead_letters=total(one.dead_letters for one in groups),
        quarantined=status.quarantined,
        open_letters=open_letters,
        new_by_hour=snapshot.new_by_hour or {},
        paused=frozenset(one.group for one in groups if snapshot.groups.is_paused(one.group)),
        parked=total(one.parked for one in groups),
    )


def _urgency(letters: OpenLetters | None, one: GroupStatus) -> tuple[int, int, int, int, int, str]:
    """Return a sort key, small for groups that need attention: growing, open, held for a person, waiting."""
    new, number = (0, 0) if letters is None else (letters.last_hour, letters.number)
    return -new, -number, -one.parked.number, -one.dead_letters.number, -one.retry_lag.number, one.group


class Rung(NamedTuple):
    """A retry: its number, level and wait, the sum of waits up to it, and the topic where it waits."""

    retry: int
    level: int
    wait_ms: int
    together_ms: int
    topic: str


def ladder(policy: RetryPolicy, max_times: int, names: TopicNames) -> list[Rung]:
    """Return the waits before each retry of a consumer that requests no level; at most 40."""
    levels = [policy.automatic_level(times) for times in range(min(max_times, _LONGEST_LADDER))]
    waits = [policy.delay_ms(level) for level in levels]
    return [
        Rung(number, level, wait, together, names.delay(wait))
        for number, (level, wait, together) in enumerate(zip(levels, waits, accumulate(waits), strict=True), start=1)
    ]


@dataclass(frozen=True, slots=True)
class GroupPage:
    """One group.

    Attributes:
        config: its settings, or the defaults; None if it is not registered and must be.
        counts: its retries and dead letters; None without these topics.
        rungs: its first waits.
        waiting: waiting records of all groups, by topic.
    """

    group: str
    is_registered: bool
    config: SubscriptionGroupConfig | None
    counts: GroupStatus | None
    policy: RetryPolicy | None = None
    rungs: list[Rung] = field(default_factory=list)
    waiting: Mapping[str, Count] = field(default_factory=dict)


def group_view(group: str, groups: Groups, status: Status, names: TopicNames) -> GroupPage | None:
    """Return the page of a group; None if the group is unknown."""
    counts = next((one for one in status.groups if one.group == group), None)
    is_registered = group in groups.by_name
    if counts is None and not is_registered:
        return None
    try:
        config = groups.find(group)
    except SubscriptionGroupNotExist:
        return GroupPage(group, is_registered, None, counts)
    policy = config.policy(groups.table)
    rungs = ladder(policy, config.retry_max_times, names)
    waiting = {one.topic: one.waiting for one in status.waiting}
    return GroupPage(group, is_registered, config, counts, policy, rungs, waiting)


class CauseRow(NamedTuple):
    """Dead letters of one cause.

    Attributes:
        exception_class: the class of the newest one, on one line.
        cause: the cause of the newest one, on one line.
        needle: a text that all of them contain, for a filter; may be empty.
        number: how many there are.
    """

    exception_class: str
    cause: str
    needle: str
    number: int
    newest: DeadLetterRecord


def causes_of(records: Iterable[DeadLetterRecord]) -> list[CauseRow]:
    """Return causes, the most frequent first; causes that differ only in numbers count as one.

    Args:
        records: newest first.
    """
    found: dict[tuple[str, str], list[DeadLetterRecord]] = {}
    for one in records:
        cause = (one.letter.cause or "").partition("\n")[0].strip()
        found.setdefault((one.letter.exception_class or "", _NUMBERS.sub("#", cause)), []).append(one)
    rows = [_cause_row(of_cause) for of_cause in found.values()]
    return sorted(rows, key=lambda one: -one.number)


def _cause_row(records: Sequence[DeadLetterRecord]) -> CauseRow:
    newest = records[0]
    line = (newest.letter.cause or "").partition("\n")[0].strip()
    kind = newest.letter.exception_class or ""
    needle = max(_NUMBERS.split(line), key=len).strip()
    if len(needle) < _SHORTEST_NEEDLE:
        needle = kind
    shown, cause = shorten(kind, CAUSE_CHARACTERS), shorten(line, CAUSE_CHARACTERS)
    return CauseRow(shown, cause, needle[:CAUSE_CHARACTERS], len(records), newest)
