"""What was answered a while ago, for calls that come again. Pure; times in milliseconds."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable
from dataclasses import dataclass
from typing import Generic, TypeVar

__all__ = ["Remembered"]

T = TypeVar("T")


@dataclass(slots=True)
class _Kept(Generic[T]):
    value: T
    until_ms: float


class Remembered(Generic[T]):
    """Keeps each value for a while, and at most so many; the oldest goes first.

    Args:
        keep_ms: how long after it was put.
        most: how many at most.
    """

    def __init__(self, keep_ms: float, most: int) -> None:
        self._keep_ms = keep_ms
        self._most = most
        self._kept: OrderedDict[Hashable, _Kept[T]] = OrderedDict()

    def get(self, key: Hashable, now_ms: float) -> T | None:
        """The value that was put under this key, unless that is too long ago."""
        kept = self._kept.get(key)
        return kept.value if kept is not None and now_ms < kept.until_ms else None

    def put(self, key: Hashable, value: T, now_ms: float) -> None:
        """Remember it from now on, as the newest."""
        self._kept.pop(key, None)
        self._kept[key] = _Kept(value, now_ms + self._keep_ms)
        while self._kept and (len(self._kept) > self._most or next(iter(self._kept.values())).until_ms <= now_ms):
            self._kept.popitem(last=False)

    def __len__(self) -> int:
        return len(self._kept)
