"""What of a partition is delivered before those in front of it, and what was."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from itertools import islice

from confluent_kafka import Message

from reconsume.delay_levels.progress.done_apart import encode_apart

__all__ = ["OutOfTurn", "Waits", "offset_of"]

Waits = tuple[int, Message]
"""When a record is due, in milliseconds, and the record."""


def offset_of(message: Message) -> int:
    """Of a record that was read."""
    offset = message.offset()
    assert offset is not None
    return offset


class OutOfTurn:
    """Of one partition.

    Attributes:
        done: offsets that are delivered and committed, not below the partition's head.
        chosen: what shall be delivered next, in order. To forget one is no harm: it leaves in its turn.
        held_until_ms: nothing of it is delivered before.
    """

    __slots__ = ("chosen", "done", "held_until_ms")

    def __init__(self, done: Iterable[int] = ()) -> None:
        self.done = set(done)
        self.chosen: deque[Waits] = deque()
        self.held_until_ms = 0.0

    def __bool__(self) -> bool:
        return bool(self.done or self.chosen)

    def due(self, now_ms: float, limit: int) -> list[Waits]:
        """Up to `limit` of what was chosen."""
        return list(islice(self.chosen, limit)) if now_ms >= self.held_until_ms else []

    def in_turn(self, records: Iterable[Waits], now_ms: float, limit: int) -> list[Waits]:
        """Up to `limit` of these that are due, without what is done."""
        found: list[Waits] = []
        for record in records:
            if len(found) == limit or record[0] > now_ms:
                break
            if offset_of(record[1]) not in self.done:
                found.append(record)
        return found

    def after(self, given: Sequence[Waits], records: Iterable[Waits], read_to: int) -> tuple[int, str]:
        """The offset to commit when `given` are delivered, and its metadata.

        Args:
            given: in turn or not.
            records: all that was read and is in memory.
            read_to: the offset that is read next.
        """
        done = self.done.union(offset_of(message) for _, message in given)
        offsets = (offset_of(message) for _, message in records)
        safe = next((offset for offset in offsets if offset not in done), read_to)
        return safe, encode_apart(safe, (offset for offset in done if offset >= safe))

    def finish(self, given: Sequence[Waits], records: deque[Waits], read_to: int) -> int:
        """These are delivered and committed: drops what is done from the head on; gives how many that were."""
        delivered = {offset_of(message) for _, message in given}
        self.done |= delivered
        if self.chosen:
            self.chosen = deque(one for one in self.chosen if offset_of(one[1]) not in delivered)
        dropped = 0
        while records and offset_of(records[0][1]) in self.done:
            records.popleft()
            dropped += 1
        safe = offset_of(records[0][1]) if records else read_to
        self.done = {offset for offset in self.done if offset >= safe}
        return dropped
