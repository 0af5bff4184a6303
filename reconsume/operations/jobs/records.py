"""Jobs, read from the JOBS topic."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from typing import Final, Self

from reconsume.bridge.kafka.cluster import Cluster
from reconsume.bridge.kafka.single_records import write_at_once
from reconsume.bridge.process.safe_logger import SafeLogger
from reconsume.bridge.reading.range_reader import RangeReader, ReadRecord
from reconsume.bridge.writing.exclusive_writer import write_exclusively
from reconsume.bridge.writing.new_record import NewRecord
from reconsume.delay_levels.errors import IllegalSetting, MalformedProperty
from reconsume.delay_levels.wire.jobs.job_records import (
    CANCEL,
    PAUSE,
    JobEvent,
    JobProgress,
    JobSpec,
    decode_job_progress,
    decode_spec,
    decode_wish,
    encode_job_progress,
    encode_spec,
    encode_wish,
    parse_job_key,
    progress_key,
    spec_key,
    wish_key,
)
from reconsume.operations.dead_letter_states import resend_id

logger = SafeLogger(__name__)

LEASE_MS: Final = 15_000
"""A runner that has written nothing for this time counts as dead, and another one continues."""
QUEUED: Final = "QUEUED"
RUNNING: Final = "RUNNING"
PAUSED: Final = "PAUSED"
CANCELLED: Final = "CANCELLED"
DONE: Final = "DONE"
FAILED: Final = "FAILED"
STATUSES: Final = {
    QUEUED: "waits for a runner, or for an earlier job of its group",
    RUNNING: "a runner is at work",
    PAUSED: "waits for a person",
    CANCELLED: "a person has ended it",
    DONE: "every record has its outcome",
    FAILED: "it cannot go on",
}
_WISHES: Final = {PAUSE: PAUSED, CANCEL: CANCELLED}


@dataclass(frozen=True, slots=True)
class Job:
    """A job, as known now.

    Attributes:
        name: its id; for a resend also the `REPLAY_ID` of the copies.
        events: requests of people, the oldest first.
        beat_ms: when its progress was written last, by the brokers' clock.
    """

    name: str
    spec: JobSpec
    events: tuple[JobEvent, ...] = ()
    progress: JobProgress = field(default_factory=JobProgress)
    beat_ms: int = 0

    def status(self, now_ms: float) -> str:
        """Return a key of `STATUSES`."""
        if self.progress.ended:
            return self.progress.ended
        if self.events and (wished := _WISHES.get(self.events[-1].wish)) is not None:
            return wished
        return RUNNING if self.progress.runner and now_ms - self.beat_ms < LEASE_MS else QUEUED

    @property
    def is_open(self) -> bool:
        """Whether a runner should run it now."""
        return not self.progress.ended and not (self.events and self.events[-1].wish in _WISHES)

    @property
    def handled(self) -> int:
        """The number of records with an outcome."""
        return sum(self.progress.counts.values())


class JobsView:
    """All jobs; each look reads new records. For one thread; a context manager.

    Args:
        cluster: the installation.

    Attributes:
        jobs: by their names.
    """

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._where = cluster.names.jobs, 0
        self._next = 0
        self.jobs: dict[str, Job] = {}
        self._early: dict[str, dict[str, ReadRecord]] = {}
        self._reader: RangeReader | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._reader is not None:
            self._reader.__exit__()

    def look(self, *, to_the_last: bool = False) -> dict[str, Job]:
        """Read new records, and return the jobs.

        Args:
            to_the_last: wait for the end of open transactions.

        Raises:
            TopicNotReady: the topic is missing.
            KafkaNotReachable: no answer.
            KafkaRefused: rights are missing.
        """
        where = self._where
        jobs_topic(self._cluster)
        end = self._cluster.admin.end_offsets([where], uncommitted=to_the_last)[where]
        if end < self._next:  # the topic was recreated
            self._next, self.jobs = 0, {}
        if end > self._next:
            if self._reader is None:
                self._reader = RangeReader(self._cluster.base, f"{self._cluster.names.prefix}dlq")
            for read in self._reader.records({where: (self._next, end)}):
                self._take(read)
            self._next = end
        return self.jobs

    def find(self, name: str) -> Job:
        """Return a job.

        Raises:
            IllegalSetting: no job has that name.
        """
        if (found := self.jobs.get(name)) is None:
            raise IllegalSetting(f"job {name!r} does not exist; `reconsume jobs list` shows jobs")
        return found

    def queues(self) -> dict[str, list[Job]]:
        """Return the open jobs of each group in their order of execution."""
        found: dict[str, list[Job]] = {}
        for one in sorted(self.jobs.values(), key=lambda one: (one.spec.at_ms, one.name)):
            if one.is_open:
                found.setdefault(one.spec.group, []).append(one)
        return found

    def _take(self, read: ReadRecord) -> None:
        try:
            name, kind = parse_job_key(read.key)
            if not kind:
                self._take_spec(name, read)
            elif name not in self.jobs:
                # In a compacted topic, the first record of a key may be the last one of the partition.
                self._early.setdefault(name, {})[kind] = read
            elif read.value is not None:
                self.jobs[name] = _changed(self.jobs[name], kind, read.value, read.stored_ms)
        except MalformedProperty as error:
            logger.warning("record skipped topic=%s offset=%s: %s", read.topic, read.offset, error)

    def _take_spec(self, name: str, read: ReadRecord) -> None:
        if read.value is None:
            self.jobs.pop(name, None)
            return
        if name in self.jobs:
            return  # a second copy: its first acknowledgement was lost with a connection
        job = Job(name, decode_spec(read.value))
        for kind, early in self._early.pop(name, {}).items():
            if early.value is not None:
                job = _changed(job, kind, early.value, early.stored_ms)
        self.jobs[name] = job


def _changed(job: Job, kind: str, value: bytes, stored_ms: int) -> Job:
    if kind == "wish":
        return replace(job, events=tuple(decode_wish(value)))
    return replace(job, progress=decode_job_progress(value), beat_ms=stored_ms)


def jobs_topic(cluster: Cluster) -> str:
    """Return the topic.

    Raises:
        TopicNotReady: it does not exist.
    """
    return cluster.require(cluster.names.jobs)


def write_new(cluster: Cluster, job: Job) -> None:
    """Write the description of a job, and its runner if that is known."""
    records = [(spec_key(job.name), encode_spec(job.spec))]
    if job.progress.runner:
        records.append((progress_key(job.name), encode_job_progress(job.progress)))
    _write(cluster, records)


def write_wish(cluster: Cluster, job: Job, event: JobEvent) -> None:
    """Write a request to a job without a transaction: one that another process writes meanwhile is lost."""
    _write(cluster, [(wish_key(job.name), encode_wish((*job.events, event)))])


def add_wish(cluster: Cluster, name: str, event: JobEvent, check: Callable[[Job], None]) -> Job:
    """Write a request to a job, after those of others; return the job with it.

    Args:
        cluster: the installation.
        name: the name of the job.
        event: the request.
        check: raises if the job cannot take it as it is now.

    Raises:
        IllegalSetting: no job has that name.
    """
    wished: list[Job] = []
    with JobsView(cluster) as view:
        view.look(to_the_last=True)
        group = view.find(name).spec.group

        def records() -> list[NewRecord]:
            view.look(to_the_last=True)
            job = view.find(name)
            check(job)
            wished.append(replace(job, events=(*job.events, event)))
            return [NewRecord(cluster.names.jobs, encode_wish(wished[-1].events), wish_key(name), 0)]

        # Apart from the id of the runner, which goes on.
        write_exclusively(cluster, resend_id(cluster, group) + ".wish", f"changing job {name}", records)
    return wished[-1]


def _write(cluster: Cluster, records: Iterable[tuple[bytes, bytes]]) -> None:
    topic = cluster.names.jobs
    write_at_once(cluster, topic, topic, [(value, key, 0, ()) for key, value in records])
