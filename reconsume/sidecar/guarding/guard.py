"""ASGI middleware in front of the API: checks tokens, rates, sizes and memory."""

from __future__ import annotations

import asyncio
import time
from typing import Final
from urllib.parse import unquote, unquote_to_bytes

from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from reconsume.bridge.process.clock import Clock
from reconsume.sidecar.guarding.callers import Caller, Callers, unauthorized
from reconsume.sidecar.guarding.shares import BODY_TIMES, Held, Shares, group_owner, no_room
from reconsume.sidecar.metrics import SidecarMetrics
from reconsume.sidecar.problems import PROBLEM_JSON, Problem

_GROUPS: Final = "/v1/groups/"
_SLASH: Final = "\ud800"
"""Stands in a path for a slash that was `%2F` in the request; half of a surrogate pair, which no request can have."""

_ENDING: Final = Problem(
    "kafka-away", "the sidecar ends before Kafka has answered, and may still store the record; make the same call again"
)


def marking_slashes(scope: Scope) -> Scope:
    """Return a request whose names, such as the group `a/b`, have marks for slashes.

    Servers decode `%2F` before they look up routes. Their own scope stays as it is, because they encode it for logs.
    """
    raw = scope.get("raw_path") or b""
    if b"%2f" not in raw.lower():
        return scope
    path = "/".join(unquote(part).replace("/", _SLASH) for part in raw.decode("latin-1").split("/"))
    return {**scope, "path": path}


def with_slashes(name: str) -> str:
    """Return a name from a path with its slashes restored."""
    return name.replace(_SLASH, "/")


class _Refused(BaseException):
    """Carries a refusal; not an Exception, because frameworks turn exceptions into answers of their own."""

    def __init__(self, problem: Problem) -> None:
        super().__init__(problem)
        self.problem = problem


class Rate:
    """A token bucket with a capacity of one second; times in milliseconds.

    Args:
        per_second: calls per second.
    """

    def __init__(self, per_second: float) -> None:
        self._per_second = per_second
        self._full = max(1.0, per_second)
        self._left = self._full
        self._at_ms: float | None = None

    def wait_seconds(self, now_ms: float) -> float:
        """Return 0 and count the call if it may be made now; else return the seconds to wait."""
        passed = 0.0 if self._at_ms is None else max(0.0, now_ms - self._at_ms)
        self._at_ms = now_ms
        self._left = min(self._full, self._left + passed / 1000 * self._per_second)
        if self._left < 1:
            return (1 - self._left) / self._per_second
        self._left -= 1
        return 0.0


class ApiGuard:
    """Answers 401, 413 and 429, and 503 if memory is short, before the body is parsed; 503 to calls cut off at the end.

    Args:
        app: the guarded application.
        callers: those who may call.
        body_bytes: the largest body.
        memory: the memory that request bodies reserve.
        rate: None for no limit.
        clock: returns milliseconds.
        metrics: counts requests.
    """

    def __init__(
        self,
        app: ASGIApp,
        *,
        callers: Callers,
        body_bytes: int,
        memory: Shares,
        rate: Rate | None,
        clock: Clock,
        metrics: SidecarMetrics,
    ) -> None:
        self._app = app
        self._callers = callers
        self._body_bytes = body_bytes
        self._memory = memory
        self._rate = rate
        self._clock = clock
        self._metrics = metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one request."""
        scope = marking_slashes(scope)
        begun = time.monotonic()
        status: int | None = None

        async def counted(message: Message) -> None:
            nonlocal status
            status = message.get("status", status)
            await send(message)

        try:
            declared = self._let_in(scope)
            await self._serve(scope, receive, counted, declared)
        except _Refused as refused:
            response = problem_response(refused.problem)
            response.headers["connection"] = "close"  # a client that asked first sends no body
            await response(scope, receive, counted)
        except asyncio.CancelledError:
            if status is not None:
                raise
            # The process ends, and the server waits no longer.
            response = problem_response(_ENDING)
            response.headers["connection"] = "close"
            await response(scope, receive, counted)
        finally:
            route = getattr(scope.get("route"), "path", "other")
            self._metrics.requests.labels(route, str(status or 500)).inc()
            self._metrics.seconds.labels(route).observe(time.monotonic() - begun)

    async def _serve(self, scope: Scope, receive: Receive, send: Send, declared: int) -> None:
        held = Held(self._memory, _owner(scope))
        try:
            await self._app(scope, self._limited(receive, held, declared), send)
        finally:
            held.give_back()

    def _let_in(self, scope: Scope) -> int:
        """Find the caller; return the declared size of the body."""
        headers = dict(scope["headers"])
        _check_path(scope.get("raw_path") or b"")
        scope["caller"] = self._callers.of(headers.get(b"authorization", b""))
        if scope["caller"] is None:
            raise _Refused(unauthorized())
        if self._rate is not None and (wait := self._rate.wait_seconds(self._clock())) > 0:
            raise _Refused(
                Problem(
                    "too-many-requests",
                    "more requests per second than sidecar.limits.requests_per_second allows; call later, or send "
                    "several records in one call",
                    retry_after=wait,
                )
            )
        length = headers.get(b"content-length", b"")
        declared = int(length[:20]) if length.isdigit() else 0  # int() refuses over 4,300 digits, even zeros
        self._check_size(declared)
        return declared

    def _limited(self, receive: Receive, held: Held, declared: int) -> Receive:
        """Return a receiver that limits the body's size and its share of memory."""
        if not held.take(BODY_TIMES * declared):
            raise _Refused(no_room(held.owner))
        read = 0

        async def limited() -> Message:
            nonlocal read
            message = await receive()
            count = len(message.get("body", b""))
            read += count
            self._check_size(read)
            if read > declared and not held.take(BODY_TIMES * count):
                raise _Refused(no_room(held.owner))
            return message

        return limited

    def _check_size(self, size: int) -> None:
        if size > self._body_bytes:
            raise _Refused(
                Problem(
                    "body-too-large",
                    f"the body is larger than the {self._body_bytes} bytes that sidecar.limits.body_mib allows; send "
                    "fewer records in one call, or send them by reference",
                )
            )


def _check_path(raw: bytes) -> None:
    """Refuse a path that is not UTF-8: servers replace its bytes, so different groups would become one."""
    try:
        unquote_to_bytes(raw).decode()
    except UnicodeDecodeError:
        shown = raw[:200].decode("latin-1")
        raise _Refused(
            Problem("illegal-name", f"path {shown!r} is not UTF-8; encode names in UTF-8, then as %XX")
        ) from None


def _owner(scope: Scope) -> str:
    """Return the owner of a request's memory: the group in its path, or the caller's messages.

    Groups that one pattern allows are one owner: a caller may make up any number of them.

    Raises:
        _Refused: the caller's token does not allow the group.
    """
    caller: Caller = scope["caller"]
    path = str(scope["path"])
    below = path.removeprefix(_GROUPS)
    if below == path:
        return f"the messages of {caller.name}"
    try:
        return group_owner(caller.require_group(with_slashes(below.partition("/")[0])))
    except Problem as problem:
        raise _Refused(problem) from None


def problem_response(problem: Problem) -> JSONResponse:
    """Return the HTTP response for a problem."""
    return JSONResponse(problem.body, problem.status, problem.headers, media_type=PROBLEM_JSON)
