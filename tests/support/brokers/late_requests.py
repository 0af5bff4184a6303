"""A TCP proxy that keeps one request back, so that its client sends it again, and gives it to the broker later."""

from __future__ import annotations

import asyncio
from typing import Final

from tests.support.brokers.frame_proxy import Connection, FrameProxy, api_and_correlation, correlation

__all__ = ["END_TXN", "PRODUCE", "TXN_OFFSET_COMMIT", "LateRequests"]

PRODUCE: Final = 0
END_TXN: Final = 26
TXN_OFFSET_COMMIT: Final = 28
SILENT_SECONDS: Final = 1.0
"""So long it takes a client to see that a connection is of no use; much less than any timeout of ours."""


class LateRequests(FrameProxy):
    """Such a proxy; use it as a context. What real networks do with a packet, it does with a request.

    The client of a kept request has its connection reset after `SILENT_SECONDS`.

    Args:
        port: to listen on.
        target: port of the broker.
    """

    def __init__(self, port: int, target: int) -> None:
        super().__init__(port, target)
        self._keep: int | None = None
        self._before: int | None = None
        self._kept: tuple[Connection, bytes] | None = None
        self._ended = False
        self._produced = asyncio.Event()
        self.was_late = False

    def keep_next(self, api_key: int, before: int) -> None:
        """Keep the next request of this kind; the other kind of the next transaction comes after it."""

        def arm() -> None:
            self._keep, self._before = api_key, before

        self._do(arm)

    def is_needed(self, one: Connection) -> bool:
        """Return whether one of its requests is kept."""
        return self._kept is not None and self._kept[0] is one

    async def pass_requests(self, one: Connection) -> None:
        """Pass them on, but for the kept one and the one that comes after it."""
        while True:
            frame = await one.request()
            key, number = api_and_correlation(frame)
            one.asked[number] = key
            if key == self._keep:
                self._keep, self._kept, self._ended = None, (one, frame), False
                self._produced.clear()
                await asyncio.sleep(SILENT_SECONDS)
                assert one.answers is not None
                one.answers.cancel()
                one.reset_client()
                return
            if key == self._before and self._kept is not None and self._ended:
                # What follows on this connection must pass: librdkafka sends offsets before it sends records.
                self._late = asyncio.create_task(self._give_late(*self._kept, one, frame))
                self._kept = None
            else:
                one.pass_request(frame)

    async def _give_late(self, kept: Connection, late: bytes, one: Connection, frame: bytes) -> None:
        await self._produced.wait()
        kept.pass_request(late)
        await kept.answer()
        kept.reset_broker()
        self.was_late = True
        one.pass_request(frame)

    async def pass_answers(self, one: Connection) -> None:
        """Pass them on, and note how far the transaction is."""
        while True:
            frame = await one.answer()
            one.pass_answer(frame)
            key = one.asked.pop(correlation(frame), None)
            if key == END_TXN:
                self._ended = True
            elif key == PRODUCE and self._ended:
                self._produced.set()
