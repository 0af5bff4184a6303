"""Output of commands about jobs, and jobs in the foreground."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final

from reconsume.bridge.kafka.cluster import Cluster
from reconsume.cli.common import user_name
from reconsume.cli.output import one_line, print_line, tell
from reconsume.cli.progress import working
from reconsume.delay_levels.errors import ReconsumeError
from reconsume.delay_levels.human_text import counted
from reconsume.delay_levels.wire.jobs.job_records import CANCEL, RUN
from reconsume.operations.jobs.letter_files import moment
from reconsume.operations.jobs.planning import JobPlan
from reconsume.operations.jobs.records import DONE, PAUSED, Job
from reconsume.operations.jobs.runner import JobRunner
from reconsume.operations.jobs.service import pause
from reconsume.operations.jobs.work import DONE_WITH, OUTCOMES, SENT, LetterOutcome

MOST_KEPT: Final = 10_000
"""The maximum number of records whose outcomes are printed as JSON."""
_MOST_SHOWN: Final = 20


def run_in_foreground(
    cluster: Cluster, runner: JobRunner, make: Callable[[], Job], *, quiet: bool
) -> tuple[Job, list[LetterOutcome]]:
    """Create a job and run it to its end; Ctrl-C pauses it, also while it is being created.

    Args:
        cluster: the installation.
        runner: runs the job.
        make: creates the job.
        quiet: show no progress.

    Returns:
        The job, and the outcomes of its first 10,000 records.
    """
    kept: list[LetterOutcome] = []
    number = 0

    with _until_signal() as stop:
        job = make()
        with working(f"job {job.name}", quiet=quiet) as show:

            def told(outcomes: Sequence[LetterOutcome]) -> None:
                nonlocal number
                number += len(outcomes)
                some = outcomes[: max(0, MOST_KEPT - len(kept))]
                kept.extend(LetterOutcome(one.place, one.message_id, one.outcome, one.reason) for one in some)
                of = "" if job.spec.count is None else f" of {job.spec.count:,}"
                show(f"job {job.name}: {number:,}{of}; Ctrl-C pauses it")

            def behind(first: Job) -> None:
                show(f"job {job.name} waits for job {first.name} of its group; to go first: reconsume jobs pause")

            ended = runner.run_until_ended(job, stop, told, behind)
            if ended.is_open:
                ended = _pause(cluster, ended)
    return ended, kept


def _pause(cluster: Cluster, job: Job) -> Job:
    try:
        return pause(cluster, job.name, by=user_name(), why="Ctrl-C")
    except ReconsumeError:
        tell(f"job {job.name} could not be paused, so the next runner continues it; to end it: reconsume jobs cancel")
        raise


@contextmanager
def _until_signal() -> Iterator[threading.Event]:
    """Yield an event that Ctrl-C and SIGTERM set; outside the main thread no signal sets it."""
    stop = threading.Event()
    if threading.current_thread() is not threading.main_thread():
        yield stop
        return
    numbers = (signal.SIGTERM, signal.SIGINT)
    before = [signal.signal(number, lambda *_: stop.set()) for number in numbers]
    try:
        yield stop
    finally:
        for number, handler in zip(numbers, before, strict=True):
            signal.signal(number, handler)


def is_whole(job: Job) -> bool:
    """Return whether a job has ended; otherwise print how to continue it."""
    if job.progress.ended == DONE:
        return True
    why = job.progress.why or (job.events[-1].why if job.events else "")
    if job.progress.ended:
        tell(f"job {job.name} has failed: {why}")
    elif job.events and job.events[-1].wish == CANCEL:
        tell(f"job {job.name} was cancelled by {job.events[-1].by}: {why or 'no reason was said'}")
    else:
        tell(f"job {job.name} is paused: {why}")
        tell(f"continue: reconsume jobs resume {job.name}, then reconsume jobs run --once; or reconsume jobs cancel")
    return False


def print_counts(job: Job) -> None:
    """Print the number of records by outcome, and the first reasons of refusals."""
    for outcome, words in OUTCOMES.items():
        if number := job.progress.counts.get(outcome, 0):
            said = f"{words}, REPLAY_ID {job.name}" if outcome == SENT else words
            print_line(f"{number:>8,}  {said}")


def print_statuses(plan: JobPlan, words: dict[str, str]) -> None:
    """Print how many dead letters a job would treat in which way."""
    for status, number in sorted(plan.statuses.items(), key=lambda one: -one[1]):
        print_line(f"{number:>8,}  {words.get(status, status.lower())}")


def print_histograms(plan: JobPlan) -> None:
    """Print the dead letters of a plan by cause, hour and origin topic."""
    hours = [(moment(int(one.value)) or "", one.number) for one in plan.hours]
    for title, rows in (
        ("by cause", [(one.value, one.number) for one in plan.causes]),
        ("by hour", hours),
        ("by origin topic", [(one.value, one.number) for one in plan.origins]),
    ):
        print_line(title)
        for value, number in rows[:_MOST_SHOWN]:
            print_line(f"{number:>8,}  {one_line(value)}")
        if len(rows) > _MOST_SHOWN:
            print_line(f"          and {counted(len(rows) - _MOST_SHOWN, 'other')}")


def plan_row(plan: JobPlan) -> dict[str, Any]:
    """Return the plan of a job as JSON."""
    return {
        "count": plan.count,
        "statuses": dict(plan.statuses),
        "causes": [
            {"cause": one.value, "count": one.number, "first": moment(one.first_ms), "last": moment(one.last_ms)}
            for one in plan.causes
        ],
        "hours": [{"hour": moment(int(one.value)), "count": one.number} for one in plan.hours],
        "origins": [{"origin_topic": one.value, "count": one.number} for one in plan.origins],
    }


def job_row(job: Job, now_ms: float) -> dict[str, Any]:
    """Return a job as a row of a list."""
    progress, spec = job.progress, job.spec
    acted = sum(progress.counts.get(name, 0) for name in DONE_WITH)
    return {
        "job": job.name,
        "kind": spec.kind,
        "group": spec.group,
        "status": job.status(now_ms),
        "created": moment(spec.at_ms, "seconds"),
        "by": spec.by,
        "why": spec.why,
        "count": spec.count,
        "handled": job.handled,
        "done": acted,
        "left_out": job.handled - acted,
    }


def job_report(job: Job, now_ms: float) -> dict[str, Any]:
    """Return all facts about a job."""
    spec, wanted = job.spec, job.spec.wanted
    said = {name: value for name in wanted.__slots__ if (value := getattr(wanted, name)) not in (None, {})}
    picked = spec.records
    last = job.events[-1] if job.events else None
    return job_row(job, now_ms) | {
        "filter": said,
        "picked": None if picked is None else sum(map(len, picked.values())),
        "to": spec.target if spec.kind == "resend" else None,
        "rate": spec.rate,
        "max_replays": spec.max_replays if spec.kind == "resend" else None,
        "edited": None if spec.edit is None else spec.edit.parts,
        "runner": job.progress.runner or None,
        "counts": dict(job.progress.counts),
        "reasons": [reason for reasons in job.progress.reasons.values() for reason in reasons],
        "failed": job.progress.why or None,
        "paused": last.why if last is not None and job.status(now_ms) == PAUSED else None,
        "events": [
            {"at": moment(one.at_ms), "by": one.by, "wish": "resume" if one.wish == RUN else one.wish, "why": one.why}
            for one in job.events
        ],
    }
