"""`/api/v1`: the contents and actions of the pages as JSON, with the same functions, sign-in and roles."""

from __future__ import annotations

from typing import Annotated, Any, Final
from urllib.parse import unquote

from fastapi import Depends, FastAPI, Query, Request
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.responses import JSONResponse

from reconsume import __version__
from reconsume.bridge.kafka.schema_registry import SchemaRegistry
from reconsume.bridge.process.clock import Clock
from reconsume.console.api.job_routes import add_job_routes, latest
from reconsume.console.api.models import (
    ApiFault,
    AskedPause,
    AskedPlaces,
    AskedResolve,
    ShownGroupPage,
    ShownLetters,
    ShownLife,
    ShownOverview,
    ShownQuarantine,
    ShownRecord,
    ShownReleased,
    ShownReport,
    ShownReports,
    ShownResolved,
    ShownRetryHours,
    ShownVerdicts,
    ShownWaits,
)
from reconsume.console.api.shown import (
    shown_changes,
    shown_group,
    shown_letter,
    shown_overview,
    shown_quarantined,
    shown_record,
)
from reconsume.console.changes import Changes
from reconsume.console.cluster import ConsoleCluster
from reconsume.console.pages.filters import FilterForm, place_of, places_of
from reconsume.console.pages.pages import view_of
from reconsume.console.pages.report_pages import reports_folder
from reconsume.console.pages.rows import hides_values
from reconsume.console.pages.views import overview_of, visible_to
from reconsume.console.reports import list_reports
from reconsume.console.settings import ConsoleProcessSettings
from reconsume.console.sign_in.access import ConsoleRole
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
    """Return the group in the address, without escapes."""
    return unquote(group, errors="replace")


Group = Annotated[str, Depends(group_name)]


def make_api(
    settings: ConsoleProcessSettings,
    cluster: ConsoleCluster,
    changes: Changes,
    clock: Clock,
    schemas: SchemaRegistry | None,
) -> FastAPI:
    """Return the application below `/api/v1`."""
    api = _ConsoleApi(
        title="reconsume console",
        version=__version__,
        description=_ABOUT,
        docs_url=None,
        redoc_url=None,
        servers=[{"url": PREFIX}],
        root_path_in_servers=False,
        responses=_FAULTS,
        dependencies=[Depends(_refuse_unknown_parameters)],
    )
    for kind in (Refusal, ReconsumeError, RequestValidationError, HTTPException):
        api.add_exception_handler(kind, fault_of)
    _add_views(api, settings, cluster)
    _add_letters(api, settings, cluster, clock, schemas)
    _add_reports(api, settings)
    _add_changes(api, changes)
    _add_quarantine(api, cluster, changes)
    add_job_routes(api, cluster, changes, clock, settings.console)
    return api


class _ConsoleApi(FastAPI):
    def openapi(self) -> dict[str, Any]:
        """Return the document; FastAPI adds 422 to it, and `fault_of` answers 400."""
        document = super().openapi()
        for operation in (one for path in document["paths"].values() for one in path.values()):
            operation["responses"].pop("422", None)
        for name in ("HTTPValidationError", "ValidationError"):
            document["components"]["schemas"].pop(name, None)
        return document


def _refuse_unknown_parameters(request: Request) -> None:
    """Raise `Refusal` for a misspelt parameter, without which the answer would be about more than was meant."""
    operation = request.app.openapi()["paths"][request.scope["route"].path_format][request.method.lower()]
    known = [one["name"] for one in operation.get("parameters", ()) if one["in"] == "query"]
    for name in request.query_params:
        if name not in known:
            raise Refusal(400, f"parameter {name[:80]!r} is unknown; it may be one of: {', '.join(known) or 'none'}")


def fault_of(_request: Request, error: Exception) -> JSONResponse:
    """Return the reason of a refusal as JSON."""
    headers: dict[str, str] = {}
    if isinstance(error.__cause__, Refusal):
        error = error.__cause__  # a body that is too large; FastAPI calls it unreadable
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


def _add_views(api: FastAPI, settings: ConsoleProcessSettings, cluster: ConsoleCluster) -> None:
    @api.get("/overview")
    def overview(request: Request, q: str = "") -> ShownOverview:
        """The installation: delay topics, and groups whose names contain `q`, those that need attention first."""
        snapshot = latest(cluster)
        found = overview_of(visible_to(caller_of(request), snapshot), q)
        return shown_overview(found, snapshot, cluster.left_to_index(), cluster.index_trouble())

    @api.get("/groups/{group}")
    def group(request: Request, group: Group) -> ShownGroupPage:
        """A consumer group: settings, causes of its open dead letters, waits before each retry."""
        require(request, ConsoleRole.VIEWER, group)
        latest(cluster)
        _, view = view_of(cluster, group, settings.names)
        if view is None:
            raise Refusal(404, f"group {group!r} is not registered and has neither a retry nor a dead-letter topic")
        return shown_group(view, cluster.causes(group))

    @api.get("/groups/{group}/waits")
    def waits(request: Request, group: Group) -> ShownWaits:
        """The waiting records of a group on each delay topic; reads at most 20,000 waiting records of all groups."""
        require(request, ConsoleRole.VIEWER, group)
        return ShownWaits.model_validate(cluster.waits(group))

    @api.get("/groups/{group}/hours")
    def hours(request: Request, group: Group) -> ShownRetryHours:
        """The retries of a group by the hour of their delivery."""
        require(request, ConsoleRole.VIEWER, group)
        return ShownRetryHours.model_validate(cluster.retry_hours(group))


