"""Kafka requests of the pages. All of them block."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Final, NamedTuple, Self

from reconsume.bridge.groups.groups_store import read_groups
from reconsume.bridge.kafka.cluster import Cluster
from reconsume.bridge.process.clock import Clock, now_ms
from reconsume.bridge.process.safe_logger import SafeLogger
from reconsume.bridge.process.settings import Settings
from reconsume.console.snapshot import Snapshot, Snapshots
from reconsume.console.web.faults import ConsoleBusy
from reconsume.delay_levels.errors import KafkaNotReachable, KafkaRefused, ReconsumeError, TopicNotReady
from reconsume.delay_levels.wire.dead_letter_states import OPEN
from reconsume.delay_levels.wire.jobs.job_records import DeadLetterFilter
from reconsume.delay_levels.wire.resend import DeadLetterInfo, is_same_message
from reconsume.operations.dead_letter_index.follower import DeadLetterIndex
from reconsume.operations.dead_letter_index.letters import Counted, IndexedLetter, LetterFilter, OpenLetters
from reconsume.operations.dead_letter_index.pages import cursor_in_kafka, indexed_page, is_index_cursor
from reconsume.operations.dead_letter_index.store import DeadLetterStore
from reconsume.operations.dead_letters import DeadLetterRecord, Page, read_one, read_page
from reconsume.operations.groups_file import change_group
from reconsume.operations.jobs.planning import JobPlan
from reconsume.operations.jobs.records import Job, JobsView, jobs_topic
from reconsume.operations.jobs.selection import JobDraft
from reconsume.operations.jobs.service import cancel, pause, resume
from reconsume.operations.jobs.service import create as create_job
from reconsume.operations.jobs.service import plan as plan_job
from reconsume.operations.jobs.service import show as show_job
from reconsume.operations.lives.group_hours import RetryHours, count_retry_hours
from reconsume.operations.lives.group_waits import GroupWaits, count_group_waits
from reconsume.operations.lives.message_life import MessageLife, read_life
from reconsume.operations.quarantine.changes import release, resolve_quarantined
from reconsume.operations.quarantine.records import QuarantineCounter, QuarantineRecord, read_quarantine
from reconsume.operations.record_address import RecordAddress
from reconsume.operations.resolve import Changed, reopen, resolve
from reconsume.operations.status import collect_status

logger = SafeLogger(__name__)

_HOUR_MS: Final = 3_600_000
_CHART_HOURS: Final = 72
_COUNTED_MS: Final = 60_000
_WAIT_SECONDS: Final = 30.0
_PAGE_BYTES: Final = 32 * 1024 * 1024
"""Maximum of bytes of records on a page of the quarantine."""
_MOST_PLANNED: Final = 20_000
"""Maximum of dead letters that a dry run reads from Kafka, because a page waits for it."""
WISHES: Final = {"pause": pause, "resume": resume, "cancel": cancel}
"""The requests to a job."""


class HourCounts(NamedTuple):
    """Dead letters by hour.

    Attributes:
        first_ms: the start of the first hour.
        by_hour: counts, the oldest hour first, the current hour last.
    """

    first_ms: int
    by_hour: list[int]


class CauseCounts(NamedTuple):
    """The causes of a group's open dead letters.

    Attributes:
        number: the number of open dead letters.
        causes: the most frequent causes first, at most 1,000.
    """

    number: int
    causes: list[Counted]

    @classmethod
    def of(cls, store: DeadLetterStore, group: str) -> Self:
        """Count them in the index."""
        wanted = LetterFilter(group=group, state=OPEN)
        number, causes = store.count(wanted), store.count_by("label", wanted)
        return cls(max(number, sum(one.number for one in causes)), causes)  # letters may come between both queries


class ConsoleCluster:
    """Kafka, as the pages use it; every method may raise `ReconsumeError`."""

    def __init__(self, settings: Settings, index: DeadLetterIndex | None = None, clock: Clock = now_ms) -> None:
        self._settings = settings
        self._index = index
        self._clock = clock
        self._of_index: tuple[int, float, Mapping[str, OpenLetters], Mapping[str, Sequence[int]]] | None = None
        self._jobs, self._quarantine = JobsView(self._cluster), QuarantineCounter()
        self.snapshots = Snapshots(self._read)
        # Simultaneous changes of dead letters fence each other; those of one console take turns instead.
        self._changing = threading.Lock()
        self._planning = threading.Lock()

    @property
    def _cluster(self) -> Cluster:
        """Return a new handle for each page: a client delays its second report of a failed login."""
        return Cluster(self._settings)

    def latest(self) -> Snapshot | None:
        """Return the installation as of a few seconds ago; None before the first reading."""
        return self.snapshots.latest()

    def fresh(self) -> Snapshot | None:
        """Return a reading at most two seconds old; waits for Kafka."""
        return self.snapshots.fresh()

    def _read(self) -> Snapshot:
        cluster = self._cluster
        status = collect_status(cluster, self._quarantine)
        groups, jobs = read_groups(cluster), self._read_jobs()
        return Snapshot(status, groups, *self._counts(), jobs, now_ms=cluster.clock(), schedulers=_schedulers(cluster))

    def _read_jobs(self) -> Sequence[Job]:
        """Return the jobs, newest first; none if the topic is missing, or may not be read."""
        try:
            found = self._jobs.look()
        except (TopicNotReady, KafkaRefused) as error:
            logger.debug("jobs not read: %s", error)
            return ()
        return sorted(found.values(), key=lambda one: (one.spec.at_ms, one.name), reverse=True)

    def open_letters(self) -> Mapping[str, OpenLetters] | None:
        """Return the open dead letters of each group that has some; None while the index is incomplete."""
        return self._counts()[0]

    def _counts(self) -> tuple[Mapping[str, OpenLetters] | None, Mapping[str, Sequence[int]] | None]:
        """Return open letters, and new ones by hour; recounted after a change of the index, or a minute."""
        index = self._complete_index()
        if index is None:
            return None, None
        changes, now_ms = index.store.changes, self._clock()
        if self._of_index is None or self._of_index[0] != changes or now_ms - self._of_index[1] > _COUNTED_MS:
            counted = index.store.open_by_group(now_ms), index.store.new_by_hour(now_ms)
            self._of_index = changes, now_ms, *counted
        return self._of_index[2:]

    def left_to_index(self) -> int | None:
        """Return the number of records that the index has left to read; None before it has begun."""
        return None if self._index is None else self._index.left

    def index_trouble(self) -> str:
        """Return why the index is not up to date; empty if it is."""
        return "" if self._index is None else self._index.trouble

    def causes(self, group: str) -> CauseCounts | None:
        """Return causes of a group's open dead letters; None while the index is incomplete."""
        index = self._complete_index()
        return None if index is None else CauseCounts.of(index.store, group)

    def page(self, group: str, wanted: DeadLetterFilter, *, before: str | None = None, limit: int = 50) -> Page:
        """Return dead letters, newest first, from the index or, if it lacks the group, from Kafka."""
        index = self._index_of(group)
        if index is None and before is not None and is_index_cursor(before):
            before = cursor_in_kafka(self._cluster, group, before)
        if index is None or (before is not None and not is_index_cursor(before)):

            def takes(one: DeadLetterRecord) -> bool:
                return wanted.label is None or wanted.label == self._label(one)

            return read_page(self._cluster, group, wanted, before=before, limit=limit, takes=takes)
        return indexed_page(index.store, group, self._settings.names.dead_letter(group), wanted, before, limit)

    def _index_of(self, group: str) -> DeadLetterIndex | None:
        index = self._complete_index()
        return index if index is not None and index.store.has(group) else None

    def _complete_index(self) -> DeadLetterIndex | None:
        return self._index if self._index is not None and self._index.is_complete else None

    @contextmanager
    def _alone(self) -> Iterator[None]:
        """Serialize changes of dead letters; a change that waits too long gives up."""
        if not self._changing.acquire(timeout=_WAIT_SECONDS):
            raise KafkaNotReachable(
                f"another change by this console has run for {_WAIT_SECONDS:.0f} s; nothing was changed, send the form "
                "again later"
            )
        try:
            yield
        finally:
            self._changing.release()

    def plan_job(
        self, draft: JobDraft, told: Callable[[DeadLetterRecord, str], None] = lambda _one, _status: None
    ) -> JobPlan:
        """Return the plan of a job; for very many dead letters an estimate from the index, without it of the newest.

        Args:
            draft: the draft of the job.
            told: called with each dead letter and its status, if they are read from Kafka.

        Raises:
            ConsoleBusy: the index is incomplete, and another thread counts dead letters without it.
        """
        index, wanted, cluster = self._index_of(draft.group), draft.wanted, self._cluster
        # Report missing topics before a person writes a reason.
        jobs_topic(cluster)
        if draft.records is not None:
            return plan_job(cluster, draft, told)
        if index is None:
            return self._plan_newest(draft, told)
        read = LetterFilter(group=draft.group, since_ms=wanted.since_ms, until_ms=wanted.until_ms)
        if index.store.count(read) <= _MOST_PLANNED:
            return plan_job(cluster, draft, told)
        filtered = replace(LetterFilter.of(draft.group, wanted), state=wanted.state or OPEN)
        count = index.store.count(filtered)
        causes, hours, origins = (index.store.count_by(by, filtered) for by in ("label", "hour", "origin_topic"))
        hours.sort(key=lambda one: one.first_ms)
        return JobPlan(count, count, Counter(), causes, hours, origins)

    def _plan_newest(self, draft: JobDraft, told: Callable[[DeadLetterRecord, str], None]) -> JobPlan:
        # The thread of a request goes on after its browser has left, so each reload of the page would add one.
        if not self._planning.acquire(blocking=False):
            raise ConsoleBusy(
                f"group {draft.group!r}: the index of dead letters is incomplete, and this console reads Kafka for "
                "another dry run; try again in a few seconds"
            )
        try:
            return plan_job(self._cluster, draft, told, most=_MOST_PLANNED)
        finally:
            self._planning.release()

    def create_job(self, draft: JobDraft, by: str, why: str, count: int | None) -> Job:
        """Create a job; a runner starts it within seconds."""
        return self._changed(create_job(self._cluster, draft, by=by, why=why, count=count))

    def job(self, name: str) -> Job:
        """Return the current state of a job."""
        return show_job(self._cluster, name)

    def now_ms(self) -> float:
        """Return the time of this machine; the progress of jobs carries that of the brokers."""
        return self._cluster.clock()

    def steer_job(self, name: str, wish: str, by: str, why: str) -> Job:
        """Pause, resume or cancel a job; `wish` is a key of `WISHES`."""
        return self._changed(WISHES[wish](self._cluster, name, by=by, why=why))

    def _changed(self, job: Job) -> Job:
        self.snapshots.wake()
        return job

    def quarantine(self, limit: int) -> tuple[list[QuarantineRecord], bool]:
        """Return open records of the quarantine, the oldest first, and whether there are more; fewer if large."""
        found, size = list[QuarantineRecord](), 0
        for one in read_quarantine(self._cluster, self._quarantine.closed):
            if one.state == OPEN:
                if len(found) >= limit or size >= _PAGE_BYTES:
                    return found, True
                found.append(one)
                size += one.size
        return found, False

    def release(self, places: Collection[RecordAddress]) -> int:
        """Return records of the quarantine to the schedulers; all of them, or none."""
        try:
            return release(self._cluster, places, {})
        finally:
            self.snapshots.wake()

    def resolve_quarantined(self, places: Collection[RecordAddress], by: str, why: str) -> int:
        """Close records of the quarantine for good, all or none; return their number."""
        try:
            return resolve_quarantined(self._cluster, places, by=by, why=why)
        finally:
            self.snapshots.wake()

    def waits(self, group: str) -> GroupWaits:
        """Return the waiting records of a group on each delay topic; reads Kafka."""
        return count_group_waits(self._cluster, group)

    def retry_hours(self, group: str) -> RetryHours:
        """Return how many retries of a group were delivered in each hour; reads Kafka."""
        return count_retry_hours(self._cluster, group)

    def life(self, group: str, one: DeadLetterRecord) -> MessageLife:
        """Return the records of a dead letter's message; reads Kafka."""
        return read_life(self._cluster, group, one)

    def hours(self, group: str) -> HourCounts | None:
        """Return the dead letters in each of the last 72 hours; None if the index does not have the group."""
        index = self._index_of(group)
        if index is None:
            return None
        now_ms = self._clock()
        first = int(now_ms) // _HOUR_MS - _CHART_HOURS + 1
        counted = index.store.new_by_hour(now_ms, hours=_CHART_HOURS, group=group)
        return HourCounts(first * _HOUR_MS, counted.get(group, [0] * _CHART_HOURS))

    def of_message(self, group: str, letter: DeadLetterInfo) -> list[IndexedLetter]:
        """Return the dead letters of a letter's message, newest first; none while the index is incomplete."""
        if (index := self._index_of(group)) is None:
            return []
        found = index.store.find(LetterFilter(group=group, message_id=letter.origin_message_id), limit=20)
        return [one for one in found if is_same_message(one.born_ms, letter.born_ms)]

    def label(self, group: str, one: DeadLetterRecord) -> str | None:
        """Return the label of a dead letter's cause; None while the index is incomplete."""
        return None if self._index_of(group) is None else self._label(one)

    def _label(self, one: DeadLetterRecord) -> str | None:
        letter = one.letter
        return None if self._index is None else self._index.labels.label(letter.exception_class, letter.cause)

    def one(self, group: str, place: RecordAddress) -> DeadLetterRecord:
        """Return a dead letter."""
        return read_one(self._cluster, group, place)

    def pause_retries(self, group: str, *, is_paused: bool) -> None:
        """Pause or resume due retries of a group; the next page shows it."""
        try:
            change_group(self._cluster, group, {"retryPaused": is_paused})
        finally:
            self.snapshots.look()

    def resolve(self, group: str, places: Collection[RecordAddress], by: str, why: str) -> list[Changed]:
        """Resolve open dead letters."""
        with self._alone():
            return resolve(self._cluster, group, places, by=by, why=why)

    def reopen(self, group: str, places: Collection[RecordAddress]) -> list[Changed]:
        """Reopen resolved dead letters."""
        with self._alone():
            return reopen(self._cluster, group, places)


def _schedulers(cluster: Cluster) -> list[str] | None:
    """Return the live workers; None if unknown or forbidden."""
    try:
        return sorted(cluster.admin.member_names(cluster.names.scheduler_group))
    except ReconsumeError as error:
        logger.debug("schedulers not known: %s", error)
        return None
