"""What the pages ask, answered from memory: for what is ours alone, the pages. Kafka is asked in tests/integration."""

from __future__ import annotations

import collections
from collections.abc import Callable, Collection, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from typing import Any

from reconsume.bridge.groups.groups import Groups, SubscriptionGroupConfig
from reconsume.bridge.process.settings import Settings
from reconsume.bridge.reading.counting import Count
from reconsume.console.cluster import CauseCounts, ConsoleCluster, HourCounts
from reconsume.console.snapshot import Snapshot, Snapshots
from reconsume.delay_levels.errors import IllegalSetting, RecordNotFound, TopicNotReady
from reconsume.delay_levels.wire.dead_letter_states import DeadLetterState
from reconsume.delay_levels.wire.jobs.job_records import DeadLetterFilter, JobEvent, JobSpec
from reconsume.delay_levels.wire.properties import Header
from reconsume.delay_levels.wire.resend import SEND, DeadLetterInfo
from reconsume.delay_levels.wire.send_back_copy import Position
from reconsume.operations.dead_letter_index.letters import Counted, IndexedLetter, LetterFilter
from reconsume.operations.dead_letter_index.pages import indexed_page
from reconsume.operations.dead_letter_index.store import DeadLetterStore
from reconsume.operations.dead_letter_states import state_name
from reconsume.operations.dead_letters import DeadLetterRecord, Page, matches
from reconsume.operations.jobs.planning import JobPlan
from reconsume.operations.jobs.records import Job
from reconsume.operations.jobs.selection import JobDraft
from reconsume.operations.lives.group_hours import RetryHours
from reconsume.operations.lives.group_waits import GroupWaits
from reconsume.operations.lives.message_life import LifeStep, MessageLife
from reconsume.operations.quarantine.records import QuarantineRecord
from reconsume.operations.record_address import RecordAddress
from reconsume.operations.resolve import Changed
from reconsume.operations.status import GroupStatus, LaneStatus, Status
from tests.support.consoles import Browser, console_settings, running_console

__all__ = ["LETTERS", "NOW", "TOKEN", "FakeCluster", "letter", "running_over", "status_of_groups"]

