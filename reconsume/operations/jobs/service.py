"""Creates and controls jobs, for the command line and the console.

    draft = JobDraft("resend", "departures", DeadLetterFilter(text="timeout"), rate=50)
    found = plan(cluster, draft)                 # the dry run: count, causes, hours, what is left out
    job = create(cluster, draft, by="alice", why="the gateway is back", count=found.count)
    show(cluster, job.name).status(cluster.clock())   # QUEUED, RUNNING, PAUSED, CANCELLED, DONE or FAILED
    pause(cluster, job.name, by="bob", why="too many errors")
    resume(cluster, job.name, by="bob")
    cancel(cluster, job.name, by="bob")

A `JobRunner` runs the jobs, in the console or as `reconsume jobs run`. All functions block, and may raise
`TopicNotReady` (the JOBS topic is missing), `KafkaNotReachable` and `KafkaRefused`.
"""

from __future__ import annotations

from dataclasses import replace

from reconsume.bridge.kafka.cluster import Cluster
from reconsume.delay_levels.errors import IllegalSetting
from reconsume.delay_levels.wire.jobs.job_records import CANCEL, PAUSE, RUN, DeadLetterFilter, JobEvent, JobProgress
from reconsume.operations.dead_letter_states import check_reason, states_topic
from reconsume.operations.jobs.planning import JobPlan, plan
from reconsume.operations.jobs.records import (
    CANCELLED,
    DONE,
    FAILED,
    PAUSED,
    Job,
    JobsView,
    add_wish,
    jobs_topic,
    write_new,
)
from reconsume.operations.jobs.selection import JobDraft, fix
from reconsume.operations.resend import new_replay_id

__all__ = [
    "DeadLetterFilter",
    "Job",
    "JobDraft",
    "JobPlan",
    "cancel",
    "create",
    "list_jobs",
    "pause",
    "plan",
    "resume",
    "show",
]


def create(
    cluster: Cluster, draft: JobDraft, *, by: str, why: str = "", count: int | None = None, runner: str = ""
) -> Job:
    """Create a job for the dead letters that exist now; it waits for a runner.

    Args:
        cluster: the installation.
        draft: the letters, and what to do with them.
        by: the user who creates it.
        why: the reason; `resolve` writes it into the state of each letter.
        count: `plan(...).count`, or the index's count; progress and the number of expired letters are relative to it.
        runner: the runner that begins at once; others leave the job to it until its lease ends. Empty for any runner.

    Raises:
        IllegalSetting: the draft contradicts itself, or names too many records.
        RecordNotFound: a picked record does not exist.
        TopicNotReady: the group has no dead-letter topic, or the topic of jobs or states is missing.
    """
    if draft.kind == "resolve":
        check_reason(why)
    states_topic(cluster)
    jobs_topic(cluster)
    spec = fix(cluster, draft, by=by, why=why, count=count)
    if spec.records is not None:
        spec = replace(spec, count=sum(map(len, spec.records.values())))
    job = Job(new_replay_id(draft.kind, cluster.clock()), spec, progress=JobProgress(runner))
    write_new(cluster, job)
    return job


def list_jobs(cluster: Cluster, group: str | None = None) -> list[Job]:
    """Return all jobs, or those of a group, the newest first."""
    with JobsView(cluster) as view:
        found = [one for one in view.look().values() if group is None or one.spec.group == group]
    return sorted(found, key=lambda one: (one.spec.at_ms, one.name), reverse=True)


def show(cluster: Cluster, name: str) -> Job:
    """Return the current state of a job.

    Raises:
        IllegalSetting: no job has that name.
    """
    with JobsView(cluster) as view:
        if name not in view.look():
            view.look(to_the_last=True)  # a new job may be hidden behind an open transaction of another job
        return view.find(name)


def pause(cluster: Cluster, name: str, *, by: str, why: str = "") -> Job:
    """Pause a job within about a second; its results so far stay.

    Raises:
        IllegalSetting: no job has that name, or it has ended.
    """
    return _wish(cluster, name, JobEvent(int(cluster.clock()), by, PAUSE, why))


def resume(cluster: Cluster, name: str, *, by: str, why: str = "") -> Job:
    """Resume a paused job where it stopped; errors as those of `pause`."""
    return _wish(cluster, name, JobEvent(int(cluster.clock()), by, RUN, why))


def cancel(cluster: Cluster, name: str, *, by: str, why: str = "") -> Job:
    """End a job; unprocessed letters stay unchanged. Errors as those of `pause`."""
    return _wish(cluster, name, JobEvent(int(cluster.clock()), by, CANCEL, why))


def _wish(cluster: Cluster, name: str, event: JobEvent) -> Job:
    def check(job: Job) -> None:
        status = job.status(cluster.clock())
        if status in (DONE, FAILED, CANCELLED):
            raise IllegalSetting(f"job {name} has ended ({status}); create another one for the rest")
        if event.wish == RUN and status != PAUSED:
            raise IllegalSetting(f"job {name} is not paused: it is {status}")

    return add_wish(cluster, name, event, check)
