"""`reconsume dlq resend` and `resolve` as jobs: plan, question, run, result."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Final

import typer

from reconsume.cli.actions.jobs import (
    MOST_KEPT,
    is_whole,
    job_row,
    plan_row,
    print_counts,
    print_histograms,
    print_statuses,
    run_in_foreground,
)
from reconsume.cli.common import Here, confirm, user_name
from reconsume.cli.output import print_json, print_line
from reconsume.delay_levels.errors import IllegalSetting
from reconsume.delay_levels.human_text import counted, pair
from reconsume.delay_levels.wire.dead_letter_states import OPEN, RESENT, RESOLVED, STATES
from reconsume.delay_levels.wire.jobs.job_records import LetterEdit
from reconsume.delay_levels.wire.resend import REASONS, SEND
from reconsume.operations.dead_letters import DeadLetterRecord
from reconsume.operations.jobs.planning import JobPlan
from reconsume.operations.jobs.records import Job
from reconsume.operations.jobs.runner import JobRunner
from reconsume.operations.jobs.selection import JobDraft
from reconsume.operations.jobs.service import create, plan
from reconsume.operations.jobs.work import SENT, LetterOutcome

_WORDS: Final = dict(REASONS) | {name: f"{name.lower()}: {words}" for name, words in STATES.items()}
_BEFORE: Final = {"resolved_now": OPEN, "replayed": RESENT, "resolved": RESOLVED}


def letter_edit(value_file: Path | None, headers: Iterable[str]) -> LetterEdit | None:
    """Return the changes of `--value-file` and `--header`; None without them.

    Raises:
        IllegalSetting: the file cannot be read, or a header is not `NAME=VALUE`.
    """
    changed: dict[str, str | None] = {}
    for text in headers:
        name, new = pair("--header", text, "NAME=VALUE, or NAME= to remove it")
        changed[name] = new or None
    try:
        value = None if value_file is None else value_file.read_bytes()
    except OSError as error:
        raise IllegalSetting(f"--value-file {value_file}: {error.strerror}") from None
    return None if value is None and not changed else LetterEdit(value, changed)


def run_as_job(here: Here, draft: JobDraft, question: str, *, why: str, dry_run: bool, yes: bool, detach: bool) -> None:
    """Print the plan, ask, create the job, and run it here or leave it to a runner.

    Args:
        here: the installation, and how to print.
        draft: the draft of the job.
        question: the question, with `{}` for the number of dead letters.
        why: the reason.
        dry_run: print the plan only.
        yes: do not ask.
        detach: leave the job to a runner.
    """
    cluster, as_json = here
    records: list[dict[str, str]] = []

    def letter(one: DeadLetterRecord, status: str) -> None:
        if len(records) < MOST_KEPT:
            records.append(_record(draft.kind, str(one.place), one.letter.origin_message_id, status))

    found = plan(cluster, draft, letter)
    only_told = dry_run or not found.acted
    if only_told and as_json:
        print_json(_of_kind(draft, None) | {"records": records} | plan_row(found))
    elif not as_json:
        _tell_plan(draft, found)
    if only_told:
        return
    confirm(question.format(counted(found.acted, "dead letter")), yes=yes)
    make = partial(create, cluster, draft, by=user_name(), why=why, count=found.count)
    if detach:
        _tell_detached(here, make())
        return
    runner = JobRunner(cluster)
    # Without `runner` a running console would start the job too, and would not print the outcomes here.
    job, outcomes = run_in_foreground(cluster, runner, partial(make, runner=runner.name), quiet=as_json)
    if as_json:
        print_json(_of_kind(draft, job) | {"records": _records(draft.kind, outcomes), **job_row(job, cluster.clock())})
    else:
        print_counts(job)
    if not is_whole(job):
        raise typer.Exit(1)


def _tell_plan(draft: JobDraft, found: JobPlan) -> None:
    if not found.count:
        print_line(f"group {draft.group} has no open dead letters that match")
        return
    print_statuses(found, _WORDS)
    if draft.records is None:
        print_histograms(found)


def _tell_detached(here: Here, job: Job) -> None:
    if here.as_json:
        print_json(job_row(job, here.cluster.clock()))
    else:
        print_line(f"job {job.name} waits for a runner: a console, or `reconsume jobs run`")


def _of_kind(draft: JobDraft, job: Job | None) -> dict[str, Any]:
    if draft.kind == "resend":
        return {"group": draft.group, "replay_id": None if job is None else job.name}
    return {"group": draft.group}


def _records(kind: str, outcomes: Sequence[LetterOutcome]) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    for one in outcomes:
        if kind == "resend":
            found.append(_record(kind, str(one.place), one.message_id, SEND if one.outcome == SENT else one.outcome))
        else:
            before = _BEFORE.get(one.outcome, one.outcome.upper())
            found.append({"record": str(one.place), "before": before, "changed": one.outcome == "resolved_now"})
    return found


def _record(kind: str, place: str, message_id: str, status: str) -> dict[str, str]:
    if kind == "resend":
        return {"record": place, "message_id": message_id, "status": status}
    return {"record": place, "before": status}
