"""A few records far above a committed offset that are done already, as text for the offset's metadata.

The text is `apart1:` and, in base64, one number for each in order: how many offsets lie between it and the one before
(the first counts from the committed offset). A number is written in groups of 7 bits, the lowest first; all but its
last byte have the highest bit set.
"""

from __future__ import annotations

import base64
from collections.abc import Iterable, Iterator
from typing import Final

from reconsume.delay_levels.errors import MalformedProperty
from reconsume.delay_levels.progress.done_ahead import decode_done

MOST_APART: Final = 750
"""This many offsets always fit: 3,000 bytes, which are 4,007 of the 4,096 characters that Kafka allows."""
REACH: Final = 1 << 28
"""The longest distance from the committed offset to a done one: each number takes 4 bytes at most."""

_VERSION: Final = "apart1:"
_LONGEST: Final = 9
"""The maximum of bytes of a number; offsets have 63 bits."""


def encode_apart(offset: int, done: Iterable[int]) -> str:
    """Return the metadata for a committed offset; empty if nothing above it is done.

    Raises:
        ValueError: a done offset is below the committed one, or `REACH` or more above it, or there are too many.
    """
    ordered = sorted(done)
    if not ordered:
        return ""
    if not offset <= ordered[0] <= ordered[-1] < offset + REACH or len(ordered) > MOST_APART:
        raise ValueError(f"{len(ordered)} offsets from {ordered[0]} to {ordered[-1]} do not fit beside {offset}")
    encoded, before = bytearray(), offset
    for one in ordered:
        gap, before = one - before, one + 1
        while gap >= 0x80:  # noqa: PLR2004 - the eighth bit
            encoded.append(gap & 0x7F | 0x80)
            gap >>= 7
        encoded.append(gap)
    return _VERSION + base64.b64encode(encoded).decode()


def decode_either(offset: int, metadata: str | None) -> frozenset[int]:
    """Return the finished offsets above a committed one, as `encode_apart` or `encode_done` wrote them.

    Raises:
        MalformedProperty: the text is something else.
    """
    if metadata is None or not metadata.startswith(_VERSION):
        return decode_done(offset, metadata)
    try:
        gaps = list(_numbers(base64.b64decode(metadata[len(_VERSION) :], validate=True)))
    except ValueError as error:
        raise MalformedProperty(f"the metadata of offset {offset} is damaged: {metadata[:40]!r}: {error}") from None
    done, before = [], offset
    for gap in gaps:
        done.append(before + gap)
        before = done[-1] + 1
    if before > offset + REACH or len(done) > MOST_APART:
        raise MalformedProperty(
            f"the metadata of offset {offset} is not ours: {len(done):,} offsets to {before - 1}; {metadata[:40]!r}"
        )
    return frozenset(done)


def _numbers(encoded: bytes) -> Iterator[int]:
    number = shift = 0
    for byte in encoded:
        number |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:  # noqa: PLR2004 - the eighth bit
            yield number
            number = shift = 0
        elif shift >= 7 * _LONGEST:
            raise ValueError("a number is too long")
    if shift:
        raise ValueError("it ends within a number")
