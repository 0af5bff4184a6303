"""A TCP proxy that lets one of a client's two requests for the offsets of a partition fail."""

from __future__ import annotations

import struct
from typing import Final

from tests.support.brokers.frame_proxy import Connection, FrameProxy, api_and_correlation, correlation

__all__ = ["FailedWatermarks"]

_LIST_OFFSETS: Final = 2
_STORAGE_ERROR: Final = 56
_NAME: Final = 4 + 4 + 1 + 4 + 1
"""Where an answer has the first topic's name: after size, correlation id, tags, throttle time, number of topics."""


class FailedWatermarks(FrameProxy):
    """Such a proxy; use it as a context.

    The broker's answers to ListOffsets reach the client two at a time, as they do while a broker has more to do.

    Args:
        port: to listen on.
        target: port of the broker.
    """

    def __init__(self, port: int, target: int) -> None:
        super().__init__(port, target)
        self._failing: int | None = None
        self._code = _STORAGE_ERROR
        self.failed = 0

    def fail(self, timestamp: int | None, code: int = _STORAGE_ERROR) -> None:
        """From now on each request for this timestamp gets an error; with None no request."""
        self._failing, self._code = timestamp, code

    async def pass_requests(self, one: Connection) -> None:
        """Pass them on, and note those for offsets."""
        while True:
            frame = await one.request()
            key, number = api_and_correlation(frame)
            if key == _LIST_OFFSETS:
                one.asked[number] = frame
            one.pass_request(frame)

    async def pass_answers(self, one: Connection) -> None:
        """Pass them on, with the error, and those about offsets together."""
        held = b""
        while True:
            frame = await one.answer()
            if (request := one.asked.pop(correlation(frame), None)) is None:
                one.pass_answer(frame)
                continue
            held += self._answer(request, frame)
            if not one.asked:
                one.pass_answer(held)
                held = b""

    def _answer(self, request: bytes, answer: bytes) -> bytes:
        timestamp = self._failing
        if timestamp is None or struct.pack(">q", timestamp) not in request:
            return answer
        self.failed += 1
        error = _NAME + answer[_NAME] + 1 + 4  # after one partition and its number
        return answer[:error] + struct.pack(">h", self._code) + answer[error + 2 :]
