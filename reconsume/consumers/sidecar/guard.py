"""In front of the API: who may call, how much at a time, how large; an ASGI middleware."""

from __future__ import annotations

import hmac
import json
import time
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any, Final

from reconsume.bridge.clock import Clock
from reconsume.consumers.sidecar.problems import PROBLEM_JSON, Problem

__all__ = ["App", "Guard", "Rate", "refusal_of_token", "send_problem"]

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]

_BEARER: Final = b"bearer "


OnAnswered = Callable[[str, int, float], None]
"""Called after each request: its route, the status that was answered, the seconds that it took."""


class _TooLarge(Exception):
    """The body goes beyond the limit while it is read."""


class Rate:
    """A token bucket that holds one second's worth. Pure; times in milliseconds.

    Args:
        per_second: calls.
    """

    def __init__(self, per_second: float) -> None:
        self._per_second = per_second
        self._full = max(1.0, per_second)
        self._left = self._full
        self._at_ms: float | None = None

    def wait_seconds(self, now_ms: float) -> float:
        """0 if a call may be made now, which it then counts; else when to come again."""
        passed = 0.0 if self._at_ms is None else max(0.0, now_ms - self._at_ms)
        self._at_ms = now_ms
        self._left = min(self._full, self._left + passed / 1000 * self._per_second)
        if self._left < 1:
            return (1 - self._left) / self._per_second
        self._left -= 1
        return 0.0


class Guard:
    """Answers 401, 413 and 429 before anything of the body is looked at.

    Args:
        app: what is guarded.
        token: that callers must show; None lets everybody in.
        body_bytes: the largest body.
        rate: None sets no rate.
        clock: gives the time in milliseconds.
        on_answered: told of each request.
    """

    def __init__(
        self,
        app: App,
        *,
        token: str | None,
        body_bytes: int,
        rate: Rate | None,
        clock: Clock,
        on_answered: OnAnswered,
    ) -> None:
        self._app = app
        self._token = token
        self._body_bytes = body_bytes
        self._rate = rate
        self._clock = clock
        self._on_answered = on_answered

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """One request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        begun = time.monotonic()
        status = 500

        async def counted(message: MutableMapping[str, Any]) -> None:
            nonlocal status
            status = message.get("status", status)
            await send(message)

        try:
            refusal = self._refusal(dict(scope["headers"]))
            if refusal is None:
                await self._limited(scope, receive, counted)
            else:
                await send_problem(refusal, counted)
        finally:
            route = getattr(scope.get("route"), "path", "other")
            self._on_answered(route, status, time.monotonic() - begun)

    async def _limited(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Let the application answer, unless the body is found to be too large while it is read."""
        read = 0
        too_large = False

        async def limited() -> MutableMapping[str, Any]:
            nonlocal read, too_large
            message = await receive()
            read += len(message.get("body", b""))
            if read > self._body_bytes:
                too_large = True
                raise _TooLarge
            return message

        async def unless_too_large(message: MutableMapping[str, Any]) -> None:
            # The framework makes an answer of its own out of any error of `receive`.
            if not too_large:
                await send(message)

        try:
            await self._app(scope, limited, unless_too_large)
        except _TooLarge:
            """Answered below."""
        if too_large:
            await send_problem(self._too_large(), send)

    def _refusal(self, headers: dict[bytes, bytes]) -> Problem | None:
        if self._token is not None and (refused := refusal_of_token(headers.get(b"authorization", b""), self._token)):
            return refused
        if self._rate is not None and (wait := self._rate.wait_seconds(self._clock())) > 0:
            return Problem(
                429,
                "too-many-requests",
                "Too many requests",
                "more requests per second than sidecar.limits.requests_per_second allows; come again, or send several "
                "records in one call",
                wait,
            )
        length = headers.get(b"content-length", b"")
        if length.isdigit() and int(length) > self._body_bytes:
            return self._too_large()
        return None

    def _too_large(self) -> Problem:
        return Problem(
            413,
            "body-too-large",
            "The body is too large",
            f"the body is larger than the {self._body_bytes} bytes that sidecar.limits.body_mib allows; send fewer "
            "records in one call, or send them by reference",
        )


def refusal_of_token(authorization: bytes, token: str) -> Problem | None:
    """None if the header carries the token; the time it takes tells nothing of how much of it was right."""
    shown = authorization[len(_BEARER) :] if authorization[: len(_BEARER)].lower() == _BEARER else b""
    if hmac.compare_digest(shown.strip(), token.encode()):
        return None
    return Problem(
        401,
        "unauthorized",
        "A token is needed",
        "the header `authorization: Bearer …` is missing or does not hold the token of sidecar.token_file",
    )


async def send_problem(problem: Problem, send: Send) -> None:
    """Answer with a problem, outside of any framework; the connection ends, what it still sends is not read."""
    body = json.dumps(problem.body).encode()
    headers = [(b"content-type", PROBLEM_JSON.encode()), (b"content-length", str(len(body)).encode())]
    headers += [(name.encode(), value.encode()) for name, value in problem.headers.items()]
    if problem.status == 401:  # noqa: PLR2004 - RFC 9110 wants the challenge with it
        headers.append((b"www-authenticate", b"Bearer"))
    headers.append((b"connection", b"close"))
    await send({"type": "http.response.start", "status": problem.status, "headers": headers})
    await send({"type": "http.response.body", "body": body})