def _add_reports(api: FastAPI, settings: ConsoleProcessSettings) -> None:
    @api.get("/reports")
    def reports(request: Request) -> ShownReports:
        """Reports of `reconsume reconcile`, the newest first; for people with a role for all groups."""
        require(request, ConsoleRole.VIEWER)
        found, number = list_reports(reports_folder(settings.console.reports_folder))
        shown = [ShownReport.model_validate(one) for one in found]
        return ShownReports(reports=shown, number=number)


def _add_letters(
    api: FastAPI,
    settings: ConsoleProcessSettings,
    cluster: ConsoleCluster,
    clock: Clock,
    schemas: SchemaRegistry | None,
) -> None:
    @api.get("/groups/{group}/dead-letters")
    def dead_letters(
        request: Request,
        group: Group,
        form: Annotated[FilterForm, Depends()],
        before: str | None = None,
        limit: Annotated[int, Query(ge=1, le=500)] = 50,
    ) -> ShownLetters:
        """Dead letters of a group, newest first."""
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
        return shown_record(one, schemas, hide=hides_values(settings.console, caller, group))

    @api.get("/groups/{group}/dead-letters/{partition}/{offset}/life")
    def life(request: Request, group: Group, partition: int, offset: int) -> ShownLife:
        """Waits, deliveries and deaths of a dead letter's message; reads at most 50,000 records of all messages."""
        require(request, ConsoleRole.VIEWER, group)
        return ShownLife.model_validate(cluster.life(group, cluster.one(group, place_of(f"{partition}/{offset}"))))


def _add_changes(api: FastAPI, changes: Changes) -> None:
    @api.post("/groups/{group}/resolve")
    def resolve(request: Request, group: Group, asked: AskedResolve) -> ShownVerdicts:
        """Resolve open dead letters; `status` is their earlier state."""
        caller = require(request, ConsoleRole.OPERATOR, group)
        letters = shown_changes(changes.resolve(caller.name, group, places_of(asked.places), asked.why))
        return ShownVerdicts(changed=sum(one.is_changed for one in letters), letters=letters)

    @api.post("/groups/{group}/retries")
    def retries(request: Request, group: Group, asked: AskedPause) -> AskedPause:
        """Pause or resume the retries of a group; no record is lost or early."""
        caller = require(request, ConsoleRole.OPERATOR, group)
        changes.pause_retries(caller.name, group, is_paused=asked.paused)
        return asked

    @api.post("/groups/{group}/reopen")
    def reopen(request: Request, group: Group, asked: AskedPlaces) -> ShownVerdicts:
        """Reopen resolved dead letters; `status` is their earlier state."""
        caller = require(request, ConsoleRole.OPERATOR, group)
        letters = shown_changes(changes.reopen(caller.name, group, places_of(asked.places)))
        return ShownVerdicts(changed=sum(one.is_changed for one in letters), letters=letters)


def _add_quarantine(api: FastAPI, cluster: ConsoleCluster, changes: Changes) -> None:
    @api.get("/quarantine")
    def quarantine(request: Request, limit: Annotated[int, Query(ge=1, le=500)] = 50) -> ShownQuarantine:
        """Open records of the quarantine, the oldest first; needs a role for all groups."""
        require(request, ConsoleRole.VIEWER)
        records, has_more = cluster.quarantine(limit)
        return ShownQuarantine(records=[shown_quarantined(one) for one in records], has_more=has_more)

    @api.post("/quarantine/release")
    def release(request: Request, asked: AskedPlaces) -> ShownReleased:
        """Return records to the schedulers, all of them or none; for admins."""
        caller = require(request, ConsoleRole.ADMIN)
        return ShownReleased(released=changes.release(caller.name, places_of(asked.places)))

    @api.post("/quarantine/resolve")
    def resolve(request: Request, asked: AskedResolve) -> ShownResolved:
        """Close records for good, all or none; for admins."""
        caller = require(request, ConsoleRole.ADMIN)
        return ShownResolved(resolved=changes.resolve_quarantined(caller.name, places_of(asked.places), asked.why))
