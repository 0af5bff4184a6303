"""ASGI middleware in front of the pages: sign-in, size limits, security headers."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Final
from urllib.parse import urlencode

from starlette.datastructures import MutableHeaders
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from reconsume.bridge.http.listening import is_loopback
from reconsume.console.settings import ConsoleSettings
from reconsume.console.sign_in.access import ConsoleCaller, ConsoleRole
from reconsume.console.sign_in.sign_in import BEGIN, END, OPEN_PATHS, SIGNED_OUT, SignIn
from reconsume.console.web.checks import host_is_allowed, is_from_another_site
from reconsume.console.web.faults import Refusal
from reconsume.console.web.rendering import RELOAD

BODY_BYTES: Final = 262_144
_OPEN_PATHS: Final = frozenset({"/style.css", "/icon.svg", "/htmx.js", SIGNED_OUT}) | OPEN_PATHS
"""Paths that people need to sign in."""
API: Final = "/api/"
_HEADERS: Final = {
    "content-security-policy": "default-src 'none'; script-src 'self'; connect-src 'self'; style-src 'self'; "
    "img-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'",
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
}
_CHALLENGE: Final = {"www-authenticate": 'Basic realm="reconsume console", charset="UTF-8"'}
_UPDATE: Final = "hx-request"
"""The header of requests of htmx, for a part of a page."""
_UNAUTHORIZED: Final = 401
_NO_SIGN_IN: Final = (
    "no token, proxy or session tells who asks: the token is the password of any user name, or a bearer token"
)
_SESSION_ENDED: Final = (
    "the session has ended: sign in in another tab, then reload this page, and the browser sends the form again"
)
_ONLY_LOOK: Final = frozenset({"GET", "HEAD", "OPTIONS"})


class ConsoleGuard:
    """Refuses requests before they are read, and sets the headers of every answer.

    Args:
        app: the pages; they get paths as sent, with escapes.
        settings: the settings of the console.
        sign_in: identifies the caller.
        refuse: makes the page with the reason.
        on_answered: called for each request with its page, status and seconds.
    """

    def __init__(
        self,
        app: ASGIApp,
        settings: ConsoleSettings,
        sign_in: SignIn,
        refuse: Callable[[Request, Refusal], Response],
        on_answered: Callable[[str, int, float], None],
    ) -> None:
        self._app = app
        self._settings = settings
        self._sign_in = sign_in
        self._refuse = refuse
        self._on_answered = on_answered
        self._is_of_this_machine = is_loopback(settings.listen.host)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one request."""
        if scope["type"] != "http":
            return
        # A group may be named `a/b`: its slash stays `%2F` until the route is found.
        scope["path"] = scope["raw_path"].decode("ascii", errors="replace")
        begun, status, has_begun = time.monotonic(), 500, False

        async def with_headers(message: Message) -> None:
            nonlocal status, has_begun
            if message["type"] == "http.response.start":
                status, has_begun = message["status"], True
                headers = MutableHeaders(scope=message)
                for name, value in (*_HEADERS.items(), ("cache-control", "no-store")):
                    headers.setdefault(name, value)
            await send(message)

        request = Request(scope)
        try:
            refusal = self._refusal(request)
            if refusal is not None and refusal.status == _UNAUTHORIZED and self._can_sign_in(request):
                target = request.url.path + (f"?{request.url.query}" if request.url.query else "")
                answer = RedirectResponse(f"{BEGIN}?{urlencode({'next': target})}", 303)
                await answer(scope, receive, with_headers)
            elif refusal is None:
                await self._app(scope, _Limited(receive).receive, with_headers)
            else:
                response = self._refuse(request, refusal)
                if refusal.status == _UNAUTHORIZED:
                    # A page that updates itself reloads, and the browser begins a sign-in.
                    response.headers.update(RELOAD if self._sign_in.has_sessions else _CHALLENGE)
                response.headers["connection"] = "close"
                await response(scope, receive, with_headers)
        except asyncio.CancelledError:
            # At the end of the process the thread that asks Kafka ends too.
            if not has_begun:
                await self._refuse(request, Refusal(503, "the process was told to end"))(scope, receive, with_headers)
        finally:
            page = getattr(scope.get("endpoint"), "__name__", "other")
            self._on_answered(page, status, time.monotonic() - begun)

    def _refusal(self, request: Request) -> Refusal | None:
        host = request.headers.get("host", "")
        if self._is_of_this_machine and not host_is_allowed(host, self._settings.allowed_hosts):
            return Refusal(
                421,
                f"this console listens on {self._settings.listen.host} and was asked for as {host[:80]!r}; ask for "
                "127.0.0.1 or localhost, or name the proxy's host in the setting console.allowed_hosts",
            )
        if request.scope["path"] in _OPEN_PATHS:
            return None
        caller = self._sign_in.caller_of(request)
        if caller is None:
            return Refusal(_UNAUTHORIZED, _SESSION_ENDED if self._is_of_browser(request, "POST") else _NO_SIGN_IN)
        request.scope["caller"] = caller
        if caller.highest_role is None and request.scope["path"] != END:
            return Refusal(403, f"{caller.name} has no role in this console: see the setting console.access")
        return self._refusal_of_form(request) if request.method not in _ONLY_LOOK else None

    def _can_sign_in(self, request: Request) -> bool:
        """Return whether a browser can be redirected to a provider; an update of a part of a page cannot."""
        return self._is_of_browser(request, "GET") and _UPDATE not in request.headers

    def _is_of_browser(self, request: Request, method: str) -> bool:
        """Return whether a browser asks for a page, or sends a form, and may sign in at a provider."""
        is_page = request.method == method and not request.scope["path"].startswith(API)
        return self._sign_in.has_sessions and is_page and "authorization" not in request.headers

    def _refusal_of_form(self, request: Request) -> Refusal | None:
        headers = request.headers
        if is_from_another_site(headers.get("sec-fetch-site"), headers.get("origin"), headers.get("host", "")):
            return Refusal(
                403,
                "the form was sent by a page of another site, and only this console's own pages may send forms; behind "
                "a proxy, have it pass on the header `host` as the browser sent it",
            )
        if self._settings.read_only and request.scope["path"] != END:
            return Refusal(403, "this console is read-only: use reconsume dlq resend, or start one without --read-only")
        return None


