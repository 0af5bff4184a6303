"""Resends of named dead letters, as `reconsume dlq resend` does them."""

from __future__ import annotations

import threading
from collections.abc import Collection, Sequence

from reconsume.bridge.kafka.cluster import Cluster
from reconsume.operations.jobs.planning import plan
from reconsume.operations.jobs.runner import JobRunner
from reconsume.operations.jobs.service import JobDraft, create
from reconsume.operations.jobs.work import LetterOutcome
from reconsume.operations.record_address import RecordAddress


def planned(cluster: Cluster, group: str, places: Collection[RecordAddress], *, max_replays: int = 2) -> list[str]:
    """The status of each, in order; writes nothing."""
    found: list[str] = []
    draft = JobDraft("resend", group, records=places, max_replays=max_replays)
    plan(cluster, draft, lambda _one, status: found.append(status))
    return found


def resend(
    cluster: Cluster, group: str, places: Collection[RecordAddress], *, by: str = "alice"
) -> tuple[str, list[str]]:
    """Send them again; the `REPLAY_ID`, and the outcome of each, in order."""
    outcomes: list[str] = []

    def told(some: Sequence[LetterOutcome]) -> None:
        outcomes.extend(one.outcome for one in some)

    runner = JobRunner(cluster)
    job = create(cluster, JobDraft("resend", group, records=places), by=by, runner=runner.name)
    ended = runner.run_until_ended(job, threading.Event(), told)
    assert ended.progress.ended == "DONE", ended
    return job.name, outcomes
