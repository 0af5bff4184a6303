"""The messages of one partition that are read and not finished (RocketMQ's ProcessQueue)."""

from __future__ import annotations

import threading
from collections.abc import Sequence

from reconsume.consumers.message import Message
from reconsume.delay_levels.progress import OffsetProgress

__all__ = ["ProcessQueue"]


class ProcessQueue:
    """Safe to use from several threads.

    Guarantees:
        1. Of everybody who wants to decide a message's fate (its listener's result, its timeout) only the first
           one may: `claim` is True once. So a message that timed out is not sent back twice.
        2. After `drop` nothing may be claimed any more: the partition has another owner (RocketMQ: CC-15).
    """

    def __init__(self, topic: str, partition: int) -> None:
        self.topic = topic
        self.partition = partition
        self.paused = False
        self.committed: int | None = None
        self._lock = threading.Lock()
        self._progress = OffsetProgress()
        self._claimed: set[int] = set()
        self._started: dict[int, tuple[float, Message]] = {}
        self._dropped = False
        self._bytes = 0

    def begin(self, message: Message) -> None:
        """Take note of a message that was read."""
        with self._lock:
            self._progress.begin(message.kafka.offset)
            self._bytes += len(message.body or b"")

    def start(self, messages: Sequence[Message], now_ms: float) -> bool:
        """Take note that a listener is about to be called; False if it must not be.

        A message may be finished here: its timeout could not send it back, so it was to be tried again, and then the
        late listener succeeded after all.
        """
        with self._lock:
            unfinished = [one for one in messages if self._progress.is_unfinished(one.kafka.offset)]
            if self._dropped or not unfinished:
                return False
            for message in unfinished:
                self._started[message.kafka.offset] = (now_ms, message)
            return True

    def claim(self, message: Message) -> bool:
        """The right to decide what becomes of a message; True only the first time."""
        offset = message.kafka.offset
        with self._lock:
            if self._dropped or offset in self._claimed or not self._progress.is_unfinished(offset):
                return False
            self._claimed.add(offset)
            self._started.pop(offset, None)
            return True

    def release(self, message: Message) -> bool:
        """Give the right back: the message is tried again here; False if the partition is gone."""
        with self._lock:
            self._claimed.discard(message.kafka.offset)
            return not self._dropped

    def finish(self, message: Message) -> None:
        """The message needs nothing more: its listener succeeded or its send-back is acknowledged."""
        offset = message.kafka.offset
        with self._lock:
            self._claimed.discard(offset)
            if self._progress.finish(offset):
                self._bytes -= len(message.body or b"")

    def expired(self, started_before_ms: float) -> list[Message]:
        """Messages whose listener was called before that moment and has not returned (RocketMQ: EX-03)."""
        with self._lock:
            return [message for started, message in self._started.values() if started < started_before_ms]

    def drop(self) -> None:
        """The partition is revoked, or the consumer stops."""
        with self._lock:
            self._dropped = True

    @property
    def dropped(self) -> bool:
        """Whether results for this partition are of no use any more."""
        return self._dropped

    @property
    def to_commit(self) -> int | None:
        """The smallest unfinished offset if it was not committed yet, else None (RocketMQ: CC-13, CC-14)."""
        with self._lock:
            safe = self._progress.safe_offset
        return safe if safe != self.committed else None

    @property
    def size(self) -> int:
        """Messages read and not finished."""
        return self._progress.unfinished

    def is_full(self, threshold: int, threshold_bytes: int, max_span: int) -> bool:
        """Whether reading must wait (RocketMQ: FC-02, FC-03)."""
        with self._lock:
            return (
                self._progress.unfinished >= threshold
                or self._bytes >= threshold_bytes
                or self._progress.span >= max_span
            )
