"""Runs open jobs, those of several groups in parallel."""

from __future__ import annotations

import os
import secrets
import socket
import threading
from collections.abc import Callable, Sequence
from typing import Final

from reconsume.bridge.kafka.cluster import Cluster
from reconsume.bridge.process.brokers_clock import monotonic_ms
from reconsume.bridge.process.clock import Clock
from reconsume.bridge.process.safe_logger import SafeLogger
from reconsume.delay_levels.errors import KafkaLoginFailed, KafkaNotReachable, ReconsumeError, WriterReplaced
from reconsume.operations.jobs.records import LEASE_MS, Job, JobsView
from reconsume.operations.jobs.run import JobRun, Told

logger = SafeLogger(__name__)

_LOOK_SECONDS: Final = 1.0
_AGAIN_SECONDS: Final = 0.1
_AT_ONCE: Final = 4
JOB_THREAD: Final = "job-"
"""Prefix of the names of threads that run a job."""


class JobRunner:
    """Runs open jobs; any number of runners may do so, in any processes.

    The console starts `run` in a background thread. It ends within seconds after `stop` is set; the next runner
    continues unfinished jobs.

    Args:
        cluster: the installation.
        lease_ms: after this time without progress a runner counts as dead.
        told: called with the outcomes of `run`, once they are committed.
        monotonic: monotonic milliseconds.

    Attributes:
        name: the unique name of this runner.
    """

    def __init__(
        self,
        cluster: Cluster,
        *,
        lease_ms: int = LEASE_MS,
        told: Told = lambda _outcomes: None,
        monotonic: Clock = monotonic_ms,
    ) -> None:
        self._cluster, self._lease_ms, self._told, self._monotonic = cluster, lease_ms, told, monotonic
        self.name = f"{socket.gethostname()}/{os.getpid()}-{secrets.token_hex(3)}"
        self._said, self._has_looked = "", False
        self._failed: ReconsumeError | None = None
        self._beats: dict[str, tuple[int, float]] = {}

    def run(self, stop: threading.Event, *, once: bool = False) -> None:
        """Run jobs until stopped.

        Args:
            stop: ends it. It is set when `run` raises: the jobs at work stop, and the next runner continues them.
            once: end when no job is open, and raise what else `run` logs before it tries again. Only an absent broker
                is waited for, after a first look at the jobs.
        """
        at_work: dict[str, threading.Thread] = {}
        failed = ""
        with JobsView(self._cluster) as view:
            try:
                while not stop.is_set():
                    try:
                        is_idle = self._start_jobs(view, at_work, stop, once=once)
                        failed = ""
                        if once and is_idle:
                            return
                    except Exception as error:
                        # Without this thread jobs would stay queued until the console is restarted.
                        if once:
                            raise
                        before, failed = failed, f"{type(error).__name__}: {error}"
                        if failed != before:
                            logger.exception("jobs cannot be started, trying again")
                    stop.wait(_LOOK_SECONDS)
            except BaseException:
                stop.set()  # the jobs at work may take hours, and without a login they wait for Kafka without end
                raise
            finally:
                for thread in at_work.values():
                    thread.join()

    def run_until_ended(
        self,
        job: Job,
        stop: threading.Event,
        told: Told = lambda _outcomes: None,
        behind: Callable[[Job], None] = lambda _first: None,
    ) -> Job:
        """Run one job, after the earlier ones of its group; return it when it has ended or `stop` is set.

        Args:
            job: the job.
            stop: ends it early.
            told: called with the outcomes of this job, once they are committed.
            behind: called again and again with the job that runs before this one.
        """
        was_seen = False  # a new job may be hidden behind an open transaction of another job
        with JobsView(self._cluster) as view:
            while True:
                queues = self._queues(view)
                was_seen = was_seen or job.name in view.jobs
                job = view.find(job.name) if was_seen and queues is not None else view.jobs.get(job.name, job)
                if stop.is_set() or not job.is_open:
                    return job
                queue = (queues or {}).get(job.spec.group, [])
                first = queue[0] if queue else None
                is_mine = first is not None and first.name == job.name
                if first is not None and not is_mine:
                    behind(first)
                if first is not None and self._is_free(queue):
                    self._run_one(first, stop, told if is_mine else lambda _outcomes: None)
                    stop.wait(_AGAIN_SECONDS)
                else:
                    stop.wait(_LOOK_SECONDS)

    def _start_jobs(
        self, view: JobsView, at_work: dict[str, threading.Thread], stop: threading.Event, *, once: bool
    ) -> bool:
        """Start the next jobs; return whether none is open or at work."""
        for group in [group for group, thread in at_work.items() if not thread.is_alive()]:
            del at_work[group]
        if once and self._failed is not None:
            raise self._failed
        queues = self._queues(view, once=once)
        for group, queue in (queues or {}).items():
            if group not in at_work and len(at_work) < _AT_ONCE and self._is_free(queue):
                at_work[group] = self._start(queue[0], stop)
        return queues is not None and not queues and not at_work

    def _queues(self, view: JobsView, *, once: bool = False) -> dict[str, list[Job]] | None:
        """Return the open jobs of each group; None while they are unavailable, with `once` only if that may pass."""
        try:
            view.look()
        except ReconsumeError as error:
            if once and not (self._has_looked and _may_pass(error)):
                raise
            if str(error) != self._said:
                self._said = str(error)
                logger.warning("jobs are unavailable, trying again: %s", error)
            return None
        self._said, self._has_looked = "", True
        return view.queues()

    def _is_free(self, queue: Sequence[Job]) -> bool:
        """Return whether no other runner runs a job of the group.

        A job that was resumed stands before the one that runs, which is to end first.
        """
        at_work = [one for one in queue if not self._is_without_runner(one)]  # all are looked at: each lease counts
        return not at_work

    def _is_without_runner(self, job: Job) -> bool:
        """Return whether no other runner runs the job.

        Brokers date progress, and their clock may differ from this machine's. So the date counts at the first look
        alone, for at most half a lease: a live runner writes within the other half.
        """
        now = self._monotonic()
        silent_ms = min(max(0.0, self._cluster.clock() - job.beat_ms), self._lease_ms / 2)
        beat_ms, since = self._beats.get(job.name, (job.beat_ms, now - silent_ms))
        if beat_ms != job.beat_ms:
            since = now
        self._beats[job.name] = job.beat_ms, since
        return job.progress.runner in ("", self.name) or now - since >= self._lease_ms

    def _start(self, job: Job, stop: threading.Event) -> threading.Thread:
        thread = threading.Thread(target=self._run_one, args=(job, stop, self._told), name=JOB_THREAD + job.name)
        thread.start()
        return thread

    def _run_one(self, job: Job, stop: threading.Event, told: Told) -> None:
        try:
            with JobsView(self._cluster) as view:
                view.look()
                JobRun(self._cluster, view, job, self.name, lease_ms=self._lease_ms, told=told).run(stop)
        except ReconsumeError as error:
            logger.warning("job waits for its next runner job=%s: %s", job.name, error)
            if not _may_pass(error):
                self._failed = error
        except Exception:
            logger.exception("job waits for its next runner job=%s", job.name)


def _may_pass(error: ReconsumeError) -> bool:
    return isinstance(error, KafkaNotReachable | WriterReplaced) and not isinstance(error, KafkaLoginFailed)
