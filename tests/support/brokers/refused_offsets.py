"""A TCP proxy that makes a broker deny that it is a group's coordinator when it is asked for committed offsets."""

from __future__ import annotations

import struct
from typing import Final

from tests.support.brokers.frame_proxy import Connection, FrameProxy, api_and_correlation, correlation

__all__ = ["RefusedOffsets"]

_OFFSET_FETCH: Final = 9
_NOT_COORDINATOR: Final = 16
_VERSION: Final = 9
"""What librdkafka 2.16 asks for. Such an answer ends with the error of the only group and two empty lists of tags."""
_ERROR: Final = slice(-4, -2)


class RefusedOffsets(FrameProxy):
    """Such a proxy; use it as a context.

    Args:
        port: to listen on.
        target: port of the broker.

    Attributes:
        refuses: whether answers get the error.
    """

    def __init__(self, port: int, target: int) -> None:
        super().__init__(port, target)
        self.refuses = False

    async def pass_requests(self, one: Connection) -> None:
        """Pass them on, and note those for committed offsets."""
        while True:
            frame = await one.request()
            key, number = api_and_correlation(frame)
            if key == _OFFSET_FETCH:
                one.asked[number] = struct.unpack_from(">h", frame, 6)[0]
            one.pass_request(frame)

    async def pass_answers(self, one: Connection) -> None:
        """Pass them on, with the error."""
        while True:
            frame = await one.answer()
            version = one.asked.pop(correlation(frame), None)
            if version is not None and self.refuses:
                assert version == _VERSION, f"the error stands elsewhere in version {version}"
                frame = frame[: _ERROR.start] + struct.pack(">h", _NOT_COORDINATOR) + frame[_ERROR.stop :]
            one.pass_answer(frame)
