"""Which dead letters are open, as records of dead-letter topics, of `DELAY.0s` and of DEAD_LETTERS tell."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from reconsume.delay_levels.wire.names import RETRY_PREFIX
from reconsume.delay_levels.wire.resend import Replayed

__all__ = ["OpenDeadLetters"]

_MOST: Final = 100_000


class OpenDeadLetters:
    """The newest dead letter of each message, until it is sent again, resolved, deleted, or too old to be judged.

    Args:
        most: at most so many are kept; those that come later are left out until there is room.
    """

    def __init__(self, most: int = _MOST) -> None:
        self._most = most
        self._size = 0
        self._groups: dict[str, dict[str, tuple[int, int, int]]] = {}
        self._resolved: dict[tuple[str, tuple[int, int, int]], str] = {}

    def died(self, group: str, message_id: str, at: tuple[int, int, int]) -> None:
        """A dead letter: when it was stored (ms), its partition, its offset."""
        letters = self._groups.setdefault(group, {})
        if message_id in letters:
            letters[message_id] = max(at, letters[message_id])
        elif self._size < self._most:
            letters[message_id] = at
            self._size += 1

    def resolved(self, group: str, at: tuple[int, int, int]) -> None:
        """The dead letter that stands there is open no longer."""
        for message_id in [one for one, place in self._groups.get(group, {}).items() if place == at]:
            self._close(group, message_id)
            if len(self._resolved) < self._most:
                self._resolved[group, at] = message_id

    def opened(self, group: str, at: tuple[int, int, int]) -> None:
        """One that was resolved is open again."""
        if (message_id := self._resolved.pop((group, at), None)) is not None:
            self.died(group, message_id, at)

    def replayed(self, replayed: Replayed, stored_ms: int) -> None:
        """A message was sent again, to one group or, on an ordinary topic, to all."""
        to_one = replayed.real_topic.startswith(RETRY_PREFIX)
        for group in [replayed.real_topic.removeprefix(RETRY_PREFIX)] if to_one else list(self._groups):
            at = self._groups.get(group, {}).get(replayed.origin_message_id)
            if at is not None and at[0] <= stored_ms:
                self._close(group, replayed.origin_message_id)

    def forget(self, group: str, starts: Mapping[int, int], since_ms: int) -> None:
        """Those before these offsets of their partitions were deleted; nobody knows of those before that moment."""
        for message_id, (stored_ms, partition, offset) in list(self._groups.get(group, {}).items()):
            if stored_ms < since_ms or offset < starts.get(partition, offset + 1):
                self._close(group, message_id)

    def keep_groups(self, groups: frozenset[str]) -> None:
        """All others have no dead-letter topic any more."""
        for group in self._groups.keys() - groups:
            self._size -= len(self._groups.pop(group))

    def oldest_ms(self) -> dict[str, int]:
        """When the oldest open dead letter of each group was stored; groups without one are left out."""
        return {group: min(letters.values())[0] for group, letters in self._groups.items() if letters}

    def _close(self, group: str, message_id: str) -> None:
        del self._groups[group][message_id]
        self._size -= 1
