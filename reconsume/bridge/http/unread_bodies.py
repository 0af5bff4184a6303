"""ASGI middleware that drops the parts of bodies that an application does not read."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, MutableMapping
from contextlib import suppress
from typing import Any

_Message = MutableMapping[str, Any]
_Receive = Callable[[], Awaitable[_Message]]
_Send = Callable[[_Message], Awaitable[None]]


class UnreadBodies:
    """Receives the rest of a body before the answer begins, and keeps nothing of it.

    If a connection is closed while its client sends, the kernel resets it, and the client reads no answer. A client
    with `Expect: 100-continue` that was not told to send gets its answer at once. The server's time for a body bounds
    the rest, and a cancelled request receives no more of it.

    Args:
        app: the application.
    """

    def __init__(self, app: Any) -> None:
        self._app = app

    async def __call__(self, scope: _Message, receive: _Receive, send: _Send) -> None:
        """Handle one request."""
        is_coming = all(name != b"expect" for name, _ in scope["headers"])

        async def received() -> _Message:
            nonlocal is_coming
            message = await receive()
            is_coming = message.get("more_body", False)
            return message

        async def answer(message: _Message) -> None:
            if message["type"] == "http.response.start":
                with suppress(asyncio.CancelledError):  # the server ends: it is time for the answer
                    while is_coming and not _is_cancelled():
                        await received()
            await send(message)

        await self._app(scope, received, answer)


def _is_cancelled() -> bool:
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0
