"""Jobs over the API."""

from __future__ import annotations

import base64
from collections.abc import Mapping

from fastapi import FastAPI, Request

from reconsume.bridge.process.clock import Clock
from reconsume.console.api.job_models import AskedEdit, AskedJob, AskedWish, ShownJob, ShownPlan
from reconsume.console.api.shown import shown_job
from reconsume.console.changes import Changes
from reconsume.console.cluster import ConsoleCluster
from reconsume.console.pages.edit_pages import refuse_if_hidden
from reconsume.console.pages.filters import FilterForm, job_draft, place_of
from reconsume.console.pages.rows import hides_values
from reconsume.console.settings import ConsoleSettings
from reconsume.console.sign_in.access import ConsoleRole
from reconsume.console.snapshot import Snapshot
from reconsume.console.web.faults import Refusal
from reconsume.console.web.guard import caller_of, require, require_for_job
from reconsume.delay_levels.errors import IllegalSetting
from reconsume.delay_levels.wire.jobs.job_records import LetterEdit
from reconsume.operations.jobs.selection import JobDraft


def latest(cluster: ConsoleCluster) -> Snapshot:
    """Return the state of the installation, a few seconds old.

    Raises:
        Refusal: the first reading has not ended.
    """
    if (found := cluster.latest()) is None:
        raise Refusal(503, "this console has just started and reads the installation for the first time")
    return found


def add_job_routes(
    api: FastAPI, cluster: ConsoleCluster, changes: Changes, clock: Clock, settings: ConsoleSettings
) -> None:
    """Add the routes about jobs.

    Args:
        api: the application to extend.
        cluster: reads from Kafka.
        changes: makes changes.
        clock: returns milliseconds.
        settings: the settings of the console.
    """

    def draft(request: Request, asked: AskedJob) -> JobDraft:
        refuse_if_hidden(hide=asked.edit is not None and hides_values(settings, caller_of(request), asked.group))
        return _draft(asked, clock(), settings.cause_labels)

    @api.get("/jobs")
    def jobs(request: Request, group: str | None = None) -> list[ShownJob]:
        """Jobs of the groups that the caller may see, newest first."""
        caller, found = caller_of(request), latest(cluster)
        return [
            shown_job(one, found.now_ms)
            for one in found.jobs
            if caller.role_for(one.spec.group) is not None and group in (None, one.spec.group)
        ]

    @api.post("/jobs/plan")
    def job_plan(request: Request, asked: AskedJob) -> ShownPlan:
        """The plan of a job (a dry run): counts by cause, hour and origin topic; changes nothing."""
        require_for_job(request, asked.group, asked.target)
        return ShownPlan.model_validate(cluster.plan_job(draft(request, asked)))

    @api.post("/jobs", status_code=201)
    def job_create(request: Request, asked: AskedJob) -> ShownJob:
        """Create a job; a console or `reconsume jobs run` runs it."""
        caller = require_for_job(request, asked.group, asked.target)
        return shown_job(changes.create_job(caller.name, draft(request, asked), asked.why), cluster.now_ms())

    @api.get("/jobs/{name}")
    def job(request: Request, name: str) -> ShownJob:
        """A job with its current progress."""
        found = cluster.job(name)
        require(request, ConsoleRole.VIEWER, found.spec.group)
        return shown_job(found, cluster.now_ms())

    @api.post("/jobs/{name}/wish")
    def job_wish(request: Request, name: str, asked: AskedWish) -> ShownJob:
        """Pause, resume or cancel a job."""
        caller = require(request, ConsoleRole.OPERATOR, cluster.job(name).spec.group)
        return shown_job(changes.steer_job(caller.name, name, asked.wish, asked.why), cluster.now_ms())


def _draft(asked: AskedJob, now_ms: float, label_rules: Mapping[str, str]) -> JobDraft:
    form = FilterForm(
        *(asked.text or "", asked.key or "", asked.message_id or "", asked.origin_topic or "", asked.with_header or ""),
        *(asked.since or "", asked.until or "", asked.state or "", asked.label or ""),
    )
    return job_draft(
        *(asked.kind, asked.group, form, now_ms, label_rules),
        records=None if asked.places is None else [place_of(one) for one in asked.places],
        rate=asked.rate,
        max_replays=asked.max_replays,
        target=asked.target,
        edit=None if asked.edit is None else _edit(asked.edit),
    )


def _edit(asked: AskedEdit) -> LetterEdit:
    if asked.value is not None and asked.value_base64 is not None:
        raise IllegalSetting("value and value_base64 are both given; keep one of them")
    value = None if asked.value is None else asked.value.encode()
    if asked.value_base64 is not None:
        try:
            value = base64.b64decode(asked.value_base64, validate=True)
        except ValueError as error:  # of text that is not ASCII it is not a binascii.Error
            raise IllegalSetting(f"value_base64 is not base64: {error}") from None
    return LetterEdit(value, asked.headers)
