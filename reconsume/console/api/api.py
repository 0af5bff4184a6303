"""`/api/v1`: what the pages show and do, as JSON, by the same functions, sign-in and roles."""

from __future__ import annotations

from typing import Annotated, Any, Final
from urllib.parse import unquote

from fastapi import Depends, FastAPI, Query, Request
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.responses import JSONResponse

from reconsume import __version__
from reconsume.bridge.process.clock import Clock
from reconsume.console.api.job_routes import add_job_routes
from reconsume.console.api.models import (
    ApiFault,
    AskedPlaces,
    AskedResend,
    AskedResolve,
    ShownGroupPage,
    ShownLetters,
    ShownOverview,
    ShownQuarantine,
    ShownRecord,
    ShownReleased,
    ShownVerdicts,
)
from reconsume.console.api.shown import (
    shown_changes,
    shown_group,
    shown_letter,
    shown_overview,
    shown_quarantined,
    shown_record,
    shown_verdicts,
)
from reconsume.console.changes import Changes
from reconsume.console.cluster import ConsoleCluster
from reconsume.console.pages.filters import FilterForm, place_of, places_of
from reconsume.console.pages.pages import view_of
from reconsume.console.pages.rows import hides_values
from reconsume.console.pages.views import overview_of, visible_to
from reconsume.console.settings import ConsoleProcessSettings
from reconsume.console.sign_in.access import ConsoleRole
from reconsume.console.snapshot import Snapshot
from reconsume.console.web.faults import Refusal, status_of
from reconsume.console.web.guard import caller_of, require
from reconsume.delay_levels.errors import ReconsumeError

PREFIX: Final = "/api/v1"
_FAULTS: Final[dict[int | str, dict[str, Any]]] = {
    status: {"model": ApiFault} for status in (400, 401, 403, 404, 413, 421, 503)
}
_ABOUT: Final = """\
What the console's pages show and do. Every request needs the sign-in of the pages: `authorization: Bearer <token>`, the
headers of a proxy, or the session of a browser. Requests that change something are JSON. Moments are milliseconds since
1970.
"""


def group_name(group: str) -> str:
    """The group that the address names, with its escapes."""
    return unquote(group, errors="replace")


Group = Annotated[str, Depends(group_name)]


def make_api(settings: ConsoleProcessSettings, cluster: ConsoleCluster, changes: Changes, clock: Clock) -> FastAPI:
    """Return the application below `/api/v1`."""
    api = FastAPI(
        title="reconsume console",
        version=__version__,
        description=_ABOUT,
        docs_url=None,
        redoc_url=None,
        servers=[{"url": PREFIX}],
        root_path_in_servers=False,
        responses=_FAULTS,
    )
    for kind in (Refusal, ReconsumeError, RequestValidationError, HTTPException):
        api.add_exception_handler(kind, fault_of)
    _add_views(api, settings, cluster)
    _add_letters(api, settings, cluster, clock)
    _add_changes(api, changes)
    _add_quarantine(api, cluster, changes)
    add_job_routes(api, cluster, changes, clock, settings.console.cause_labels)
    return api


def fault_of(_request: Request, error: Exception) -> JSONResponse:
    """Why a request was refused, as JSON."""
    headers: dict[str, str] = {}
    if isinstance(error, Refusal):
        status, detail = error.status, error.detail
    elif isinstance(error, ReconsumeError):
        status, detail = status_of(error), str(error)
    elif isinstance(error, RequestValidationError):
        first = error.errors()[0]
        status, detail = 400, f"{'.'.join(map(str, first['loc']))}: {first['msg']}"
    elif isinstance(error, HTTPException):
        status, detail, headers = error.status_code, str(error.detail), dict(error.headers or {})
    else:
        status, detail = 500, type(error).__name__
    if status == 503:  # noqa: PLR2004 - not now
        headers["retry-after"] = "5"
    return JSONResponse({"status": status, "detail": detail}, status, headers)


def latest(cluster: ConsoleCluster) -> Snapshot:
    """Return the installation as it was seconds ago.

    Raises:
        Refusal: it is being read for the first time.
    """
    if (found := cluster.latest()) is None:
        raise Refusal(503, "this console has just started and reads the installation for the first time")
    return found


def _add_views(api: FastAPI, settings: ConsoleProcessSettings, cluster: ConsoleCluster) -> None:
    @api.get("/overview")
    def overview(request: Request, q: str = "") -> ShownOverview:
        """The installation: delay topics, and groups whose names contain `q`, those that need a person first."""
        snapshot = latest(cluster)
        found = overview_of(visible_to(caller_of(request), snapshot), q)
        return shown_overview(found, snapshot, cluster.left_to_index())

    @api.get("/groups/{group}")
    def group(request: Request, group: Group) -> ShownGroupPage:
        """A consumer group: settings, causes of its open dead letters, waits before each retry."""
        require(request, ConsoleRole.VIEWER, group)
        latest(cluster)
        _, view = view_of(cluster, group, settings.names)
        if view is None:
            raise Refusal(404, f"group {group!r} is not registered and has neither a retry nor a dead-letter topic")
        return shown_group(view, cluster.causes(group))


