"""The size of a record as brokers count it, and the search for the smallest refused size."""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable
from typing import Final

from reconsume.bridge.scheduler.targets.routing import Delivery

_BATCH_HEAD: Final = 61
_RECORD_HEAD: Final = 3
"""Attributes, and the deltas of timestamp and offset, which are 0 for a first record."""


def record_batch_bytes(one: Delivery) -> int:
    """Return the size of a record batch (format 2) with this record alone and no compression."""
    body = _RECORD_HEAD + _field(one.key) + _field(one.value) + _varint(len(one.headers))
    for name, value in one.headers:
        body += _field(name.encode()) + _field(value.encode() if isinstance(value, str) else value)
    return _BATCH_HEAD + _varint(body) + body


def _field(value: bytes | None) -> int:
    return 1 if value is None else _varint(len(value)) + len(value)


def _varint(number: int) -> int:
    """Return the bytes of a zigzag varint."""
    return max(1, ((number << 1).bit_length() + 6) // 7)


class SizeSearch:
    """Finds the smallest refused size, provided that all larger ones are refused too.

    The largest is tried first: if it is accepted, all are. With a hint the first is the smallest above it, and if that
    is refused the search is over.

    Args:
        sizes: the sizes in any order.
        hint: the limit that the brokers report.
    """

    def __init__(self, sizes: Iterable[int], hint: int | None = None) -> None:
        self._sizes = sorted(set(sizes))
        self._low, self._high = 0, len(self._sizes)
        self._hinted = self._high if hint is None else bisect_right(self._sizes, hint)

    @property
    def next_size(self) -> int | None:
        """The next size to try; None if the result is known."""
        return self._sizes[self._middle] if self._low < self._high else None

    @property
    def _middle(self) -> int:
        if self._hinted < len(self._sizes):
            return self._hinted
        return self._high - 1 if self._high == len(self._sizes) else (self._low + self._high) // 2

    def answer(self, *, refused: bool) -> None:
        """Note the verdict on `next_size`."""
        tried, hinted = self._middle, self._hinted
        self._hinted = len(self._sizes)
        if refused:
            self._high = tried
            self._low = max(self._low, tried if tried == hinted else 0)
        else:
            self._low = tried + 1

    @property
    def smallest_refused(self) -> int | None:
        """The result; None if none is refused."""
        return self._sizes[self._high] if self._high < len(self._sizes) else None


class MessageSets:
    """Limits the bytes that one request sends to a partition of certain topics.

    librdkafka has one `batch.size` for all topics, and brokers compare a topic's `max.message.bytes` with the whole
    batch. If each record is accepted alone but many together are refused, the producer flushes between smaller parts.
    Test: tests/unit/bridge/scheduler/delivery/test_refusals.py.
    """

    def __init__(self) -> None:
        self._limits: dict[str, int] = {}
        self._waiting: Counter[tuple[str, int]] = Counter()

    def __bool__(self) -> bool:
        return bool(self._limits)

    def limit(self, topic: str, max_bytes: int | None) -> None:
        """Set the limit of a topic; None removes it."""
        self._limits.pop(topic, None)
        if max_bytes is not None:
            self._limits[topic] = max_bytes

    def begin(self) -> None:
        """Start a batch: nothing is queued."""
        self._waiting.clear()

    def has_room(self, one: Delivery) -> bool:
        """Count a record; False if earlier records must be flushed first."""
        limit = self._limits.get(one.topic)
        if limit is None:
            return True
        where, size = (one.topic, one.partition), record_batch_bytes(one)
        fits = self._waiting[where] == 0 or self._waiting[where] + size <= limit
        if not fits:
            self._waiting.clear()
        self._waiting[where] += size
        return fits
