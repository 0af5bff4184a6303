"""Runs one job until its end, a stop, or the takeover by another runner."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Final

from reconsume.bridge.kafka.cluster import Cluster
from reconsume.bridge.process.safe_logger import SafeLogger
from reconsume.bridge.writing.batch_size import BatchSize
from reconsume.bridge.writing.exclusive_writer import ExclusiveWriter
from reconsume.bridge.writing.new_record import NewRecord
from reconsume.bridge.writing.transactions import PATIENCE_SECONDS, START_SECONDS
from reconsume.delay_levels.errors import (
    KafkaNotReachable,
    KafkaRefused,
    ReconsumeError,
    RecordTooLarge,
    TopicNotReady,
    WriterReplaced,
)
from reconsume.delay_levels.wire.jobs.job_records import PAUSE, JobEvent, JobProgress, encode_job_progress, progress_key
from reconsume.operations.dead_letter_states import resend_id, states_topic
from reconsume.operations.dead_letters import DeadLetterRecord
from reconsume.operations.jobs.letters import LetterWindow
from reconsume.operations.jobs.records import DONE, FAILED, LEASE_MS, Job, JobsView, add_wish, write_wish
from reconsume.operations.jobs.selection import Selection
from reconsume.operations.jobs.target_checks import LettersGone, check_target
from reconsume.operations.jobs.work import (
    DONE_WITH,
    EXPIRED,
    LEFT_OUT,
    TOO_LARGE,
    JobWork,
    LetterOutcome,
    Resending,
    Resolving,
    with_outcomes,
)
from reconsume.operations.record_address import RecordAddress

logger = SafeLogger(__name__)

Told = Callable[[Sequence[LetterOutcome]], None]
_TOGETHER: Final = 500
"""Maximum of letters that one transaction acts upon; fewer while transactions are slow."""
_LOOKED_AT: Final = 2_000
"""Maximum of letters in one transaction, including those left out."""
_BYTES: Final = 8 * 1024 * 1024
"""Maximum of bytes of letters in one transaction."""
_LOOK_SECONDS: Final = 1.0
"""Interval between two checks for requests of people."""
_LOOKS, _LOOKS_IN_SECONDS = 8, 60.0
_MOST_SECONDS: Final = 10.0
_SLICE_SECONDS: Final = 0.2


class _Interrupted(Exception):
    """The run was asked to stop."""


class JobRun:
    """Runs a job.

    Guarantees: one transaction sends a letter, writes its state and advances the progress. A new run fences the
    previous one and reads its progress first. So no letter is sent twice or left out, wherever a process is killed.
    Test: tests/integration/operations/test_jobs_killed.py.

    Args:
        cluster: the installation.
        view: the jobs; used by this run only.
        job: the job, as it was found free.
        runner: the unique name of this process.
        lease_ms: other runners count this one as dead when it has written nothing for this time.
        told: called with committed outcomes.
    """

    def __init__(
        self,
        cluster: Cluster,
        view: JobsView,
        job: Job,
        runner: str,
        *,
        lease_ms: int = LEASE_MS,
        told: Told = lambda _outcomes: None,
    ) -> None:
        self._cluster, self._view, self._name, self._runner = cluster, view, job.name, runner
        self._lease_ms, self._told = lease_ms, told
        self._found_ms, self._job = job.beat_ms, view.find(job.name)
        self._spec, self._handled = self._job.spec, self._job.handled
        self._writer = ExclusiveWriter(cluster, resend_id(cluster, self._spec.group), f"job {job.name}")
        self._progress = JobProgress()
        self._size = BatchSize(_TOGETHER, _BYTES)
        self._stop = threading.Event()
        self._is_stale = False
        self._looked = self._wrote = self._not_before = 0.0
        self._missed: list[float] = []

    def run(self, stop: threading.Event) -> None:
        """Run until the job has ended, must stop, or belongs to another runner."""
        self._stop, seconds = stop, 1.0
        with self._writer:
            while not stop.is_set():
                try:
                    if self._claim():
                        self._work()
                except _Interrupted:
                    self._release()
                except WriterReplaced:
                    seconds = self._give_way(seconds)
                    continue
                except KafkaNotReachable as error:
                    logger.warning("job waits for Kafka job=%s: %s", self._name, error)
                    stop.wait(seconds)
                    seconds = min(2 * seconds, _MOST_SECONDS)
                    continue
                except (LettersGone, TopicNotReady) as error:
                    if self._looks_again(error):
                        continue
                except ReconsumeError as error:
                    self._pause(str(error))
                except Exception as error:
                    logger.exception("job is paused job=%s", self._name)
                    self._pause(f"unexpected: {type(error).__name__}: {error}")
                return

    def _give_way(self, seconds: float) -> float:
        """Wait longer each time until a run handles letters, because two runs may be slow; return the next pause."""
        if self._job.handled > self._handled:
            seconds, self._handled = 1.0, self._job.handled
        self._stop.wait(random.uniform(0.2, 2 * seconds))  # noqa: S311 - no secret
        return min(2 * seconds, _MOST_SECONDS)

    def _claim(self) -> bool:
        """Fence earlier runs and claim the job; False if it must not run here."""
        job = self._view.look()[self._name]
        if not job.is_open or self._is_of_another(job):
            return False
        self._writer.take_over()
        job = self._view.look(to_the_last=True)[self._name]
        if not job.is_open or self._is_of_another(job):
            return False
        self._job, self._is_stale = job, False
        self._commit_progress(replace(job.progress, runner=self._runner))
        return True

    def _is_of_another(self, job: Job) -> bool:
        """Return whether another runner has written since the job was found free."""
        return job.progress.runner not in ("", self._runner) and job.beat_ms != self._found_ms

    def _work(self) -> None:
        check_target(self._cluster, self._spec)
        states = states_topic(self._cluster)
        work = (Resolving if self._spec.kind == "resolve" else Resending)(self._cluster, self._job, states)
        selection = Selection(self._spec)
        for partition in sorted(self._spec.spans):
            following = self._progress.following.get(partition, 0)
            for start, end in selection.windows(partition, following):
                self._do_window(work, selection, partition, start, end)
        missing = (self._spec.count or 0) - sum(self._progress.counts.values())
        gone, lost = any(self._first(one) > span[0] for one, span in self._spec.spans.items()), []
        if gone and self._spec.records is None and missing > 0:
            lost = [(EXPIRED, missing, "retention or an operator has deleted them before the job came to them")]
        self._end(DONE, "", lost=lost)

    def _first(self, partition: int) -> int:
        where = self._spec.topic, partition
        return self._cluster.admin.end_offsets([where], earliest=True)[where]

    def _do_window(self, work: JobWork, selection: Selection, partition: int, start: int, end: int) -> None:
        check_target(self._cluster, self._spec)
        window = LetterWindow(
            *(self._cluster, self._spec, selection, partition, start, end), to_the_last=True, alive=self._alive
        )
        picked = selection.picked(partition, start, end)
        for letters, outcomes in self._parts(work, window):
            seen = {one.place.offset for one in letters}
            picked = [offset for offset in picked if offset not in seen]
            self._commit(work, window, letters, outcomes, letters[-1].place.offset + 1)
        expired = [LetterOutcome(RecordAddress(partition, at), "", EXPIRED, LEFT_OUT[EXPIRED]) for at in picked]
        self._commit(work, window, [], expired, end)

    def _parts(
        self, work: JobWork, window: LetterWindow
    ) -> Iterator[tuple[list[DeadLetterRecord], list[LetterOutcome]]]:
        """Yield the letters of one transaction each, with their outcomes."""
        letters: list[DeadLetterRecord] = []
        outcomes: list[LetterOutcome] = []
        size = acted = 0
        for one in window.letters():
            letters.append(one)
            outcomes.append(work.decide(window, one))
            size += one.size
            acted += outcomes[-1].outcome in DONE_WITH
            most = min(self._size.records, self._spec.rate or _TOGETHER)
            if acted >= most or len(letters) >= _LOOKED_AT or size >= self._size.bytes:
                yield letters, outcomes
                letters, outcomes, size, acted = [], [], 0, 0
        if letters:
            yield letters, outcomes

    def _commit(
        self,
        work: JobWork,
        window: LetterWindow,
        letters: Sequence[DeadLetterRecord],
        outcomes: Sequence[LetterOutcome],
        following: int,
    ) -> None:
        """Commit the outcomes of letters and the progress behind them, atomically."""
        self._wait_for_rate()
        while self._is_stale or not self._writer.is_alone:
            self._regain()
            self._is_stale = False
            window.catch_up()
            if letters:
                outcomes = [work.decide(window, one) for one in letters]
        places = {**self._progress.following, window.partition: following}
        progress = replace(with_outcomes(self._progress, outcomes), following=places)
        began, acted = time.monotonic(), sum(one.outcome in DONE_WITH for one in outcomes)
        try:
            self._commit_timed(progress, outcomes, acted, letters)
        except RecordTooLarge as error:
            self._commit_apart(work, window, letters, outcomes, following, error)
            return
        self._not_before = began + (acted / self._spec.rate if self._spec.rate else 0.0)
        self._told(outcomes)

    def _commit_timed(
        self, progress: JobProgress, outcomes: Sequence[LetterOutcome], acted: int, letters: Sequence[DeadLetterRecord]
    ) -> None:
        """Commit, and let the time that it took decide how many letters the next transaction has."""
        began, is_committed = time.monotonic(), False
        try:
            self._commit_progress(progress, [record for one in outcomes for record in one.records])
            is_committed = True
        finally:
            if acted:
                took_ms, size = (time.monotonic() - began) * 1_000, sum(one.size for one in letters)
                self._size.took(acted, size, took_ms, committed=is_committed)

    def _commit_apart(
        self,
        work: JobWork,
        window: LetterWindow,
        letters: Sequence[DeadLetterRecord],
        outcomes: Sequence[LetterOutcome],
        following: int,
        error: RecordTooLarge,
    ) -> None:
        """Find the letter that Kafka refuses, and leave it out."""
        half = len(letters) // 2
        if half:
            self._commit(work, window, letters[:half], outcomes[:half], letters[half].place.offset)
            self._commit(work, window, letters[half:], outcomes[half:], following)
            return
        # Nothing is written for it, and nothing is decided again.
        [refused] = outcomes
        left_out = LetterOutcome(refused.place, refused.message_id, TOO_LARGE, str(error))
        self._commit(work, window, [], [left_out], following)

    def _wait_for_rate(self) -> None:
        while (left := self._not_before - time.monotonic()) > 0:
            self._stop.wait(min(left, _SLICE_SECONDS))
            self._alive()

    def _alive(self) -> None:
        """Stop when asked, and show other runners that this run is alive; called all the time."""
        if self._stop.is_set():
            raise _Interrupted
        now = time.monotonic()
        if now < self._looked + _LOOK_SECONDS:
            return
        self._looked = now
        if not self._view.look()[self._name].is_open:
            raise _Interrupted
        if now > self._wrote + self._lease_ms / 3_000:
            if not self._writer.is_alone:
                self._regain()
            self._commit_progress(self._progress)

    def _regain(self, seconds: float = START_SECONDS) -> None:
        """Fence a writer that came in between; its records must be read."""
        self._writer.take_over(seconds)
        self._is_stale = True
        if self._view.look(to_the_last=True)[self._name].progress != self._progress:
            raise WriterReplaced(f"job {self._name}: another runner continues it")

    def _commit_progress(self, progress: JobProgress, records: Sequence[NewRecord] = ()) -> None:
        record = NewRecord(self._cluster.names.jobs, encode_job_progress(progress), progress_key(self._name), 0)
        self._writer.write_records([*records, record])
        self._progress, self._wrote = progress, time.monotonic()

    def _end(self, ended: str, why: str, *, lost: Sequence[tuple[str, int, str]] = ()) -> None:
        """Write the final progress; if that fails, the next runner does it."""
        progress = replace(self._progress, runner="", ended=ended, why=why)
        for outcome, number, reason in lost:
            counts = {**progress.counts, outcome: progress.counts.get(outcome, 0) + number}
            progress = replace(progress, counts=counts, reasons={**progress.reasons, outcome: [reason]})
        if not self._writer.is_alone:
            self._regain()
        self._commit_progress(progress)
        logger.info("job ended job=%s status=%s counts=%s", self._name, ended, dict(progress.counts))

    def _release(self) -> None:
        """Let the next runner continue at once."""
        try:
            if not self._writer.is_alone:
                self._regain(PATIENCE_SECONDS)
            self._commit_progress(replace(self._progress, runner=""))
        except ReconsumeError as error:
            logger.debug("job is not released, its lease will end job=%s: %s", self._name, error)

    def _looks_again(self, error: LettersGone | TopicNotReady) -> bool:
        """Wait for a missing topic, at most eight times in a minute: a broker that starts knows none for a moment."""
        now = time.monotonic()
        self._missed = [*(one for one in self._missed if one > now - _LOOKS_IN_SECONDS), now]
        if len(self._missed) <= _LOOKS:
            self._stop.wait(_LOOK_SECONDS)
            return True
        if isinstance(error, LettersGone):
            self._end(FAILED, str(error))
        else:
            self._pause(str(error))  # the topic can be created again
        return False

    def _pause(self, why: str) -> None:
        """Pause the job for a person, unless one has paused or ended it meanwhile."""
        logger.warning("job is paused job=%s: %s", self._name, why)
        event = JobEvent(int(self._cluster.clock()), "reconsume", PAUSE, why)
        with suppress(_Interrupted):
            try:
                add_wish(self._cluster, self._name, event, _require_open)
            except KafkaRefused:
                # The right to the transactional id may be missing, which is a reason to pause.
                job = self._view.look()[self._name]
                _require_open(job)
                write_wish(self._cluster, job, event)
        self._release()


def _require_open(job: Job) -> None:
    if not job.is_open:
        raise _Interrupted
