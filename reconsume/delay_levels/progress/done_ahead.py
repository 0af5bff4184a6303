"""Records above a committed offset that are done already, as text for the offset's metadata.

The text is `done1:` and a bitmap in base64; bit i of byte n stands for the offset 8 n + i above the committed one.
"""

from __future__ import annotations

import base64
from collections import deque
from collections.abc import Iterable
from typing import Final

from reconsume.delay_levels.errors import MalformedProperty

LONGEST_SPAN: Final = 16_000
"""The longest distance from the first unfinished offset to a done one: 2,674 of the 4,096 bytes that Kafka allows."""

_VERSION: Final = "done1:"


def encode_done(offset: int, done: Iterable[int]) -> str:
    """Return the metadata for a committed offset; empty if nothing above it is done.

    Raises:
        ValueError: a done offset is below the committed one, or `LONGEST_SPAN` or more above it.
    """
    bitmap = bytearray()
    for one in done:
        place = one - offset
        if not 0 <= place < LONGEST_SPAN:
            raise ValueError(f"offset {one} must be from {offset} to {offset + LONGEST_SPAN - 1}")
        byte, bit = divmod(place, 8)
        if byte >= len(bitmap):
            bitmap.extend(bytes(byte + 1 - len(bitmap)))
        bitmap[byte] |= 1 << bit
    return _VERSION + base64.b64encode(bitmap).decode() if bitmap else ""


def decode_done(offset: int, metadata: str | None) -> frozenset[int]:
    """Return the offsets that `encode_done` wrote; none for an empty text, which other tools write.

    Raises:
        MalformedProperty: the text is something else.
    """
    if not metadata:
        return frozenset()
    try:
        version, encoded = metadata[: len(_VERSION)], metadata[len(_VERSION) :]
        bitmap = base64.b64decode(encoded if version == _VERSION else "?", validate=True)
    except ValueError:  # invalid base64, or not ASCII
        raise MalformedProperty(
            f"the metadata of offset {offset} is not ours: {metadata[:40]!r}; it must begin with {_VERSION}"
        ) from None
    if len(bitmap) * 8 > LONGEST_SPAN:
        raise MalformedProperty(f"the metadata of offset {offset} is not ours: it reaches {len(bitmap) * 8:,} above it")
    return frozenset(offset + 8 * n + bit for n, byte in enumerate(bitmap) for bit in range(8) if byte >> bit & 1)


class DoneAhead:
    """The records of a partition in the order of their offsets, and which of them are done.

    Guarantees:
        1. The offset to commit is the smallest that is not done, or one past the last that was read.
        2. A consumer that starts at that offset with its metadata neither skips nor repeats a record. Both must come
           from one fetch, or they do not fit together.
    Tests: tests/unit/delay_levels/progress/test_done_ahead.py, tests/integration/consumers/test_delay_producer.py.
    """

    __slots__ = ("_done", "_next", "_order")

    def __init__(self, done: Iterable[int] = ()) -> None:
        self._done = set(done)
        self._order: deque[int] = deque()
        self._next = 0

    def read(self, offset: int) -> bool:
        """Note the record that was read next; False if it is done already."""
        self._next = offset + 1
        if offset in self._done and not self._order:
            self._done.discard(offset)
            return False
        self._order.append(offset)
        return offset not in self._done

    def in_reach(self, offset: int) -> bool:
        """Return whether this record may be done now, before those in front of it."""
        return not self._order or offset - self._order[0] < LONGEST_SPAN

    def after(self, offsets: Iterable[int]) -> tuple[int, str]:
        """Return the offset to commit and its metadata, as if these offsets were done as well."""
        done = self._done.union(offsets)
        safe = next((offset for offset in self._order if offset not in done), self._next)
        return safe, encode_done(safe, (offset for offset in done if offset >= safe))

    def finish(self, offsets: Iterable[int]) -> None:
        """Note that these are done and committed."""
        self._done.update(offsets)
        while self._order and self._order[0] in self._done:
            self._done.discard(self._order.popleft())
