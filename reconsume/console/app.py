"""The application: routes, and errors as pages."""

from __future__ import annotations

from functools import partial
from typing import Final

from starlette.applications import Starlette
from starlette.convertors import StringConvertor, register_url_convertor
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Mount, Route

from reconsume.bridge.kafka.schema_registry import SchemaRegistry
from reconsume.bridge.process.clock import Clock, now_ms
from reconsume.console.api.api import PREFIX, fault_of, make_api
from reconsume.console.changes import Changes
from reconsume.console.cluster import ConsoleCluster
from reconsume.console.metrics import ConsoleMetrics
from reconsume.console.pages.actions import Actions
from reconsume.console.pages.edit_pages import EditPages
from reconsume.console.pages.forms import FormReader
from reconsume.console.pages.job_pages import JobPages
from reconsume.console.pages.pages import Pages
from reconsume.console.pages.quarantine_pages import QuarantinePages
from reconsume.console.pages.report_pages import REPORTS, ReportPages
from reconsume.console.pages.sign_in_pages import SignInPages
from reconsume.console.settings import ConsoleProcessSettings
from reconsume.console.sign_in.oidc import CALLBACK
from reconsume.console.sign_in.sign_in import BEGIN, END, SIGNED_OUT, SignIn
from reconsume.console.web.assets import htmx, icon, style
from reconsume.console.web.faults import Refusal, status_of
from reconsume.console.web.guard import API, ConsoleGuard
from reconsume.console.web.rendering import LIVE, RELOAD, Renderer
from reconsume.delay_levels.errors import KafkaNotReachable, ReconsumeError, SendBackFailed


class _Digits(StringConvertor):
    """Digits in a path, as text: starlette's own `int` raises `ValueError` beyond 4,300 of them."""

    regex = "[0-9]+"


register_url_convertor("digits", _Digits())
_TOLD: Final = frozenset({400, 401, 403, 404, 405, 413, 421, 500, 503})
"""Statuses with their own text."""
_NOT_NOW: Final = 503
_AGAIN_SECONDS: Final = "5"


def make_app(
    settings: ConsoleProcessSettings, cluster: ConsoleCluster, metrics: ConsoleMetrics, clock: Clock = now_ms
) -> ConsoleGuard:
    """Build the application: all pages behind the guard.

    Raises:
        IllegalSetting: a token, a key or the schema registry is unusable or missing.
    """
    console = settings.console
    sign_in = SignIn(console, clock)
    renderer = Renderer(settings, clock, sign_in)
    registry = console.schema_registry
    schemas = None if registry is None else SchemaRegistry(registry.get_secret_value())
    pages, forms = Pages(settings, cluster, renderer, clock, schemas), FormReader(sign_in)
    changes = Changes(cluster)
    actions, edits = Actions(console, changes, renderer), EditPages(console, cluster, renderer)
    jobs = JobPages(cluster, changes, renderer, clock, console)
    reports = ReportPages(console.reports_folder, renderer)
    quarantine = QuarantinePages(cluster, changes, renderer)
    error_page = partial(_error_page, renderer)
    app = Starlette(
        routes=[
            Mount(PREFIX, make_api(settings, cluster, changes, clock, schemas)),
            *_routes(pages, actions, edits, forms),
            *_job_routes(jobs, quarantine, forms),
            Route(REPORTS, reports.reports),
            Route(REPORTS + "/{name}", reports.report),
            *_sign_in_routes(SignInPages(sign_in, renderer, forms)),
        ],
        exception_handlers=dict.fromkeys((Refusal, ReconsumeError, HTTPException, Exception), error_page),
    )
    app.router.redirect_slashes = False

    def count(page: str, status: int, seconds: float) -> None:
        metrics.requests.labels(page, str(status)).inc()
        metrics.seconds.labels(page).observe(seconds)

    return ConsoleGuard(app, console, sign_in, error_page, count)


