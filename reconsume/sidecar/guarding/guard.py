"""In front of the API: who may call, how much at a time, how large; an ASGI middleware."""

from __future__ import annotations

import json
import time
from collections.abc import Awaitable, Callable, Mapping, MutableMapping
from typing import Any

from reconsume.bridge.process.clock import Clock
from reconsume.sidecar.guarding.callers import Callers, unauthorized
from reconsume.sidecar.guarding.memory import BODY_TIMES, Held, Memory, no_room
from reconsume.sidecar.problems import PROBLEM_JSON, Problem

__all__ = ["ApiGuard", "App", "Rate", "send_problem"]

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]

OnAnswered = Callable[[str, int, float], None]
"""Called after each request: its route, the status that was answered, the seconds that it took."""


class _Refused(Exception):
    """The body goes beyond a limit while it is read."""


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


class ApiGuard:
    """Answers 401, 413, 429, and 503 for want of memory, before anything of the body is looked at.

    Args:
        app: what is guarded.
        callers: those who may call.
        body_bytes: the largest body.
        memory: that bodies in hand take from.
        rate: None sets no rate.
        clock: gives the time in milliseconds.
        on_answered: told of each request.
    """

    def __init__(
        self,
        app: App,
        *,
        callers: Callers,
        body_bytes: int,
        memory: Memory,
        rate: Rate | None,
        clock: Clock,
        on_answered: OnAnswered,
    ) -> None:
        self._app = app
        self._callers = callers
        self._body_bytes = body_bytes
        self._memory = memory
        self._rate = rate
        self._clock = clock
        self._on_answered = on_answered

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """One request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        begun, held = time.monotonic(), self._memory.of_request(_owner(scope))
        status = 500

        async def counted(message: MutableMapping[str, Any]) -> None:
            nonlocal status
            status = message.get("status", status)
            await send(message)

        try:
            headers = dict(scope["headers"])
            scope["caller"] = self._callers.of(headers.get(b"authorization", b""))
            refusal = unauthorized() if scope["caller"] is None else self._refusal(headers)
            if refusal is None:
                await self._limited(scope, receive, counted, held, _declared(headers))
            else:
                await send_problem(refusal, counted)
        finally:
            held.give_back()
            route = getattr(scope.get("route"), "path", "other")
            self._on_answered(route, status, time.monotonic() - begun)

    async def _limited(self, scope: Scope, receive: Receive, send: Send, held: Held, declared: int) -> None:
        """Let the application answer, unless the body is found to be too large while it is read."""
        if not held.take(BODY_TIMES * declared):
            await self._answer_no_room(scope, receive, send)
            return
        read = 0
        refused: Problem | None = None

        async def limited() -> MutableMapping[str, Any]:
            nonlocal read, refused
            message = await receive()
            count = len(message.get("body", b""))
            read += count
            if read > self._body_bytes:
                refused = self._too_large()
            elif read > declared and not held.take(BODY_TIMES * count):
                refused = no_room(_owner(scope))
            if refused is not None:
                raise _Refused
            return message

        async def unless_refused(message: MutableMapping[str, Any]) -> None:
            # The framework makes an answer of its own out of any error of `receive`.
            if refused is None:
                await send(message)

        try:
            await self._app(scope, limited, unless_refused)
        except _Refused:
            """Answered below."""
        if refused is not None:
            await send_problem(refused, send)

    async def _answer_no_room(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Let the body pass first: of a connection that is closed while they send, clients read no answer."""
        while (await receive()).get("more_body", False):
            """It is not kept."""
        await send_problem(no_room(_owner(scope)), send)

    def _refusal(self, headers: dict[bytes, bytes]) -> Problem | None:
        if self._rate is not None and (wait := self._rate.wait_seconds(self._clock())) > 0:
            return Problem(
                429,
                "too-many-requests",
                "Too many requests",
                "more requests per second than sidecar.limits.requests_per_second allows; come again, or send several "
                "records in one call",
                wait,
            )
        if _declared(headers) > self._body_bytes:
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


def _declared(headers: Mapping[bytes, bytes]) -> int:
    """The size of the body, as far as it is known beforehand."""
    length = headers.get(b"content-length", b"")
    return int(length) if length.isdigit() else 0


def _owner(scope: Scope) -> str:
    """Whose share of the memory a request takes: that of the group in its path, or of all messages."""
    path = str(scope["path"])
    group = path.removeprefix("/v1/groups/").removesuffix("/send-back")
    return path if group == path else f"group {group}"


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