def _add_letters(api: FastAPI, settings: ConsoleProcessSettings, cluster: ConsoleCluster, clock: Clock) -> None:
    @api.get("/groups/{group}/dead-letters")
    def dead_letters(
        request: Request,
        group: Group,
        form: Annotated[FilterForm, Depends(_filter_form)],
        before: str | None = None,
        limit: Annotated[int, Query(ge=1, le=500)] = 50,
    ) -> ShownLetters:
        """Dead letters of a group, the newest first."""
        caller = require(request, ConsoleRole.VIEWER, group)
        page = cluster.page(group, form.wanted(clock()), before=before, limit=limit)
        hide = hides_values(settings.console, caller, group)
        return ShownLetters(
            letters=[shown_letter(one, hide=hide) for one in page.records],
            older=page.older,
            found=page.found,
            looked_at=page.looked_at,
        )

    @api.get("/groups/{group}/dead-letters/{partition}/{offset}")
    def record(request: Request, group: Group, partition: int, offset: int) -> ShownRecord:
        """A dead letter with key, value and headers."""
        caller = require(request, ConsoleRole.VIEWER, group)
        one = cluster.one(group, place_of(f"{partition}/{offset}"))
        return shown_record(one, hide=hides_values(settings.console, caller, group))


def _filter_form(
    text: str = "",
    key: str = "",
    message_id: str = "",
    since: str = "",
    until: str = "",
    state: str = "",
    label: str = "",
) -> FilterForm:
    """Return the filter of a list, as in the address of its page."""
    return FilterForm(text, key, message_id, since, until, state, label)


def _add_changes(api: FastAPI, changes: Changes) -> None:
    @api.post("/groups/{group}/resend/plan")
    def resend_plan(request: Request, group: Group, asked: AskedPlaces) -> ShownVerdicts:
        """Return the plan of a resend; changes nothing."""
        require(request, ConsoleRole.OPERATOR, group)
        letters = shown_verdicts(changes.plan(group, places_of(asked.places)))
        return ShownVerdicts(changed=sum(one.is_changed for one in letters), letters=letters)

    @api.post("/groups/{group}/resend")
    def resend(request: Request, group: Group, asked: AskedResend) -> ShownVerdicts:
        """Send dead letters again, each once; the same request again sends what is missing."""
        caller, replay_id = require(request, ConsoleRole.OPERATOR, group), asked.replay_id or changes.new_replay_id()
        letters = shown_verdicts(changes.resend(caller.name, group, places_of(asked.places), replay_id))
        return ShownVerdicts(replay_id=replay_id, changed=sum(one.is_changed for one in letters), letters=letters)

    @api.post("/groups/{group}/resolve")
    def resolve(request: Request, group: Group, asked: AskedResolve) -> ShownVerdicts:
        """Resolve open dead letters; `status` is what they were before."""
        caller = require(request, ConsoleRole.OPERATOR, group)
        letters = shown_changes(changes.resolve(caller.name, group, places_of(asked.places), asked.why))
        return ShownVerdicts(changed=sum(one.is_changed for one in letters), letters=letters)

    @api.post("/groups/{group}/reopen")
    def reopen(request: Request, group: Group, asked: AskedPlaces) -> ShownVerdicts:
        """Open resolved dead letters again; `status` is what they were before."""
        caller = require(request, ConsoleRole.OPERATOR, group)
        letters = shown_changes(changes.reopen(caller.name, group, places_of(asked.places)))
        return ShownVerdicts(changed=sum(one.is_changed for one in letters), letters=letters)


def _add_quarantine(api: FastAPI, cluster: ConsoleCluster, changes: Changes) -> None:
    @api.get("/quarantine")
    def quarantine(request: Request, limit: Annotated[int, Query(ge=1, le=500)] = 50) -> ShownQuarantine:
        """Records that wait in the quarantine, the oldest first; for people with a role for all groups."""
        require(request, ConsoleRole.VIEWER)
        records, has_more = cluster.quarantine(limit)
        return ShownQuarantine(records=[shown_quarantined(one) for one in records], has_more=has_more)

    @api.post("/quarantine/release")
    def release(request: Request, asked: AskedPlaces) -> ShownReleased:
        """Give records back to the schedulers, all of them or none; for admins."""
        caller = require(request, ConsoleRole.ADMIN)
        return ShownReleased(released=changes.release(caller.name, places_of(asked.places)))