LETTERS = "/groups/departures/dead-letters"
TOKEN = "0123456789abcdef0123456789abcdef"
NOW = 1_795_377_600_000
FIRST_MS = (NOW // 3_600_000 - 71) * 3_600_000
"""2026-11-22 20:00:00 UTC."""


def letter(
    offset: int,
    cause: str | None = "no dep_time",
    *,
    key: bytes | None = b"PUL1545",
    value: bytes | None = b'{"flight": 1545}',
    exception_class: str | None = "builtins.ValueError",
    headers: Sequence[Header] = (),
    group: str = "departures",
) -> DeadLetterRecord:
    """A dead letter of `flights`; it died a minute ago for each offset below 60."""
    ours = {
        "RETRY_TOPIC": "flights",
        "ORIGIN_MESSAGE_ID": f"flights/0/{offset}",
        "RECONSUME_TIME": "17",
        "BORN_TIMESTAMP": str(NOW - 86_400_000),
        "__dlq.errors.message": cause,
        "__dlq.errors.exception.class": exception_class,
    }
    told = [(name, text.encode()) for name, text in ours.items() if text is not None]
    every: list[Header] = [*headers, *told]
    info = DeadLetterInfo.of(group, Position(f"reconsume.DLQ.{group}", 0, offset), every)
    place, stored_ms = RecordAddress(0, offset), NOW - (60 - offset) * 60_000
    return DeadLetterRecord(f"reconsume.DLQ.{group}", place, key, value, every, stored_ms, info)


def status_of_groups(**dead_letters: int) -> Status:
    """The status where these groups have so many dead letters."""
    lane = LaneStatus("reconsume.DELAY.10s", Count(7, exact=True), Count(2, exact=True), NOW + 8_000)
    groups = [GroupStatus(name, Count(3, exact=True), Count(one, exact=True)) for name, one in dead_letters.items()]
    return Status(NOW, [lane], groups, Count(0, exact=True))


@dataclass
class FakeCluster(ConsoleCluster):
    """Answers, or raises, what it is told to.

    Attributes:
        letters: by group, oldest first.
        verdicts: by place, where it is not `send`.
        store: the index, if it is complete.
        left: records that the index has still to read.
        trouble: why the index is not up to date.
        asked: the filters of pages.
    """

    report: Status = field(default_factory=lambda: status_of_groups(departures=2))
    known: Groups = field(
        default_factory=lambda: Groups(by_name={"departures": SubscriptionGroupConfig(group_name="departures")})
    )
    letters: dict[str, list[DeadLetterRecord]] = field(default_factory=dict)
    verdicts: dict[RecordAddress, str] = field(default_factory=dict)
    error: Exception | None = None
    store: DeadLetterStore | None = None
    left: int | None = None
    trouble: str = ""
    asked: list[tuple[DeadLetterFilter, str | None, int]] = field(default_factory=list)

    jobs: dict[str, Job] = field(default_factory=dict)
    held: list[QuarantineRecord] = field(default_factory=list)
    closed: list[tuple[str, str]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.snapshots = Snapshots(self.latest)

    def _letters(self, group: str) -> list[DeadLetterRecord]:
        if self.error is not None:
            raise self.error
        if group not in self.letters:
            raise TopicNotReady(f"group {group!r} has no dead-letter topic")
        return self.letters[group]

    def latest(self) -> Snapshot:
        if self.error is not None:
            raise self.error
        letters = None if self.store is None else self.store.open_by_group(NOW)
        by_hour = None if self.store is None else self.store.new_by_hour(NOW)
        return Snapshot(self.report, self.known, letters, by_hour, list(self.jobs.values()), NOW, ["worker-1"])

    def fresh(self) -> Snapshot:
        return self.latest()

    def plan_job(
        self, draft: JobDraft, told: Callable[[DeadLetterRecord, str], None] = lambda _one, _status: None
    ) -> JobPlan:
        letters = [
            one
            for one in self._letters(draft.group)
            if (draft.wanted.text is None or draft.wanted.text in (one.letter.cause or ""))
            and (draft.records is None or one.place in draft.records)
        ]
        statuses = collections.Counter[str]()
        for one in letters:
            status = self.verdicts.get(one.place, SEND)
            told(one, status)
            statuses[status] += 1
        causes = [Counted(one.letter.cause or "", 1, one.stored_ms, one.stored_ms) for one in letters]
        hours = [Counted(str(NOW - 3_600_000), len(letters), NOW - 3_600_000, NOW)]
        return JobPlan(len(letters), statuses[SEND], statuses, causes, hours)

    def create_job(self, draft: JobDraft, by: str, why: str, count: int | None) -> Job:
        self._letters(draft.group)
        spec = JobSpec(
            *(draft.kind, draft.group, NOW, by, why, f"reconsume.DLQ.{draft.group}", "id", {0: (0, 9)}, draft.wanted),
            count=count,
            rate=draft.rate,
            target=draft.target,
            records=None if draft.records is None else {0: [one.offset for one in draft.records]},
            edit=draft.edit,
        )
        job = Job(f"{draft.kind}-{len(self.jobs)}", spec)
        self.jobs[job.name] = job
        return job

    def job(self, name: str) -> Job:
        if name not in self.jobs:
            raise IllegalSetting(f"job {name!r} does not exist")
        return self.jobs[name]

    def now_ms(self) -> float:
        return NOW

    def steer_job(self, name: str, wish: str, by: str, why: str) -> Job:
        job = self.job(name)
        event = JobEvent(NOW, by, "run" if wish == "resume" else wish, why)
        self.jobs[name] = replace(job, events=(*job.events, event))
        return self.jobs[name]

    def waits(self, group: str) -> GroupWaits:
        return GroupWaits({"reconsume.DELAY.10s": len(self._letters(group))}, 7, is_whole=False)

    def retry_hours(self, group: str) -> RetryHours:
        self._letters(group)
        return RetryHours(FIRST_MS, [0] * 70 + [3, 4], is_exact=False, since_ms=NOW - 86_400_000)

    def pause_retries(self, group: str, *, is_paused: bool) -> None:
        if self.error is not None:
            raise self.error
        config = SubscriptionGroupConfig(group_name=group, retry_paused=is_paused)
        self.known = Groups(by_name={**self.known.by_name, group: config})

    def life(self, group: str, one: DeadLetterRecord) -> MessageLife:
        steps = [
            LifeStep("waited", NOW - 9_000, "reconsume.DELAY.10s", 0, 4, 1, None, one.letter.cause),
            LifeStep("delivered", NOW - 8_000, f"reconsume.RETRY.{group}", 0, 2, 1, "console-1", None),
            LifeStep("died", one.stored_ms, one.topic, *one.place, 17, None, one.letter.cause),
        ]
        return MessageLife(steps, 99, is_whole=False)

    def hours(self, group: str) -> HourCounts | None:
        if self.store is None:
            return None
        return HourCounts(FIRST_MS, [0] * 71 + [self.store.count(LetterFilter(group=group))])

    def of_message(self, group: str, letter: DeadLetterInfo) -> list[IndexedLetter]:
        wanted = LetterFilter(group=group, message_id=letter.origin_message_id)
        return [] if self.store is None else self.store.find(wanted)

    def label(self, group: str, one: DeadLetterRecord) -> str | None:
        return None if self.store is None else f"{group}: {one.letter.cause}"

    def quarantine(self, limit: int) -> tuple[list[QuarantineRecord], bool]:
        return self.held[:limit], len(self.held) > limit

    def release(self, places: Collection[RecordAddress]) -> int:
        self.held = [one for one in self.held if one.place not in places]
        return len(places)

    def resolve_quarantined(self, places: Collection[RecordAddress], by: str, why: str) -> int:
        self.closed.append((by, why))
        return self.release(places)

    def left_to_index(self) -> int | None:
        return self.left

    def index_trouble(self) -> str:
        return self.trouble

    def causes(self, group: str) -> CauseCounts | None:
        return None if self.store is None else CauseCounts.of(self.store, group)

    def page(self, group: str, wanted: DeadLetterFilter, *, before: str | None = None, limit: int = 50) -> Page:
        self.asked.append((wanted, before, limit))
        if self.store is not None:
            return indexed_page(self.store, group, f"reconsume.DLQ.{group}", wanted, before, limit)
        found = [one for one in reversed(self._letters(group)) if matches(wanted, one)]
        return Page(found[:limit], len(self.letters[group]), "0:17" if len(found) > limit else None)

    def one(self, group: str, place: RecordAddress) -> DeadLetterRecord:
        found = [one for one in self._letters(group) if one.place == place]
        if not found:
            raise RecordNotFound(f"{place} of group {group!r} is not a dead letter")
        return found[0]

    def resolve(self, group: str, places: Collection[RecordAddress], by: str, why: str) -> list[Changed]:
        return self._change(group, places, "OPEN", DeadLetterState("RESOLVED", NOW, by, why))

    def reopen(self, group: str, places: Collection[RecordAddress]) -> list[Changed]:
        return self._change(group, places, "RESOLVED", None)

    def _change(
        self, group: str, places: Collection[RecordAddress], wanted: str, state: DeadLetterState | None
    ) -> list[Changed]:
        done = [
            Changed(one, state_name(one.state), state_name(one.state) == wanted)
            for one in self._letters(group)
            if one.place in places
        ]
        changed = {one.record.place for one in done if one.is_changed}
        self.letters[group] = [
            replace(one, state=state) if one.place in changed else one for one in self._letters(group)
        ]
        return done


def running_over(cluster: FakeCluster, **settings: Any) -> AbstractContextManager[Browser]:
    """A console that asks this cluster, at a time that stands still."""
    return running_console(console_settings(Settings(), **settings), cluster, clock=lambda: NOW)
