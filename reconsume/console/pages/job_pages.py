"""Pages of jobs: the dry run, all jobs, a job with its progress, and requests to it."""

from __future__ import annotations

import re
from typing import Any, Final

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from reconsume.bridge.process.clock import Clock
from reconsume.console.changes import Changes
from reconsume.console.cluster import ConsoleCluster
from reconsume.console.pages.bytes_shown import blob
from reconsume.console.pages.edit_pages import carried, edit_of, edited_letter, headers_before, refuse_if_hidden
from reconsume.console.pages.filters import FIELDS, FilterForm, job_draft, places_of
from reconsume.console.pages.forms import Form, last
from reconsume.console.pages.rows import group_of, hides_values, row_of
from reconsume.console.settings import ConsoleSettings
from reconsume.console.sign_in.access import ConsoleRole
from reconsume.console.web.guard import caller_of, require, require_for_job
from reconsume.console.web.rendering import Links, Renderer
from reconsume.delay_levels.errors import IllegalSetting
from reconsume.delay_levels.wire.resend import SEND
from reconsume.operations.dead_letters import DeadLetterRecord
from reconsume.operations.jobs.planning import JobPlan
from reconsume.operations.jobs.selection import JobDraft

_KINDS: Final = ("resend", "resolve")
_SHOWN_JOBS: Final = 200
_SHOWN_KINDS: Final = 20
_RATE: Final = 50
"""The offered rate of a resend, which a recovering service should bear."""
_NUMBER: Final = re.compile("[0-9]{1,18}", re.ASCII)


