"""Messages that are consumed one after the other: those of a partition, or of a key."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

from reconsume.consumers.message import Message
from reconsume.consumers.partitions.process_queue import ProcessQueue

__all__ = ["Lane", "LaneKey"]

LaneKey = tuple[str, int, bytes | int | None]
"""Topic and partition, and in key order the key; a message without a key is alone, under its offset."""


@dataclass(eq=False, slots=True)
class Lane:
    """Messages that must be consumed one after the other.

    Attributes:
        waiting: not given to the listener yet, or to be given again.
        consumed: succeeded with `auto_commit` off; a COMMIT finishes them, a ROLLBACK puts them back.
        leaving: those whose send-back, to the dead-letter topic mostly, is not acknowledged yet.
        queued: the pool has it.
        working: a listener has its front.
        suspended_until: moment in milliseconds.
        one_by_one_to: messages up to this offset are given one by one: one of a batch is not worth a retry.
    """

    key: LaneKey
    queue: ProcessQueue
    waiting: deque[Message] = field(default_factory=deque)
    consumed: list[Message] = field(default_factory=list)
    leaving: int = 0
    queued: bool = False
    working: bool = False
    suspended_until: float = 0.0
    one_by_one_to: int = -1