class _Limited:
    """The body of a request, up to a limit."""

    def __init__(self, receive: Receive) -> None:
        self._receive = receive
        self._read = 0

    async def receive(self) -> Message:
        """Raise `Refusal` beyond the limit."""
        message = await self._receive()
        self._read += len(message.get("body", b""))
        if self._read > BODY_BYTES:
            raise Refusal(413, f"the form has more than {BODY_BYTES:,} bytes: choose fewer dead letters")
        return message


def caller_of(request: Request) -> ConsoleCaller:
    """Return the caller, whom the guard has noted."""
    caller: ConsoleCaller = request.scope["caller"]
    return caller


def require(request: Request, role: ConsoleRole, group: str | None = None) -> ConsoleCaller:
    """Return the caller, if they have a role.

    Args:
        request: the request.
        role: the required role.
        group: the group; None for the installation as a whole.

    Raises:
        Refusal: the caller does not have the role.
    """
    caller = caller_of(request)
    if not caller.may(role, group):
        where = "all groups" if group is None else f"group {group!r}"
        raise Refusal(
            403,
            f"{caller.name} needs the role {role.name.lower()} for {where}: see the setting console.access",
        )
    return caller


def require_for_job(request: Request, group: str, target: str) -> ConsoleCaller:
    """Return the caller, if they may create such a job; all groups read an origin topic.

    Args:
        request: the request.
        group: the group of the dead letters.
        target: `retry` or `origin`.

    Raises:
        Refusal: the caller is not an operator of the group; for `origin`, of all groups.
    """
    return require(request, ConsoleRole.OPERATOR, None if target == "origin" else group)
