"""The application: routes, and errors as pages."""

from __future__ import annotations

from functools import partial
from typing import Final

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from reconsume.bridge.process.clock import Clock, now_ms
from reconsume.console.cluster import ConsoleCluster
from reconsume.console.metrics import ConsoleMetrics
from reconsume.console.pages.pages import Pages, icon, style
from reconsume.console.settings import ConsoleProcessSettings
from reconsume.console.web.checks import token_of_forms
from reconsume.console.web.faults import Refusal, status_of
from reconsume.console.web.guard import ConsoleGuard
from reconsume.console.web.rendering import Renderer
from reconsume.delay_levels.errors import ReconsumeError

_TOLD: Final = frozenset({400, 401, 403, 404, 405, 413, 421, 500, 503})
"""Statuses with a text of their own."""
_NOT_NOW: Final = 503
_AGAIN_SECONDS: Final = "5"


def make_app(
    settings: ConsoleProcessSettings, cluster: ConsoleCluster, metrics: ConsoleMetrics, clock: Clock = now_ms
) -> ConsoleGuard:
    """All pages, with the guard before them.

    Raises:
        IllegalSetting: the token cannot be used, or is missing.
    """
    console = settings.console
    token = console.read_token()
    of_forms = token_of_forms(token)
    renderer = Renderer(settings, clock, of_forms)
    pages = Pages(settings, cluster, renderer, clock, of_forms, metrics.resent)
    error_page = partial(_error_page, renderer)
    app = Starlette(
        routes=_routes(pages),
        exception_handlers=dict.fromkeys((Refusal, ReconsumeError, HTTPException, Exception), error_page),
    )
    app.router.redirect_slashes = False

    def count(page: str, status: int, seconds: float) -> None:
        metrics.requests.labels(page, str(status)).inc()
        metrics.seconds.labels(page).observe(seconds)

    return ConsoleGuard(app, console, token, error_page, count)


def _routes(pages: Pages) -> list[Route]:
    group = "/groups/{group}"
    return [
        Route("/", pages.overview),
        Route("/style.css", style),
        Route("/icon.svg", icon),
        Route(group, pages.group),
        Route(group + "/dead-letters", pages.dead_letters),
        Route(group + "/dead-letters/{partition:int}/{offset:int}", pages.record),
        Route(group + "/resend", pages.resend_plan, methods=["POST"]),
        Route(group + "/resend/run", pages.resend_run, methods=["POST"]),
        Route(group + "/resolve", pages.resolve, methods=["POST"]),
    ]


def _error_page(renderer: Renderer, request: Request, error: Exception) -> Response:
    """Return a page with what failed, where, why and the way out; never a traceback."""
    status, detail, headers = _told(error)
    content = {"status": status, "text": _text(error, status, request.url.path), "detail": detail}
    here = "/" if request.method == "POST" else None
    response = renderer.page(request, "error.html", content, status, here)
    response.headers.update(headers)
    return response


def _text(error: Exception, status: int, path: str) -> str:
    """The name of the sentence on top."""
    if status == _NOT_NOW and path.endswith("/resend/run"):
        return "error_resend"
    if status == _NOT_NOW and isinstance(error, Refusal):
        return "error_ending"
    return f"error_{status if status in _TOLD else 500}"


def _told(error: Exception) -> tuple[int, str, dict[str, str]]:
    """Status, words and headers."""
    if isinstance(error, Refusal):
        return error.status, error.detail, {}
    if isinstance(error, ReconsumeError):
        status = status_of(error)
        return status, str(error), {"retry-after": _AGAIN_SECONDS} if status == _NOT_NOW else {}
    if isinstance(error, HTTPException):
        return error.status_code, str(error.detail), dict(error.headers or {})
    # The server logs it with its traceback.
    return 500, type(error).__name__, {}
