"""`reconsume jobs`: resends and resolutions that continue after a crash."""

from __future__ import annotations

from typing import Annotated, Final

import typer

from reconsume.cli.actions.jobs import job_report, job_row
from reconsume.cli.common import Here, on_kafka, stop_at_signals, user_name
from reconsume.cli.output import print_json, print_line, print_report, print_table
from reconsume.operations.jobs.records import STATUSES
from reconsume.operations.jobs.runner import JobRunner
from reconsume.operations.jobs.service import Job, list_jobs
from reconsume.operations.jobs.service import cancel as cancel_job
from reconsume.operations.jobs.service import pause as pause_job
from reconsume.operations.jobs.service import resume as resume_job
from reconsume.operations.jobs.service import show as find_job

app = typer.Typer()

_COLUMNS: Final = ("job", "status", "group", "created", "by", "of", "done", "left out", "why")
Name = Annotated[str, typer.Argument(metavar="JOB", help="name of a job, from `reconsume jobs list`")]
Why = Annotated[str, typer.Option(help="reason, shown with the job")]


@on_kafka(app, "list")
def list_all(here: Here, group: Annotated[str | None, typer.Option(help="only jobs of this group")] = None) -> None:
    """List jobs on dead letters, the newest first."""
    rows = [job_row(one, here.cluster.clock()) for one in list_jobs(here.cluster, group)]
    if here.as_json:
        print_json(rows)
        return
    names = ("job", "status", "group", "created", "by", "count", "done", "left_out", "why")
    print_table("jobs", _COLUMNS, [tuple(row[name] for name in names) for row in rows])


@on_kafka(app, "show")
def show_job(here: Here, job: Name) -> None:
    """Show a job: its dead letters, its progress, what it left out and why, and who did what."""
    report = job_report(find_job(here.cluster, job), here.cluster.clock())
    if not here.as_json:
        report["status"] = f"{report['status']}: {STATUSES[report['status']]}"
        report["events"] = [f"{one['at']} {one['wish']} by {one['by']}: {one['why']}" for one in report["events"]]
    print_report(report, as_json=here.as_json)


@on_kafka(app, "pause")
def pause(here: Here, job: Name, why: Why = "") -> None:
    """Pause a job; `reconsume jobs resume` continues it."""
    _tell(
        here, pause_job(here.cluster, job, by=user_name(), why=why), "is paused; `reconsume jobs resume` continues it"
    )


@on_kafka(app, "resume")
def resume(here: Here, job: Name, why: Why = "") -> None:
    """Resume a paused job where it stopped; the next free runner continues it."""
    _tell(here, resume_job(here.cluster, job, by=user_name(), why=why), "continues with the next free runner")


@on_kafka(app, "cancel")
def cancel(here: Here, job: Name, why: Why = "") -> None:
    """End a job; dead letters that it has not reached stay as they are."""
    _tell(here, cancel_job(here.cluster, job, by=user_name(), why=why), "is cancelled")


@on_kafka(app, "run")
def run(here: Here, once: Annotated[bool, typer.Option("--once", help="end when no job is open")] = False) -> None:
    """Run open jobs until SIGTERM or Ctrl-C; several runners may do so at once."""
    from reconsume.cli.logs import configure_logs

    configure_logs(here.settings.logging.level, here.settings.logging.format)
    JobRunner(here.cluster).run(stop_at_signals(), once=once)
    if here.as_json:
        print_json([job_row(one, here.cluster.clock()) for one in list_jobs(here.cluster) if one.is_open])


def _tell(here: Here, job: Job, words: str) -> None:
    if here.as_json:
        print_json(job_row(job, here.cluster.clock()))
    else:
        print_line(f"job {job.name} {words}")