class JobPages:
    """Pages and forms of jobs.

    Args:
        cluster: reads from Kafka.
        changes: creates and controls jobs.
        renderer: renders the pages.
        clock: returns milliseconds.
        settings: the settings of the console.
    """

    def __init__(
        self,
        cluster: ConsoleCluster,
        changes: Changes,
        renderer: Renderer,
        clock: Clock,
        settings: ConsoleSettings,
    ) -> None:
        self._cluster = cluster
        self._changes = changes
        self._renderer = renderer
        self._clock = clock
        self._settings = settings

    def plan(self, request: Request) -> Response:
        """Show the plan of a job on all dead letters that match a filter; changes nothing."""
        group = group_of(request)
        require(request, ConsoleRole.OPERATOR, group)
        # The form to create the job may be sent much later, and is about the same dead letters.
        form = FilterForm.of(request.query_params).at(self._clock())
        kind = _kind(request.query_params.get("kind", "resend"))
        plan = self._cluster.plan_job(self._draft(kind, group, form))
        content = self._content(group, kind, plan) | {"form": form}
        return self._renderer.page(request, "job_plan.html", content)

    def plan_chosen(self, request: Request, form: Form) -> Response:
        """Show the plan of a resend of picked dead letters, or of an edited one; changes nothing."""
        group = group_of(request)
        caller = require(request, ConsoleRole.OPERATOR, group)
        hide = hides_values(self._settings, caller, group)
        # One button of the form with check boxes picks all shown letters.
        draft, one = self._chosen(group, form, "shown" if "all" in form else "place", hide=hide)
        rows: list[dict[str, Any]] = []

        def told(letter: DeadLetterRecord, status: str) -> None:
            rows.append(row_of(letter, hide=hide) | {"status": status})

        plan = self._cluster.plan_job(draft, told)
        content = self._content(group, "resend", plan) | {"rows": rows, "places": draft.records}
        if one is not None and draft.edit is not None:
            content |= {
                "edit": draft.edit,
                "carried": carried(form),
                "before": blob(one.value, hide=hide),
                "after": blob(draft.edit.value, hide=hide),
                "headers_before": headers_before(one, draft.edit.headers),
            }
        # A switch of the language leads to a page that needs no form.
        return self._renderer.page(request, "job_plan.html", content, here=Links().group(group, "dead-letters"))

    def _content(self, group: str, kind: str, plan: JobPlan) -> dict[str, Any]:
        snapshot = self._cluster.latest()
        return {
            "group": group,
            "is_paused": snapshot is not None and snapshot.groups.is_paused(group),
            "kind": kind,
            "plan": plan,
            "rate": _RATE,
            "shown": _SHOWN_KINDS,
            "sent_status": SEND,
            "form": FilterForm(),
            "rows": None,
            "places": (),
            "carried": (),
            "edit": None,
        }

    def _chosen(
        self, group: str, form: Form, field: str, *, hide: bool, rate: int | None = None, target: str = "retry"
    ) -> tuple[JobDraft, DeadLetterRecord | None]:
        """Return a resend of the letters that a form names, and the edited one."""
        places = places_of(form.get(field, []))
        one, edit = None, None
        if "edit" in form:
            refuse_if_hidden(hide=hide)
            one = edited_letter(self._cluster, group, places)
            edit = edit_of(one, form)
        return self._draft("resend", group, _filter(form), rate=rate, target=target, records=places, edit=edit), one

    def create(self, request: Request, form: Form) -> Response:
        """Create a job, and show it."""
        group, target = group_of(request), last(form, "target") or "retry"
        caller = require_for_job(request, group, target)
        rate = _number("rate", last(form, "rate"))
        if "place" in form:
            hide = hides_values(self._settings, caller, group)
            draft, _ = self._chosen(group, form, "place", hide=hide, rate=rate, target=target)
        else:
            draft = self._draft(_kind(last(form, "kind")), group, _filter(form), rate=rate, target=target)
        job = self._changes.create_job(caller.name, draft, last(form, "why"), _number("count", last(form, "count")))
        return RedirectResponse(Links().to(f"/jobs/{job.name}"), 303)

    def _draft(self, kind: str, group: str, form: FilterForm, **more: Any) -> JobDraft:
        return job_draft(kind, group, form, self._clock(), self._settings.cause_labels, **more)

    def jobs(self, request: Request) -> Response:
        """Show the jobs of the groups that a person may see, newest first."""
        caller, snapshot = caller_of(request), self._cluster.latest()
        if snapshot is None:
            return self._renderer.pending(request, self._cluster.left_to_index())
        found = [one for one in snapshot.jobs if caller.role_for(one.spec.group) is not None]
        rows = [(one, one.status(snapshot.now_ms)) for one in found[:_SHOWN_JOBS]]
        content = {"snapshot": snapshot, "rows": rows, "all_jobs": len(found)}
        return self._renderer.page(request, "jobs.html", content)

    def job(self, request: Request) -> Response:
        """Show a job with its progress."""
        job = self._cluster.job(request.path_params["name"])
        require(request, ConsoleRole.VIEWER, job.spec.group)
        content = {"job": job, "status": job.status(self._cluster.now_ms()), "group": job.spec.group}
        return self._renderer.page(request, "job.html", content)

    def wish(self, request: Request, form: Form) -> Response:
        """Pause, resume or cancel a job."""
        name = request.path_params["name"]
        caller = require(request, ConsoleRole.OPERATOR, self._cluster.job(name).spec.group)
        self._changes.steer_job(caller.name, name, last(form, "wish"), last(form, "why"))
        return RedirectResponse(Links().to(f"/jobs/{name}"), 303)


def _kind(text: str) -> str:
    if text not in _KINDS:
        raise IllegalSetting(f"kind {text[:80]!r}: use {' or '.join(_KINDS)}")
    return text


def _filter(form: Form) -> FilterForm:
    return FilterForm.of({name: last(form, name) for name in FIELDS})


def _number(name: str, text: str) -> int | None:
    """Return a typed number; None for an empty field."""
    if not text.strip():
        return None
    if _NUMBER.fullmatch(text.strip()) is None:
        raise IllegalSetting(f"{name} {text[:80]!r}: write a whole number, or nothing")
    return int(text)