def _routes(pages: Pages, actions: Actions, edits: EditPages, forms: FormReader) -> list[Route]:
    group = "/groups/{group}"
    letter = group + "/dead-letters/{partition:digits}/{offset:digits}"
    return [
        Route("/", pages.overview),
        Route("/style.css", style),
        Route("/icon.svg", icon),
        Route("/htmx.js", htmx),
        Route(group, pages.group),
        Route(group + "/dead-letters", pages.dead_letters),
        Route(letter, pages.record),
        Route(letter + "/life", pages.life),
        Route(letter + "/edit", edits.edit),
        Route(group + "/waits", pages.waits),
        Route(group + "/hours", pages.hours),
        Route(group + "/resolve", forms.then(actions.resolve), methods=["POST"]),
        Route(group + "/retries", forms.then(actions.pause), methods=["POST"]),
    ]


def _job_routes(jobs: JobPages, quarantine: QuarantinePages, forms: FormReader) -> list[Route]:
    return [
        Route("/jobs", jobs.jobs),
        Route("/jobs/{name}", jobs.job),
        Route("/jobs/{name}/wish", forms.then(jobs.wish), methods=["POST"]),
        Route("/groups/{group}/job", jobs.plan),
        Route("/groups/{group}/job", forms.then(jobs.plan_chosen), methods=["POST"]),
        Route("/groups/{group}/jobs", forms.then(jobs.create), methods=["POST"]),
        Route("/quarantine", quarantine.quarantine),
        Route("/quarantine/release", forms.then(quarantine.release), methods=["POST"]),
        Route("/quarantine/resolve", forms.then(quarantine.resolve), methods=["POST"]),
    ]


def _sign_in_routes(pages: SignInPages) -> list[Route]:
    return [
        Route(BEGIN, pages.begin),
        Route(CALLBACK, pages.finish),
        Route(END, pages.end, methods=["POST"]),
        Route(SIGNED_OUT, pages.signed_out),
    ]


def _error_page(renderer: Renderer, request: Request, error: Exception) -> Response:
    """Return a page with what failed, where, why and the way out, without a traceback."""
    if request.scope["path"].startswith(API):
        return fault_of(request, error)
    status, detail, headers = _told(error)
    is_form = request.method == "POST"
    text = _text(error, status, request.method, request.url.path)
    content = {"status": status, "text": text, "detail": detail, "is_form": is_form}
    content["again_seconds"] = _AGAIN_SECONDS if status == _NOT_NOW and not is_form else None
    response = renderer.page(request, "error.html", content, status, "/" if is_form else None)
    response.headers.update(headers)
    if request.headers.get("hx-target") == LIVE:
        # Without it the old figures would stay: htmx drops errors. Other parts of a page offer a link.
        response.headers.update(RELOAD)
    return response


def _text(error: Exception, status: int, method: str, path: str) -> str:
    """Return the name of the page's first sentence."""
    if status == _NOT_NOW and method == "POST" and path.endswith("/jobs"):
        return "error_job"
    if status == _NOT_NOW and isinstance(error, Refusal):
        return "error_ending"
    if status == _NOT_NOW and not isinstance(error, KafkaNotReachable | SendBackFailed):
        return "error_busy"  # Kafka has answered: another process was quicker, or the index is damaged
    return f"error_{status if status in _TOLD else 500}"


def _told(error: Exception) -> tuple[int, str, dict[str, str]]:
    """Return status, text and headers of an error."""
    if isinstance(error, Refusal):
        return error.status, error.detail, {}
    if isinstance(error, ReconsumeError):
        status = status_of(error)
        return status, str(error), {"retry-after": _AGAIN_SECONDS} if status == _NOT_NOW else {}
    if isinstance(error, HTTPException):
        return error.status_code, str(error.detail), dict(error.headers or {})
    # The server logs it with its traceback.
    return 500, type(error).__name__, {}
